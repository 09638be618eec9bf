/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Brings a library into a running process (x86-64, glibc) and calls a function of it, which is asked for explicitly: this and
 * the words of --exact are all that is ever written into a process.
 *
 * One thread, which waits in a system call that the kernel can begin again, is stopped by ptrace for some hundred
 * microseconds. It then starts a new thread in its process, and goes back to its call with each register as it was, by
 * code in the process (remote_stub.h). The new thread loads the library. So it does not matter to the process when the caller
 * dies, at any moment; nor that a thread of it is within the loader, which the new one waits for like any other.
 */
#ifndef STEPFLAME_USER_PROC_REMOTE_LOAD_H
#define STEPFLAME_USER_PROC_REMOTE_LOAD_H

#include <stdint.h>

#include "user/proc/process.h"

struct remote_load {
	pid_t tid;           /* the thread that was stopped; 0: none was */
	uint64_t stopped_ns; /* for so long */
	uint64_t loaded_ns;  /* from then until the function returned */
	int32_t result;      /* what it returned */
	char why[768];       /* of an error; any bytes, 0-terminated */
};

/*
 * `library` is its path as the process sees it, `entry` a function int (*)(void). 0, or -errno with why: -ENOENT: the process
 * cannot load it, or it lacks the function; -EOPNOTSUPP: this cannot be done in that process; -EBUSY: another debugger has
 * it, or it is stopped; -EAGAIN: for some seconds no thread of it waited where it can be stopped; -ETIMEDOUT: a thread loads
 * it, and has not come to an end; -ESRCH; -EPERM. A thread that does not stop is let go when the caller's process ends, so
 * this wants one of its own.
 */
int remote__load(const struct process *process, const char *library, const char *entry, struct remote_load *out);

#endif
