/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel says about a thread: its name, whether it runs, its system call, what it waits
 * for and for how long.
 */
#ifndef STEPFLAME_USER_PROC_TASK_H
#define STEPFLAME_USER_PROC_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/python.h"
#include "include/records.h"

#define TASK_NO_SYSCALL      (-1) /* blocked, but in no system call */
#define TASK_SYSCALL_UNKNOWN (-2) /* it runs, or /proc does not say */

struct task {
	pid_t tid;
	pid_t nstid;   /* as its process sees it */
	char name[16]; /* any bytes, 0-terminated */
	char state;    /* as in /proc/PID/stat: R, S, D, T, t, Z, ... */
	int processor; /* on which it ran last */
	long syscall;  /* number, or TASK_... */
	uint64_t args[6];
	double blocked_s; /* since it last ran; below 0: it runs, or the time is not known */
};

/*
 * The thread ids of a process in ascending order, malloc'ed into *out. Count, or -errno: -ESRCH
 * when it is gone.
 */
int task__list(pid_t pid, pid_t **out);

/*
 * Reads one thread. 0, -ESRCH when it is gone, or -errno. Reading the system call needs ptrace
 * access.
 */
int task__read(pid_t pid, pid_t tid, struct task *out);

/* The same, but only name, state, processor and system call: these are of the same moment. */
int task__read_call(pid_t pid, pid_t tid, struct task *out);

/* How often a thread has been put on a processor. 0, or -errno when the kernel does not say. */
int task__runs(pid_t pid, pid_t tid, uint64_t *runs);

/*
 * Checks whether a thread waits. 0: it waits, *nstid is its id in its own namespace and *runs is
 * that of task__runs: a thread waits as long as the count stays the same. -EAGAIN: it does not wait;
 * or -errno when the kernel does not say.
 */
int task__waits(pid_t pid, pid_t tid, pid_t *nstid, uint64_t *runs);

/* "sleeping" and the like. */
const char *task__state(const struct task *task);

/*
 * The name of the task's system call, NULL when the task is in no call, or the call has no name
 * here.
 */
const char *task__syscall(const struct task *task);

/* What a blocked thread waits for; CAUSE_NONE when it is not blocked. py may be NULL. */
enum wait_cause task__cause(pid_t pid, const struct task *task, const struct py_process *py);

#endif
