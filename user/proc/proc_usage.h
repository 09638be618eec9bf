/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process has used so far, by its files in /proc: CPU time, page faults, memory, disks, and
 * the network of its namespace. The files that the kernel writes without a lock of the process stay
 * open, and are read from their start: one that is open is never another process's.
 */
#ifndef STEPFLAME_USER_PROC_PROC_USAGE_H
#define STEPFLAME_USER_PROC_PROC_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* All zeros: no file is open. */
struct proc_files {
	int stat, statm; /* descriptor + 1; 0: not open */
};

struct proc_usage {
	bool ended;          /* a zombie: the times and faults are its last ones, and it has no memory */
	uint64_t start_time; /* as in struct proc_stat */
	uint64_t user_ns, system_ns;
	uint64_t minor_faults, major_faults;
	bool has_memory, has_disk;
	uint64_t rss_bytes, shared_bytes;
	uint64_t read_bytes, written_bytes;
};

/*
 * Reads the usage of a process. `keep`: the files that it opens stay open, until
 * proc_files__close. 0; -ESRCH: it is gone; or -errno. What else cannot be read is missing
 * (has_...): *failed counts it.
 */
int proc_usage__read(pid_t pid, struct proc_files *files, bool keep, struct proc_usage *out, uint64_t *failed);
void proc_files__close(struct proc_files *files);

/* Its bytes that are swapped out. 0 or -errno. */
int proc_usage__swap(pid_t pid, uint64_t *bytes);
/* The bytes that the interfaces of its network namespace have received and sent. 0 or -errno. */
int proc_usage__network(pid_t pid, uint64_t *received, uint64_t *sent);

/* CPU times are sums of all processors since the machine was started. */
struct machine_usage {
	uint64_t busy_ns, idle_ns; /* idle: also what waits for a disk alone, as psutil.cpu_percent counts it */
	uint64_t memory_bytes, available_bytes;
	uint64_t swap_bytes, swap_free_bytes;
};

/* 0 or -errno. */
int proc_usage__machine(struct machine_usage *out);

/*
 * The parsers of these files, which are texts with a 0 at the end. 0, or -EINVAL: it is no such file,
 * and *out is as before.
 */
int proc_usage__parse_statm(const char *text, size_t page_bytes, uint64_t *rss_bytes, uint64_t *shared_bytes);
int proc_usage__parse_net(const char *text, uint64_t *received, uint64_t *sent);
/* The first line of /proc/stat. */
int proc_usage__parse_cpu(const char *text, uint64_t *busy_ticks, uint64_t *idle_ticks);
/* The number in a line "KEY: NUMBER" or "KEY NUMBER", times 1024 where "kB" follows. */
int proc_usage__parse_value(const char *text, const char *key, uint64_t *out);
/* A number of decimal digits behind blanks: at most UINT64_MAX. Returns what follows; NULL: there is none. */
const char *proc_usage__parse_number(const char *text, uint64_t *out);

#endif
