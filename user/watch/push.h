/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Pushes profiles of all jobs to a server, again and again: a child makes them of the ring, and another one,
 * without rights, sends them. Neither keeps the one that watches waiting.
 */
#ifndef STEPFLAME_USER_WATCH_PUSH_H
#define STEPFLAME_USER_WATCH_PUSH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/recording/recording.h"
#include "user/watch/jobs.h"
#include "user/watch/metrics.h"

/* ---- the sender ---- */

/*
 * Sends profiles to a server, in a process of its own that has no rights. In: messages, each with a file in memory. Out: HTTP or HTTPS by
 * libcurl, which is loaded when somebody wants to send; and what became of them. What the server does costs the one that watches nothing.
 */

#define SENDER_QUEUE_BYTES   (64ull << 20) /* that wait, at most, and SENDER_QUEUE_MAX of them: the oldest go */
#define SENDER_PROFILE_BYTES (8ull << 20)  /* of one */
#define SENDER_NAME          256
#define SENDER_ERROR         160
#define SENDER_HEADERS       16

/* A message to it; the profile comes as a descriptor with it. */
struct sender_profile {
	uint64_t from_s, to_s;  /* of the day */
	char name[SENDER_NAME]; /* what it is of: "stepflame{job=run-a,rank=0,host=h}" */
};

/* Its answers, so far. */
struct sender_progress {
	uint64_t sent, lost, waiting;
	char error[SENDER_ERROR]; /* why the last one could not be sent; "": it was */
};

/* 0, or -ENOENT: *why says what cannot be loaded; valid until the next call. Once is enough, also for a child. */
int sender__load(const char **why);
/*
 * Sends until the other end of `channel` (SOCK_SEQPACKET) is closed. url: to which the profile's times and name are added. headers: lines
 * that each request has, up to a NULL. -errno.
 */
int sender__run(int channel, const char *url, char *const *headers);

/* ---- the one that watches ---- */

#define PUSH_HEADER_BYTES 4096

struct push_options {
	const char *url;          /* NULL: nowhere */
	const char *headers_file; /* lines that each request has, which nobody else may know; NULL: none */
	uint64_t every_ns;
};

struct push {
	struct push_options options;
	int channel; /* to the sender */
	pid_t sender, maker;
	uint64_t started_ns, next_ns, from_ns;
	struct sender_progress progress;   /* by the sender that runs */
	uint64_t sent_before, lost_before; /* by those that have ended, and what never came to one */
	bool fails;
	char headers[PUSH_HEADER_BYTES + 1];
	char *lines[SENDER_HEADERS + 1]; /* of headers; the last one is NULL */
};

/* "http://" or "https://" and what may follow, without a user and password? */
bool push__is_url(const char *text);
/* Starts the sender. The options' texts stay the caller's. 0, or -errno after a message. */
int push__open(struct push *push, const struct push_options *options);
/* Looks after its children. Is it time to push? Then the caller calls push__now, after a snapshot of the session. */
bool push__is_due(struct push *push, uint64_t now_ns);
/* Makes and pushes what the ring has got since the last time. */
void push__now(struct push *push, const struct recording_writer *ring, const struct watched_jobs *jobs,
	       const struct metrics *metrics, uint64_t now_ns);
/* Nothing is recorded until the next push__now. */
void push__skip(struct push *push);
uint64_t push__sent(const struct push *push);
uint64_t push__lost(const struct push *push);
void push__close(struct push *push); /* also when it is all zeros */

#endif
