/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process has used so far, by its files in /proc: CPU time, page faults, memory, disks, the
 * network of its namespace, pages that it has copied since a fork, and shared memory. The files that the kernel writes without a lock of the process stay
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

/*
 * How many of the pages that a forked process shares with others it has copied since: by a sample of
 * its pages, in /proc/PID/pagemap. Resident memory counts a page before and after; smaps_rollup
 * knows, but goes over all pages: 20 ms of CPU time for 1 GB, where this takes 0.3.
 */
#define SHARED_PAGES_MAX 512

struct shared_pages {
	uint64_t addresses[SHARED_PAGES_MAX]; /* of pages that it shared when they were chosen */
	size_t cnt;
	uint64_t each_bytes; /* for how much of its memory each of them stands */
};

/* Chooses pages, at most so many, which is more than 0. cnt 0: it shares none, or hardly any. 0 or -errno. */
int shared_pages__choose(pid_t pid, size_t most, struct shared_pages *out);
/* How many of them nobody else has any more. 0 or -errno. */
int shared_pages__copied(pid_t pid, const struct shared_pages *pages, size_t *copied);

/* How full the file system is in which processes share memory. */
struct shm_space {
	uint64_t bytes, free_bytes;
};

/* Of /dev/shm, as the process sees it. 0 or -errno; -ETIMEDOUT: the file system does not answer. */
int shm__space(pid_t pid, struct shm_space *out);

#endif
