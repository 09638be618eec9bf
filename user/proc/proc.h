/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads files of /proc/PID (tid 0), or of a thread in /proc/PID/task/TID: whole, or parsed. All
 * functions return 0 or -errno; -ESRCH when the file, or its process, is gone.
 */
#ifndef STEPFLAME_USER_PROC_PROC_H
#define STEPFLAME_USER_PROC_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A whole file of the kernel, which reports no size: until its end, or until there are `most` bytes.
 * *out is malloc'ed, with a 0 after its *size bytes.
 */
int proc__slurp_path(const char *path, size_t most, char **out, size_t *size);
/*
 * For files that the kernel writes by itself (stat, status, schedstat). *out is as above.
 */
int proc__slurp(pid_t pid, pid_t tid, const char *name, char **out, size_t *size);
/*
 * The same for files for which the kernel reads the process's memory, or waits for one of its locks
 * (cmdline, environ, maps, syscall): by the deputy. Cuts what is longer than `most` bytes, which
 * are at most DEPUTY_OUT_BYTES. -ETIMEDOUT: the process does not answer.
 */
int proc__slurp_memory(pid_t pid, pid_t tid, const char *name, size_t most, char **out, size_t *size);

/* The names in a folder that are numbers, as of processes in /proc; malloc'ed, NULL without any. Count, or -errno. */
int proc__numbers(const char *path, pid_t **out);

struct proc_stat {
	char comm[16]; /* any bytes, 0-terminated */
	char state;
	pid_t parent;
	unsigned int flags;
	uint64_t minor_faults, major_faults;
	uint64_t user_ticks, system_ticks; /* CPU time, in units of 1 / _SC_CLK_TCK s */
	size_t thread_cnt;
	uint64_t start_time;
	uint64_t vm_bytes;    /* of all its mappings */
	uint64_t rss_pages;   /* resident memory; 0 of one that has ended */
	uint64_t stack_start; /* another one after an exec; 0: not shown, for want of ptrace access */
	int processor;        /* the processor on which it last ran; -1: not known */
};

int proc__stat(pid_t pid, pid_t tid, struct proc_stat *out);
/* The same of what the file holds: `size` bytes, with a 0 behind them. 0, or -ESRCH: it makes no sense. */
int proc_stat__parse(const char *data, size_t size, struct proc_stat *out);
bool proc_stat__dead(const struct proc_stat *stat);
/* Or about to: the kernel says so before BPF sees the end. */
bool proc_stat__exits(const struct proc_stat *stat);
/* Does it live, and is no thread of the kernel? */
bool proc_stat__is_program(const struct proc_stat *stat);

/* By which one sees cheaply that a process runs the program that it ran, and has no more and no less memory mapped. */
struct proc_extent {
	uint64_t start_time, stack_start, vm_bytes; /* of struct proc_stat */
};

static inline struct proc_extent proc_stat__extent(const struct proc_stat *stat)
{
	return (struct proc_extent){stat->start_time, stat->stack_start, stat->vm_bytes};
}

static inline bool proc_extent__same(const struct proc_extent *a, const struct proc_extent *b)
{
	return a->start_time == b->start_time && a->stack_start == b->stack_start && a->vm_bytes == b->vm_bytes;
}

struct proc_status {
	pid_t tgid;
	pid_t tracer;              /* 0: the process is not being traced */
	int seccomp;               /* 0: no filter */
	uid_t uids[4];             /* real, effective, saved, of the file system */
	pid_t nspid;               /* in the innermost namespace; without namespaces the same as tgid */
	uint64_t pending, blocked; /* signal masks: pending for the thread or its process; blocked by the thread */
};

int proc__status(pid_t pid, pid_t tid, struct proc_status *out);

/* The system call in which a thread is blocked. Needs ptrace access. */
struct proc_syscall {
	int field_cnt; /* fields that are set: all 9; 3 when the thread is in no call (number is -1); 0 when it runs */
	long number;
	uint64_t args[6], sp, pc;
};

int proc__syscall(pid_t pid, pid_t tid, struct proc_syscall *out);

/*
 * The number in a line "KEY: NUMBER" or "KEY NUMBER" of a text, times 1024 where "kB" follows. 0, or
 * -EINVAL: it has none, and *out is as before.
 */
int proc__parse_value(const char *text, const char *key, uint64_t *out);
/* A number of decimal digits behind blanks: at most UINT64_MAX. Returns what follows; NULL: there is none. */
const char *proc__parse_number(const char *text, uint64_t *out);
/* Of a mount table, in place: the kernel writes blanks, tabs, newlines and backslashes there as "\040". */
void proc__unescape(char *text);
/* Is ".." a part of the path? Then it may lead out of the mount, or the cgroup, that it begins with. */
bool proc__leads_up(const char *path);

#endif
