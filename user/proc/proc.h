/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Files of /proc/PID (tid 0), and of a thread in /proc/PID/task/TID: whole, and what is read of them. All: 0 or -errno; -ESRCH where a
 * file, or its process, is gone.
 */
#ifndef STEPFLAME_USER_PROC_PROC_H
#define STEPFLAME_USER_PROC_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* *out is malloc'ed and has a 0 behind its *size bytes. */
int proc__slurp(pid_t pid, pid_t tid, const char *name, char **out, size_t *size);

struct proc_stat {
	char comm[16]; /* any bytes, 0-terminated */
	char state;
	pid_t parent;
	unsigned int flags;
	uint64_t start_time;
	int processor; /* on which it ran last; -1: not told */
};

int proc__stat(pid_t pid, pid_t tid, struct proc_stat *out);
bool proc_stat__dead(const struct proc_stat *stat);

struct proc_status {
	pid_t tgid;
	pid_t nspid;               /* in the innermost namespace; without namespaces the same as tgid */
	uint64_t pending, blocked; /* signals, a bit each: for the thread or any of its process; by the thread */
};

int proc__status(pid_t pid, pid_t tid, struct proc_status *out);

/* In which system call a thread is blocked. Takes ptrace access. */
struct proc_syscall {
	int field_cnt; /* of those below that were told: all 9; 3 where it is in none (number is -1); 0: it runs */
	long number;
	uint64_t args[6], sp, pc;
};

int proc__syscall(pid_t pid, pid_t tid, struct proc_syscall *out);

#endif
