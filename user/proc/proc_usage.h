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

/* The machine's memory. 0 or -errno. */
int proc_usage__machine(uint64_t *available_bytes, uint64_t *swapped_bytes);
/*
 * Bytes that the tightest limit of its cgroups (version 2) leaves, with the page cache that the kernel
 * can drop. 0; -ENOENT: no limit; or -errno.
 */
int proc_usage__cgroup_left(pid_t pid, uint64_t *left_bytes);

/*
 * The parsers of these files, which are texts with a 0 at the end. 0, or -EINVAL: it is no such file,
 * and *out is as before.
 */
int proc_usage__parse_statm(const char *text, size_t page_bytes, uint64_t *rss_bytes, uint64_t *shared_bytes);
int proc_usage__parse_net(const char *text, uint64_t *received, uint64_t *sent);
/* The number in a line "KEY: NUMBER" or "KEY NUMBER", times 1024 where "kB" follows. */
int proc_usage__parse_value(const char *text, const char *key, uint64_t *out);

#endif
