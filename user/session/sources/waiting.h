/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads that wait when the window opens or closes: BPF walks a stack when a wait begins or ends, so
 * it has no stack of those.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_WAITING_H
#define STEPFLAME_USER_SESSION_SOURCES_WAITING_H

#include "user/session/state.h"

struct waiting {
	struct waiting_thread {
		pid_t pid, tid;
		uint64_t stack;    /* REC_STACK id */
		uint64_t until_ns; /* end of the part of the wait that is known so far */
	} * threads;
	size_t cnt;
};

/*
 * Reads the stacks of all waiting threads of the targets and hands them to the sink. Its time is
 * limited: in a job with a thousand such threads it reads only some. 0 or -errno of the sink.
 */
int waiting__read(struct session *s, struct waiting *waiting);
void waiting__free(struct waiting *waiting);

/* The stack for a sample without one: 0, unless waiting__read saw the thread in that wait. */
uint64_t waiting__stack(struct waiting *waiting, const struct rec_sample *sample);

#endif
