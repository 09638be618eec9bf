/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a target's thread waits for, as it leaves the CPU: applies include/waits.h to its system
 * call.
 */
#ifndef STEPFLAME_BPF_WAITS_H
#define STEPFLAME_BPF_WAITS_H

#include "bpf/maps.h"

#include "include/waits.h"

/* In task_struct.__state, include/linux/sched.h. */
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED         0x0004
#define TASK_TRACED          0x0008
#define TASK_FROZEN          0x8000 /* from Linux 6.1 on; before that PF_FROZEN in task_struct.flags */

#define PF_FROZEN            0x00010000  /* of a thread of user space; from 6.1 on only kernel threads have this bit */
#define JOBCTL_TRAP_FREEZE   (1UL << 23) /* in the freezer of cgroup version 2, include/linux/sched/jobctl.h */

/*
 * The current system call of a thread; -1: none. In a system call rcx holds the return address,
 * since the `syscall` instruction stores it there.
 */
static __always_inline s32 regs__syscall(const struct pt_regs *user)
{
	return user->cx == user->ip && user->orig_ax < 1024 ? (s32)user->orig_ax : -1;
}

/* The file of a descriptor; NULL: not open. It reads pointers as plain memory, as task_number does. */
static __always_inline struct file *task__file(struct task_struct *task, u32 fd)
{
	const struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL;

	if (table && fd < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	return file;
}

/* The mode of a descriptor's file; 0: not open. */
static __always_inline u32 task__mode(struct task_struct *task, u32 fd)
{
	const struct file *file = task__file(task, fd);

	return file ? BPF_CORE_READ(file, f_inode, i_mode) : 0;
}

/* Does somebody else keep the thread from running: by a stop signal, a debugger or a freezer? */
static __always_inline bool is_paused(struct task_struct *task, u32 state)
{
	return state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN) || task->flags & PF_FROZEN ||
	       task->jobctl & JOBCTL_TRAP_FREEZE;
}

/* syscall__rule, which the verifier follows once, and not for each way to here. */
__weak __noinline u32 call__rule(u32 syscall)
{
	return syscall__rule(syscall);
}

/* Why a thread that is not runnable leaves the CPU. */
static __always_inline u32 cause__of(struct task_struct *task, const struct py_process *py, const struct pt_regs *user,
				     s32 syscall, u32 state)
{
	bool in_iowait = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
	bool on_disk = in_iowait || state & TASK_UNINTERRUPTIBLE;
	u64 args[3] = {user->di, user->si, user->dx};
	u32 rule = call__rule(syscall), mode = 0;

	if (is_paused(task, state))
		return CAUSE_PAUSED;
	if (syscall < 0)
		return cause__without_call(on_disk);
	if (rule == CAUSE_UNKNOWN)
		return in_iowait ? CAUSE_DISK_READ : CAUSE_UNKNOWN;
	if (rule__wants_file(rule))
		mode = task__mode(task, args[0]);
	return rule__cause(rule, args, mode, on_disk, args[0] - py->gil_address < py->gil_bytes);
}

#endif
