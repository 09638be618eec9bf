/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What waits were for, by what other threads, and disks, did meanwhile. A thread that waits for a
 * future, a queue, a condition or a pipe is woken by another one. If that one slept or read from a
 * disk meanwhile, so did the first: its wait gets that cause, and the thread at the end of the chain
 * as its waker. If the other one was on the CPU, the wait is for what it did there. A lock is neither:
 * whoever holds it has to be asked, whatever it does.
 */
#ifndef STEPFLAME_USER_MODEL_WAITS_H
#define STEPFLAME_USER_MODEL_WAITS_H

#include "user/model/resources.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"

/*
 * Resolves the waits of the threads for which is_asked is true. Call after samples__refine; a second
 * call resolves only what came since. 0 or -ENOMEM.
 */
int waits__resolve(struct samples *samples, const struct stacks *stacks,
		   bool (*is_asked)(uint32_t pid, uint32_t tid, void *ctx), void *ctx);

/*
 * Corrects the causes of waits for a disk, where the system call alone does not say whether it was for
 * reads or for writes (a copy of files, a mapped file, libaio, a close), by what the processes read
 * from and wrote to disks meanwhile (/proc/PID/io, in REC_RESOURCES): to the only direction in which
 * bytes went, to unknown if none went as the call says; else they stay. Call after samples__refine.
 */
void waits__correct_disk(struct samples *samples, struct resources *resources);

#endif
