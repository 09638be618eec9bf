/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread blocked in a system call waits for. In: the call, its first arguments, the type of
 * its file, and whether the thread waits for a disk. Out: enum wait_cause. The sampler
 * (bpf/waits.h) asks as the thread leaves the CPU, `dump` (user/proc/task.c) asks from /proc while
 * the thread waits: both get the same answer for the same wait.
 */
#ifndef STEPFLAME_INCLUDE_WAITS_H
#define STEPFLAME_INCLUDE_WAITS_H

#include "include/records.h"

/* How a system call determines the cause. */
enum wait_rule {
	RULE_CAUSE = CAUSE__COUNT, /* values below are causes themselves */
	RULE_READ,                 /* by the type of the file in the first argument */
	RULE_WRITE,                /* likewise */
	RULE_COPY,                 /* likewise, but a wait for a disk counts as a read */
	RULE_FUTEX,                /* the first argument is the address */
	RULE_POLL,       /* the second argument is the number of files; 0: a sleep, as in old versions of time.sleep */
	RULE_SELECT,     /* likewise, with the number in the first argument */
	RULE_META,       /* reads what a file system knows of its files: nothing else can keep the thread */
	RULE_META_WRITE, /* changes it: writes to a disk, or unknown */
	RULE_OPEN, /* the second argument has the flags; a read or a write of the disk, or unknown: a pipe, too, has a name */
	RULE_OPENAT, /* likewise, with the flags in the third argument */
};

/*
 * The calls in which threads block, and others that reports name: X(ID, name, number, rule). The
 * numbers are the x86-64 ABI, arch/x86/entry/syscalls/syscall_64.tbl. A call that is missing here,
 * or is CAUSE_UNKNOWN, waits for a disk when the kernel says so (task_struct.in_iowait), which only
 * the sampler sees.
 */
#define STEPFLAME_SYSCALLS(X)                                       \
	X(READ, read, 0, RULE_READ)                                 \
	X(WRITE, write, 1, RULE_WRITE)                              \
	X(OPEN, open, 2, RULE_OPEN)                                 \
	X(CLOSE, close, 3, RULE_META_WRITE)                         \
	X(STAT, stat, 4, RULE_META)                                 \
	X(LSTAT, lstat, 6, RULE_META)                               \
	X(POLL, poll, 7, RULE_POLL)                                 \
	X(MMAP, mmap, 9, CAUSE_UNKNOWN)                             \
	X(MUNMAP, munmap, 11, CAUSE_UNKNOWN)                        \
	X(IOCTL, ioctl, 16, CAUSE_UNKNOWN)                          \
	X(PREAD64, pread64, 17, RULE_READ)                          \
	X(PWRITE64, pwrite64, 18, RULE_WRITE)                       \
	X(READV, readv, 19, RULE_READ)                              \
	X(WRITEV, writev, 20, RULE_WRITE)                           \
	X(ACCESS, access, 21, RULE_META)                            \
	X(SELECT, select, 23, RULE_SELECT)                          \
	X(MSYNC, msync, 26, CAUSE_FSYNC)                            \
	X(MADVISE, madvise, 28, CAUSE_UNKNOWN)                      \
	X(PAUSE, pause, 34, CAUSE_UNKNOWN)                          \
	X(NANOSLEEP, nanosleep, 35, CAUSE_SLEEP)                    \
	X(SENDFILE, sendfile, 40, RULE_COPY)                        \
	X(CONNECT, connect, 42, CAUSE_SOCKET)                       \
	X(ACCEPT, accept, 43, CAUSE_SOCKET)                         \
	X(SENDTO, sendto, 44, CAUSE_SOCKET)                         \
	X(RECVFROM, recvfrom, 45, CAUSE_SOCKET)                     \
	X(SENDMSG, sendmsg, 46, CAUSE_SOCKET)                       \
	X(RECVMSG, recvmsg, 47, CAUSE_SOCKET)                       \
	X(VFORK, vfork, 58, CAUSE_CHILD_WAIT)                       \
	X(EXIT, exit, 60, CAUSE_UNKNOWN)                            \
	X(WAIT4, wait4, 61, CAUSE_CHILD_WAIT)                       \
	X(FCNTL, fcntl, 72, CAUSE_UNKNOWN)                          \
	X(FLOCK, flock, 73, CAUSE_LOCK)                             \
	X(FSYNC, fsync, 74, CAUSE_FSYNC)                            \
	X(FDATASYNC, fdatasync, 75, CAUSE_FSYNC)                    \
	X(TRUNCATE, truncate, 76, RULE_META_WRITE)                  \
	X(FTRUNCATE, ftruncate, 77, RULE_META_WRITE)                \
	X(RENAME, rename, 82, RULE_META_WRITE)                      \
	X(MKDIR, mkdir, 83, RULE_META_WRITE)                        \
	X(RMDIR, rmdir, 84, RULE_META_WRITE)                        \
	X(LINK, link, 86, RULE_META_WRITE)                          \
	X(UNLINK, unlink, 87, RULE_META_WRITE)                      \
	X(READLINK, readlink, 89, RULE_META)                        \
	X(RT_SIGTIMEDWAIT, rt_sigtimedwait, 128, CAUSE_UNKNOWN)     \
	X(RT_SIGSUSPEND, rt_sigsuspend, 130, CAUSE_UNKNOWN)         \
	X(SYNC, sync, 162, CAUSE_FSYNC)                             \
	X(FUTEX, futex, 202, RULE_FUTEX)                            \
	X(IO_GETEVENTS, io_getevents, 208, CAUSE_POLL)              \
	X(GETDENTS64, getdents64, 217, RULE_META)                   \
	X(CLOCK_NANOSLEEP, clock_nanosleep, 230, CAUSE_SLEEP)       \
	X(EXIT_GROUP, exit_group, 231, CAUSE_UNKNOWN)               \
	X(EPOLL_WAIT, epoll_wait, 232, CAUSE_POLL)                  \
	X(WAITID, waitid, 247, CAUSE_CHILD_WAIT)                    \
	X(OPENAT, openat, 257, RULE_OPENAT)                         \
	X(MKDIRAT, mkdirat, 258, RULE_META_WRITE)                   \
	X(NEWFSTATAT, newfstatat, 262, RULE_META)                   \
	X(UNLINKAT, unlinkat, 263, RULE_META_WRITE)                 \
	X(RENAMEAT, renameat, 264, RULE_META_WRITE)                 \
	X(LINKAT, linkat, 265, RULE_META_WRITE)                     \
	X(READLINKAT, readlinkat, 267, RULE_META)                   \
	X(FACCESSAT, faccessat, 269, RULE_META)                     \
	X(PSELECT6, pselect6, 270, RULE_SELECT)                     \
	X(PPOLL, ppoll, 271, RULE_POLL)                             \
	X(SPLICE, splice, 275, RULE_COPY)                           \
	X(TEE, tee, 276, RULE_COPY)                                 \
	X(SYNC_FILE_RANGE, sync_file_range, 277, CAUSE_FSYNC)       \
	X(VMSPLICE, vmsplice, 278, RULE_COPY)                       \
	X(EPOLL_PWAIT, epoll_pwait, 281, CAUSE_POLL)                \
	X(FALLOCATE, fallocate, 285, RULE_META_WRITE)               \
	X(ACCEPT4, accept4, 288, CAUSE_SOCKET)                      \
	X(PREADV, preadv, 295, RULE_READ)                           \
	X(PWRITEV, pwritev, 296, RULE_WRITE)                        \
	X(RECVMMSG, recvmmsg, 299, CAUSE_SOCKET)                    \
	X(SYNCFS, syncfs, 306, CAUSE_FSYNC)                         \
	X(SENDMMSG, sendmmsg, 307, CAUSE_SOCKET)                    \
	X(PROCESS_VM_READV, process_vm_readv, 310, CAUSE_UNKNOWN)   \
	X(PROCESS_VM_WRITEV, process_vm_writev, 311, CAUSE_UNKNOWN) \
	X(RENAMEAT2, renameat2, 316, RULE_META_WRITE)               \
	X(COPY_FILE_RANGE, copy_file_range, 326, RULE_COPY)         \
	X(PREADV2, preadv2, 327, RULE_READ)                         \
	X(PWRITEV2, pwritev2, 328, RULE_WRITE)                      \
	X(STATX, statx, 332, RULE_META)                             \
	X(IO_PGETEVENTS, io_pgetevents, 333, CAUSE_POLL)            \
	X(IO_URING_ENTER, io_uring_enter, 426, CAUSE_POLL)          \
	X(FACCESSAT2, faccessat2, 439, RULE_META)                   \
	X(EPOLL_PWAIT2, epoll_pwait2, 441, CAUSE_POLL)

enum syscall {
#define X(id, name, number, rule) SYS_##id = number,
	STEPFLAME_SYSCALLS(X)
#undef X
};

static inline __u32 syscall__rule(__u32 number)
{
	switch (number) {
#define X(id, name, number, rule) \
	case number:              \
		return rule;
		STEPFLAME_SYSCALLS(X)
#undef X
	}
	return CAUSE_UNKNOWN;
}

/* File types, as in st_mode. */
#define MODE_TYPE   0170000
#define MODE_FIFO   0010000
#define MODE_BLOCK  0060000
#define MODE_FILE   0100000
#define MODE_SOCKET 0140000

/* Does rule__cause need the mode of the file in the first argument? */
static inline _Bool rule__wants_file(__u32 rule)
{
	return rule == RULE_READ || rule == RULE_WRITE || rule == RULE_COPY;
}

static inline __u32 rule__of_file(__u32 rule, __u32 mode)
{
	switch (mode & MODE_TYPE) {
	case MODE_FIFO:
		return CAUSE_PIPE;
	case MODE_SOCKET:
		return CAUSE_SOCKET;
	case MODE_FILE:
	case MODE_BLOCK:
		return rule == RULE_READ ? CAUSE_DISK_READ : rule == RULE_WRITE ? CAUSE_DISK_WRITE : CAUSE_UNKNOWN;
	}
	return CAUSE_UNKNOWN; /* a terminal, an eventfd */
}

/* A file that is made or cut may have to wait until what it held, or holds first, is written. */
#define OPEN_WRITES (00000100 | 00001000) /* O_CREAT, O_TRUNC */

static inline __u32 rule__of_open(__u64 flags, _Bool on_disk)
{
	return !on_disk ? CAUSE_UNKNOWN : flags & OPEN_WRITES ? CAUSE_DISK_WRITE : CAUSE_DISK_READ;
}

/*
 * What a thread waits for that is in no system call: memory, if that cannot be interrupted; a
 * signal, a tracer or user space that serves its page faults else.
 */
static inline __u32 cause__without_call(_Bool on_disk)
{
	return on_disk ? CAUSE_PAGE_FAULT : CAUSE_UNKNOWN;
}

/*
 * mode: of the file in the first argument, 0: unknown. on_disk: the thread is in uninterruptible
 * sleep, or the kernel counts it as waiting for a disk. in_gil: the futex address lies in the GIL.
 */
static inline __u32 rule__cause(__u32 rule, const __u64 args[3], __u32 mode, _Bool on_disk, _Bool in_gil)
{
	switch (rule) {
	case RULE_COPY:
		return on_disk ? CAUSE_DISK_READ : rule__of_file(rule, mode);
	case RULE_READ:
	case RULE_WRITE:
		return rule__of_file(rule, mode);
	case RULE_FUTEX:
		return in_gil ? CAUSE_GIL : CAUSE_LOCK;
	case RULE_POLL:
		return args[1] ? CAUSE_POLL : CAUSE_SLEEP;
	case RULE_SELECT:
		return args[0] ? CAUSE_POLL : CAUSE_SLEEP;
	case RULE_META:
		return CAUSE_DISK_READ;
	case RULE_META_WRITE:
		return on_disk ? CAUSE_DISK_WRITE : CAUSE_UNKNOWN;
	case RULE_OPEN:
		return rule__of_open(args[1], on_disk);
	case RULE_OPENAT:
		return rule__of_open(args[2], on_disk);
	}
	return rule;
}

#endif
