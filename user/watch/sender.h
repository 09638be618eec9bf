/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sends profiles to a server, in a process of its own that has no rights. In: messages, each with a file in memory. Out: HTTP or HTTPS by
 * libcurl, which is loaded when somebody wants to send; and what became of them. What the server does costs the one that watches nothing.
 */
#ifndef STEPFLAME_USER_WATCH_SENDER_H
#define STEPFLAME_USER_WATCH_SENDER_H

#include <stdint.h>

#define SENDER_QUEUE_BYTES   (64ull << 20) /* that wait, at most, */
#define SENDER_QUEUE_MAX     4096          /* and so many: the oldest go */
#define SENDER_PROFILE_BYTES (8ull << 20)  /* of one */
#define SENDER_NAME          256
#define SENDER_ERROR         160
#define SENDER_HEADERS       16
#define SENDER_FILES         64 /* that it may open */

/* A message to it; the profile comes as a descriptor with it. */
struct sender_profile {
	uint64_t from_s, to_s;  /* of the day */
	char name[SENDER_NAME]; /* what it is of: "stepflame{job=run-a,rank=0,host=h}" */
};

/* Its answers, so far. */
struct sender_told {
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

#endif
