/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a target's thread waits for, as it leaves the CPU: applies include/waits.h to its system
 * call.
 */
#ifndef STEPFLAME_BPF_WAITS_H
#define STEPFLAME_BPF_WAITS_H

#include "bpf/maps.h"

#include "include/waits.h"

#define TASK_UNINTERRUPTIBLE 2 /* in task_struct.__state */

/*
 * The current system call of a thread; -1: none. In a system call rcx holds the return address,
 * since the `syscall` instruction stores it there.
 */
static __always_inline s32 regs__syscall(const struct pt_regs *user)
{
	return user->cx == user->ip && user->orig_ax < 1024 ? (s32)user->orig_ax : -1;
}

/* The file of a descriptor; NULL: not open. */
static __always_inline struct file *task__file(struct task_struct *task, u32 fd)
{
	struct fdtable *table = task->files ? task->files->fdt : NULL;
	struct file *file = NULL;

	if (table && fd < table->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), &table->fd[fd]);
	return file;
}

/* The mode of a descriptor's file; 0: not open. */
static __always_inline u32 task__mode(struct task_struct *task, u32 fd)
{
	const struct file *file = task__file(task, fd);

	return file ? BPF_CORE_READ(file, f_inode, i_mode) : 0;
}

/* Why a thread that is not runnable leaves the CPU. */
static __always_inline u32 cause__of(struct task_struct *task, const struct py_process *py, const struct pt_regs *user,
				     s32 syscall, u32 state)
{
	bool in_iowait = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
	u64 arg0 = user->di, arg1 = user->si;
	u32 rule = syscall__rule(syscall), mode = 0;

	if (syscall < 0)
		return CAUSE_PAGE_FAULT;
	if (rule == CAUSE_UNKNOWN)
		return in_iowait ? CAUSE_DISK_READ : CAUSE_UNKNOWN;
	if (rule__wants_file(rule))
		mode = task__mode(task, arg0);
	return rule__cause(rule, arg0, arg1, mode, in_iowait || state & TASK_UNINTERRUPTIBLE,
			   arg0 - py->gil_address < py->gil_bytes);
}

#endif
