/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a thread of the target waits for, as it leaves the CPU: from its system call and the file that that is on. */
#ifndef STEPFLAME_WAITS_H
#define STEPFLAME_WAITS_H

#include "maps.h"

/* System calls of x86-64, arch/x86/entry/syscalls/syscall_64.tbl. An ABI. */
enum syscall {
	SYS_READ = 0,
	SYS_WRITE = 1,
	SYS_POLL = 7,
	SYS_PREAD64 = 17,
	SYS_PWRITE64 = 18,
	SYS_READV = 19,
	SYS_WRITEV = 20,
	SYS_SELECT = 23,
	SYS_MSYNC = 26,
	SYS_NANOSLEEP = 35,
	SYS_SENDFILE = 40,
	SYS_CONNECT = 42,
	SYS_SENDTO = 44,
	SYS_ACCEPT = 43,
	SYS_RECVMSG = 47, /* and sendto, recvfrom, sendmsg before it */
	SYS_WAIT4 = 61,
	SYS_FSYNC = 74,
	SYS_FDATASYNC = 75,
	SYS_SYNC = 162,
	SYS_FUTEX = 202,
	SYS_CLOCK_NANOSLEEP = 230,
	SYS_EPOLL_WAIT = 232,
	SYS_WAITID = 247,
	SYS_PSELECT6 = 270,
	SYS_PPOLL = 271,
	SYS_SPLICE = 275,
	SYS_TEE = 276,
	SYS_SYNC_FILE_RANGE = 277,
	SYS_VMSPLICE = 278,
	SYS_EPOLL_PWAIT = 281,
	SYS_ACCEPT4 = 288,
	SYS_PREADV = 295,
	SYS_PWRITEV = 296,
	SYS_RECVMMSG = 299,
	SYS_SYNCFS = 306,
	SYS_SENDMMSG = 307,
	SYS_PROCESS_VM_READV = 310,
	SYS_PROCESS_VM_WRITEV = 311,
	SYS_COPY_FILE_RANGE = 326,
	SYS_PREADV2 = 327,
	SYS_PWRITEV2 = 328,
	SYS_EPOLL_PWAIT2 = 441,
};

#define MODE_TYPE   0170000
#define MODE_FIFO   0010000
#define MODE_BLOCK  0060000
#define MODE_FILE   0100000
#define MODE_SOCKET 0140000

/* The system call that a thread is in, -1 for none: it returns behind `syscall`, which leaves that address in rcx. */
static __always_inline s32 task__syscall(const struct pt_regs *user)
{
	return user->cx == user->ip && user->orig_ax < 1024 ? (s32)user->orig_ax : -1;
}

/* What a descriptor stands for; NULL: nothing. */
static __always_inline struct file *task__file(struct task_struct *task, u32 fd)
{
	struct fdtable *table = task->files ? task->files->fdt : NULL;
	struct file *file = NULL;

	if (table && fd < table->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), &table->fd[fd]);
	return file;
}

/* What a call on an open file waits for. */
static __always_inline u32 cause__of_file(struct task_struct *task, u32 fd, u32 regular)
{
	const struct file *file = task__file(task, fd);

	switch (file ? BPF_CORE_READ(file, f_inode, i_mode) & MODE_TYPE : 0) {
	case MODE_FIFO:
		return CAUSE_PIPE;
	case MODE_SOCKET:
		return CAUSE_SOCKET;
	case MODE_FILE:
	case MODE_BLOCK:
		return regular;
	}
	return CAUSE_UNKNOWN; /* a terminal, an eventfd */
}

static __always_inline u32 cause__of_futex(const struct py_process *py, u64 address)
{
	return address - py->gil_address < py->gil_bytes ? CAUSE_GIL : CAUSE_LOCK;
}

/* Why the current thread leaves the CPU, when it does not run on. */
static __always_inline u32 cause__of(struct task_struct *task, const struct py_process *py, const struct pt_regs *user,
				     s32 syscall)
{
	switch (syscall) {
	case -1:
		return CAUSE_PAGE_FAULT;
	case SYS_FUTEX:
		return cause__of_futex(py, user->di);
	case SYS_READ:
	case SYS_PREAD64:
	case SYS_READV:
	case SYS_PREADV:
	case SYS_PREADV2:
		return cause__of_file(task, user->di, CAUSE_DISK_READ);
	case SYS_WRITE:
	case SYS_PWRITE64:
	case SYS_WRITEV:
	case SYS_PWRITEV:
	case SYS_PWRITEV2:
		return cause__of_file(task, user->di, CAUSE_DISK_WRITE);
	case SYS_CONNECT ... SYS_RECVMSG:
	case SYS_ACCEPT4:
	case SYS_RECVMMSG:
	case SYS_SENDMMSG:
		return CAUSE_SOCKET;
	case SYS_POLL:
	case SYS_PPOLL:
		return user->si ? CAUSE_POLL : CAUSE_SLEEP; /* of no files: time.sleep of old */
	case SYS_SELECT:
	case SYS_PSELECT6:
		return user->di ? CAUSE_POLL : CAUSE_SLEEP;
	case SYS_EPOLL_WAIT:
	case SYS_EPOLL_PWAIT:
	case SYS_EPOLL_PWAIT2:
		return CAUSE_POLL;
	case SYS_NANOSLEEP:
	case SYS_CLOCK_NANOSLEEP:
		return CAUSE_SLEEP;
	case SYS_WAIT4:
	case SYS_WAITID:
		return CAUSE_CHILD_WAIT;
	case SYS_MSYNC:
	case SYS_FSYNC:
	case SYS_FDATASYNC:
	case SYS_SYNC:
	case SYS_SYNC_FILE_RANGE:
	case SYS_SYNCFS:
		return CAUSE_FSYNC;
	}
	return BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait) ? CAUSE_DISK_READ : CAUSE_UNKNOWN;
}

#endif
