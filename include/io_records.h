/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records of system calls, files and pipes: as in records.h. */
#ifndef STEPFLAME_INCLUDE_IO_RECORDS_H
#define STEPFLAME_INCLUDE_IO_RECORDS_H

#include "include/records.h"

#define SYSCALL_NUMBERS 1024 /* BPF distinguishes the numbers below this */
#define SYSCALL_UNKNOWN 0xffffffffu
#define SYSCALL_ERRORS  4096 /* results above -SYSCALL_ERRORS are errors; linux/err.h */

struct syscall_key {
	__u32 pid;
	__u32 number; /* or SYSCALL_UNKNOWN */
};

/* Calls that began and returned in the window. */
struct syscall_val {
	__u64 calls;
	__u64 errors; /* calls that returned an error */
	__u64 total_ns;
	__u64 bytes;      /* read, written, sent or received; 0 for calls that do not return bytes */
	__u64 unfinished; /* threads inside the call as the window closes; not in `calls` */
};

struct rec_syscall {
	struct rec_hdr hdr;
	struct syscall_key key;
	struct syscall_val val;
};

struct file_key {
	__u32 pid;
	__u32 dev; /* of the file system: major << 20 | minor */
	__u64 inode;
};

enum file_flag {
	FILE_DIRECTORY = 1,     /* too many files: this row sums those of a directory */
	FILE_MOUNT_UNKNOWN = 2, /* the path starts at the root of its file system */
	FILE_DISK = 4,          /* the disk of the key's device itself: metadata of its file system */
};

/*
 * Calls that take a descriptor: read, write and their variants; sendfile and copy_file_range count
 * as reads of their source. Bytes from disk are those that a read or a page fault brings into the
 * page cache, with the kernel's readahead, or that bypass the cache (O_DIRECT).
 */
struct file_val {
	__u64 name; /* REC_NAME id of the path that the process saw at its first use of the file; 0: unknown */
	__u64 reads, writes;
	__u64 read_bytes, written_bytes;
	__u64 total_ns;   /* in reads and writes */
	__u64 disk_reads; /* reads that went to the disk */
	__u64 faults;     /* page faults of mapped files that went to the disk */
	__u64 disk_bytes;
	__u64 last_ns;    /* time of the last use */
	__u32 flags, pad; /* flags: enum file_flag */
};

struct rec_file {
	struct rec_hdr hdr;
	struct file_key key;
	struct file_val val;
};

/*
 * Calls of read and write. Each DataLoader iterator has its own pipe, which only its workers write.
 * A message is a read of 4 bytes: Python's multiprocessing reads the length before the data. The
 * time between two messages of a pipe is active time, unless the process read several messages in a
 * row from another pipe meanwhile.
 */
struct pipe_val {
	__u64 writes, messages;
	__u64 first_ns, last_ns; /* first message, 0: none; last message or write */
	__u64 active_ns;
	__u64 active_cnt; /* messages that end a stretch of active time */
	__u64 rows;       /* proc_io.pipe_rows at the last message; only for BPF */
};

struct rec_pipe {
	struct rec_hdr hdr;
	struct file_key key;
	struct pipe_val val;
};

#endif
