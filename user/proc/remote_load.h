/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loads a library into a running process (x86-64, glibc) and calls a function of it, only on
 * explicit request: this and the words of --exact are all that stepflame ever writes into a
 * process.
 *
 * ptrace stops one thread, which waits in a system call that the kernel can restart, for some
 * hundred microseconds. That thread starts a new thread in its process, and returns to its call
 * with each register as it was, by code in the process. The new thread loads the
 * library. So the process is safe when the caller dies, at any moment, and when one of its threads
 * is inside the loader: the new thread waits for the loader like any other.
 */
#ifndef STEPFLAME_USER_PROC_REMOTE_LOAD_H
#define STEPFLAME_USER_PROC_REMOTE_LOAD_H

#include <stdint.h>

#include "user/proc/process.h"

struct remote_load {
	pid_t tid;           /* the thread that was stopped; 0: no thread was stopped */
	uint64_t stopped_ns; /* how long the thread was stopped */
	uint64_t loaded_ns;  /* from then until the function returned */
	int32_t result;      /* what the function returned */
	char why[768];       /* reason of an error; any bytes, 0-terminated */
};

/*
 * `library` is the path as the process sees it, `entry` a function int (*)(void). 0, or -errno with
 * why: -ENOENT: the process cannot load the library, or the library lacks the function;
 * -EOPNOTSUPP: that process does not support this; -EBUSY: another debugger traces the process, or
 * the process is stopped; -EAGAIN: for some seconds no thread waited where it can be stopped;
 * -ETIMEDOUT: a thread is still loading the library; -ESRCH; -EPERM. A thread that does not stop is
 * released when the caller's process ends, so run this in a process of its own.
 */
int remote__load(const struct process *process, const char *library, const char *entry, struct remote_load *out);

#endif
