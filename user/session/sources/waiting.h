/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads that wait already when the window opens: BPF, which takes a stack when a wait begins, has none of that wait. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_WAITING_H
#define STEPFLAME_USER_SESSION_SOURCES_WAITING_H

#include "user/session/state.h"

struct waiting {
	struct waiting_thread {
		pid_t pid, tid;
		uint64_t stack;    /* REC_STACK id */
		uint64_t until_ns; /* it was seen to wait until then */
	} * threads;
	size_t cnt;
};

/*
 * Reads the stacks of all threads of the targets that wait, and hands them to the sink; for a moment at most: of jobs with a
 * thousand such threads, those that it came to. 0 or -errno of the sink.
 */
int waiting__read(struct session *s, struct waiting *waiting);
void waiting__free(struct waiting *waiting);

/* The stack of a sample without one: 0, unless the sample is of a wait in which the thread was seen. */
uint64_t waiting__stack(struct waiting *waiting, const struct rec_sample *sample);

#endif
