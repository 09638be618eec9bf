/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel structs that the programs read, with only the fields used; relocated against the running kernel's BTF. */
#ifndef STEPFLAME_KERNEL_H
#define STEPFLAME_KERNEL_H

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

/*
 * Bounds an index to a power of two in a way that no compiler takes apart: clang checks one register and indexes with a
 * copy, whose bounds verifiers before 6.18 do not know.
 */
#define BOUND_INDEX(i, size)                                                  \
	({                                                                    \
		u64 __i = (i);                                                \
		_Static_assert(!((size) & ((size)-1)), "not a power of two"); \
		asm volatile("%0 &= %1" : "+r"(__i) : "i"((size)-1));         \
		__i;                                                          \
	})

/*
 * A load of its own: where two branches load, clang makes it one load by a computed address, which verifiers refuse
 * when the pointers are of different kinds or to a context.
 */
#define LOAD_HERE(place)                          \
	({                                        \
		u64 __value = (place);            \
		asm volatile("" : "+r"(__value)); \
		__value;                          \
	})

/* x86-64's saved registers, arch/x86/include/asm/ptrace.h: the context of a uprobe program. An ABI: not relocated. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

/* The context of a perf_event program, include/uapi/linux/bpf_perf_event.h, whose own header has another struct pt_regs. */
struct bpf_perf_event_data {
	struct pt_regs regs;
	__u64 sample_period;
	__u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Whole, and with the number first, since it is indexed: the size of an array's element is not relocated. */
struct upid {
	int nr;
	void *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
};

struct thread_struct {
	unsigned long fsbase;
};

struct inode {
	unsigned short i_mode;
};

struct file {
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	unsigned int on_cpu; /* an int, from Linux 7 on a byte */
	unsigned in_iowait : 1;
	struct files_struct *files;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct thread_struct thread;
	char comm[16];
};

/* The context of an iterator over tasks, include/linux/bpf.h. */
struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* Where the numbers of a struct pid begin in this kernel. */
#define NUMBERS_OFFSET bpf_core_field_offset(struct pid, numbers)

#endif
