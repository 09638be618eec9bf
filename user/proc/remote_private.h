/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by remote_load.c (what is written, and where) and remote_thread.c (which thread, and how it is stopped). */
#ifndef STEPFLAME_USER_PROC_REMOTE_PRIVATE_H
#define STEPFLAME_USER_PROC_REMOTE_PRIVATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#define RESTORERS_MAX 4

/* How one looks at the stacks of a process. */
struct remote_view {
	uint64_t restorers[RESTORERS_MAX]; /* where its signal handlers return to */
	size_t restorer_cnt;
	size_t stack_bytes; /* that are to be free below what a thread uses */
};

/* A thread that waits, as /proc tells. */
struct remote_thread {
	pid_t tid;
	int rank; /* the lower the better */
	long syscall;
	uint64_t args[6], sp, pc;
};

/* Those that may be stopped, the best first, malloc'ed into *out. Count, or -errno. */
int remote_thread__list(pid_t pid, struct remote_thread **out);

/* Looks at its stack. 0; -EAGAIN: it may be in a signal handler or in the loader, or has little stack left; or -errno. */
int remote_thread__check(pid_t pid, const struct remote_thread *thread, const struct remote_view *view);

/*
 * Stops it, in the call that it was seen in, and gives its registers and those with which the call begins again.
 * 0 (remote_thread__release is to be called), -EAGAIN: it is somewhere else now, and was let go; -EBUSY, -EPERM; -ETIMEDOUT: it
 * does not stop.
 */
int remote_thread__stop(pid_t pid, const struct remote_thread *thread, struct user_regs_struct *regs,
			struct user_regs_struct *again);

/* Lets it go with these registers. */
void remote_thread__release(const struct remote_thread *thread, const struct user_regs_struct *regs);

#endif
