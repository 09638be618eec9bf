/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread waits for while it waits for another thread or process of the job. A thread that
 * waits for a future, a queue, a condition or a pipe is woken by another one. If that one slept or
 * read from a disk meanwhile, so did the first: its wait gets that cause, and the thread at the end
 * of the chain as its waker. If the other one was on the CPU, the wait is for what it did there. A
 * lock is neither: whoever holds it has to be asked, whatever it does.
 */
#ifndef STEPFLAME_USER_MODEL_WAIT_CHAIN_H
#define STEPFLAME_USER_MODEL_WAIT_CHAIN_H

#include "user/model/samples.h"

/*
 * Resolves the waits of the threads for which is_asked is true. Call after samples__refine; a second
 * call resolves only what came since. 0 or -ENOMEM.
 */
int wait_chain__resolve(struct samples *samples, bool (*is_asked)(uint32_t pid, uint32_t tid, void *ctx), void *ctx);

#endif
