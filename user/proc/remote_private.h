/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by remote_load.c (what is written, and where) and remote_thread.c (which thread, and how
 * it is stopped).
 */
#ifndef STEPFLAME_USER_PROC_REMOTE_PRIVATE_H
#define STEPFLAME_USER_PROC_REMOTE_PRIVATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#define RESTORERS_MAX 4

/* What the checks of a process's stacks need. */
struct remote_view {
	uint64_t restorers[RESTORERS_MAX]; /* addresses to which its signal handlers return */
	size_t restorer_cnt;
	size_t stack_bytes; /* that must be free below what a thread uses */
};

/* A waiting thread, as /proc describes it. */
struct remote_thread {
	pid_t tid;
	int rank; /* the lower the better */
	long syscall;
	uint64_t args[6], sp, pc;
};

/* The threads that may be stopped, the best first, malloc'ed into *out. Count, or -errno. */
int remote_thread__list(pid_t pid, struct remote_thread **out);

/*
 * Checks the thread's stack. 0; -EAGAIN: the thread may be in a signal handler or in the loader, or
 * has little stack left; or -errno.
 */
int remote_thread__check(pid_t pid, const struct remote_thread *thread, const struct remote_view *view);

/*
 * Stops the thread in the call that it was seen in. Returns its registers, and those with which the
 * call restarts in *again. 0 (the caller must call remote_thread__release), -EAGAIN: the thread has
 * moved on, and was released; -EACCES: it has a seccomp filter, and was released; -EBUSY, -EPERM;
 * -ETIMEDOUT: it does not stop.
 */
int remote_thread__stop(pid_t pid, const struct remote_thread *thread, struct user_regs_struct *regs,
			struct user_regs_struct *again);

/* Releases the thread with these registers. */
void remote_thread__release(const struct remote_thread *thread, const struct user_regs_struct *regs);

#endif
