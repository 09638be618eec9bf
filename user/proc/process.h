/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A live process as /proc describes it. Only reads, and never stops the target. What is read is
 * hostile input.
 */
#ifndef STEPFLAME_USER_PROC_PROCESS_H
#define STEPFLAME_USER_PROC_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct elf;
struct stat;

/* By which the content of a file is another one. */
struct file_content {
	uint64_t bytes, changed_ns; /* changed_ns: CLOCK_REALTIME */
};

/* A file mapped executable in the process, one per file. */
struct mapped_file {
	char path[PATH_MAX]; /* as the process names it, without " (deleted)" */
	/*
	 * A path at which the file was: /proc/PID/root/..., or /proc/PID/map_files/... when the
	 * former is another file; "" if neither works. It may be another file by now:
	 * mapped_file__open.
	 */
	char open_path[PATH_MAX];
	uint64_t dev, inode; /* as maps says: the device may differ from that of stat(2) */
	pid_t pid;           /* maps it, */
	uint64_t start, end; /* first here */
	struct mapped_code {
		uint64_t start, end, offset;
	} code; /* its first run of executable mappings */
	/*
	 * Address less file offset of the lowest mapping of the loaded image; other mappings of the
	 * same file do not count.
	 */
	uint64_t base;
	struct file_content content; /* as it was then; 0: not known */
	bool is_program;             /* it is what the process has executed */
};

/* A line of /proc/PID/maps. */
struct mapping {
	uint64_t start, end, offset, dev, inode; /* inode 0: no file */
	bool writable, executable, shared;
	const char *name; /* as in maps: newlines as \012, " (deleted)" at the end; valid until its reader returns */
};

struct process {
	pid_t pid;           /* in our namespace */
	pid_t nspid;         /* in its own namespace (last field of NSpid) */
	pid_t parent;        /* 0 if unknown */
	uid_t uid;           /* the real one */
	uint64_t start_time; /* field 22 of stat, to recognise a reused pid */
	char comm[16];
	char command[4096]; /* command line, arguments joined by spaces, bytes as they came, cut if longer */
	size_t file_cnt;
	struct mapped_file *files; /* owned */
};

/*
 * Reads /proc/PID. 0 or -errno: -ESRCH no such process (or a zombie, or a kernel thread), -EACCES
 * or -EPERM no permission to read it, -ETIMEDOUT it does not answer, -E2BIG it maps more files than
 * any training job. pid may be a thread id: this reads the thread group's process and sets its pid.
 * Release with process__release.
 */
int process__read(pid_t pid, struct process *out);
void process__release(struct process *p);          /* accepts a zeroed struct */
uint64_t process__age_ns(const struct process *p); /* since its fork */
bool process__alive(const struct process *p);      /* same pid, same start time, not a zombie */

/*
 * Writes what an error of reading a process means, in the same words for all commands; returns the
 * remedy, or NULL.
 */
const char *process__explain(int err, pid_t pid, char *why, size_t size);

/* The first mapped file whose base name begins with `prefix` (e.g. "libtorch_cpu.so"), or NULL. */
const struct mapped_file *process__file(const struct process *p, const char *prefix);
/*
 * Calls fn for each mapping, ascending, until fn returns nonzero, and returns that. 0 or -errno
 * (-ESRCH: gone).
 */
int process__each_mapping(pid_t pid, int (*fn)(const struct mapping *map, void *ctx), void *ctx);
/* Path and open_path of the file of that mapping, as above; base is 0. */
void mapped_file__locate(struct mapped_file *file, pid_t pid, const struct mapping *map);
/*
 * Opens the mapped file for reading: the very inode, whatever lies at its path by now. The caller
 * closes the descriptor. -ESTALE: the file that can be opened is not the one that was mapped;
 * -ENOEXEC: not a regular file; or -errno. Never opens a device.
 */
int mapped_file__open(const struct mapped_file *file);
struct file_content file_content__of(const struct stat *st);
static inline bool file_content__same(const struct file_content *a, const struct file_content *b)
{
	return a->bytes == b->bytes && a->changed_ns == b->changed_ns;
}
/* elf__new_fd of that descriptor. */
int mapped_file__elf(const struct mapped_file *file, struct elf **out);
/*
 * What an error of a mapped file means, and the remedy: -ESTALE, -EFBIG (elf__error), -EBADMSG: the
 * code in memory is not that of the file. NULL: another error.
 */
const char *mapped_file__explain(int err, const char **fix);
/*
 * The path of its cgroup, "/" for the root; where it is in several hierarchies, the longest. Returns
 * 0 or -errno.
 */
int process__cgroup(pid_t pid, char *path, size_t size);
/*
 * process_vm_readv of exactly `size` bytes, at most DEPUTY_OUT_BYTES. 0 or -errno: -EFAULT unmapped,
 * -ETIMEDOUT no answer.
 */
int process__read_memory(pid_t pid, uint64_t address, void *buffer, size_t size);
/*
 * Children (processes that live, recursively when `deep`), pids malloc'ed into *out. Count, or
 * -errno. Where the kernel lists children, no other process is looked at.
 */
int process__children(pid_t pid, bool deep, pid_t **out);
/* The same by a look at every process of the host. */
int process__scan_children(pid_t pid, bool deep, pid_t **out);
/* All processes. Count, or -errno. */
int process__list(pid_t **out);

#endif
