/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Pushes profiles of all jobs to a server, again and again: a child makes them of the ring (user/watch/profiles.h), and another one,
 * without rights, sends them (user/watch/sender.h). Neither keeps the one that watches waiting.
 */
#ifndef STEPFLAME_USER_WATCH_PUSH_H
#define STEPFLAME_USER_WATCH_PUSH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/watch/profiles.h"
#include "user/watch/sender.h"

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
	struct sender_told told;           /* by the sender that runs */
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
