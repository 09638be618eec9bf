/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keeps what the ring has of a job when something happens: FOLDER/TIME-JOB-KIND.rec, a recording of
 * that job alone, and beside it .txt, its summary. A child of this process does the work, since the
 * session must not wait for it.
 */
#ifndef STEPFLAME_USER_WATCH_EVENTS_H
#define STEPFLAME_USER_WATCH_EVENTS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/recording/part.h"
#include "user/recording/recording.h"

/* Set the first two fields and zero the rest. */
struct events {
	const char *folder;
	uint64_t max_bytes;  /* of all that is kept: the oldest events go first */
	pid_t child;         /* that keeps one; 0: none */
	bool kept;           /* the last one, once it is no longer being kept */
	char last[NAME_MAX]; /* the file of the last one, without its ending */
};

/* Is an event being kept? Then events__keep waits for it. */
bool events__busy(struct events *events);
/*
 * Begins to keep what the ring has of the processes of `part`. job, kind: for the name of the file.
 * since_ns: when it began. what: a sentence that the log has. 0 or -errno.
 */
int events__keep(struct events *events, const struct recording_writer *ring, struct recording_part *part,
		 const char *job, const char *kind, uint64_t since_ns, const char *what);
/* Waits for the event that is being kept. */
void events__end(struct events *events);

#endif
