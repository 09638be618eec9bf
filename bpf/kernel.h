/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel structs that the programs read, with only the fields used; relocated against the
 * running kernel's BTF.
 */
#ifndef STEPFLAME_BPF_KERNEL_H
#define STEPFLAME_BPF_KERNEL_H

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
 * Bounds an index to a power of two in a way that the compiler does not take apart: otherwise clang
 * checks one register and indexes with a copy, whose bounds verifiers before 6.18 do not know.
 */
#define BOUND_INDEX(i, size)                                                  \
	({                                                                    \
		u64 __i = (i);                                                \
		_Static_assert(!((size) & ((size)-1)), "not a power of two"); \
		asm volatile("%0 &= %1" : "+r"(__i) : "i"((size)-1));         \
		__i;                                                          \
	})

/*
 * Keeps a load separate. Where two branches load, clang makes one load from a computed address,
 * which verifiers refuse when the pointers have different types or point to a context.
 */
#define LOAD_HERE(place)                          \
	({                                        \
		u64 __value = (place);            \
		asm volatile("" : "+r"(__value)); \
		__value;                          \
	})

/*
 * x86-64's saved registers, arch/x86/include/asm/ptrace.h: the context of a uprobe program. An ABI:
 * not relocated.
 */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

/*
 * The context of a perf_event program, include/uapi/linux/bpf_perf_event.h, whose own header has
 * another struct pt_regs.
 */
struct bpf_perf_event_data {
	struct pt_regs regs;
	__u64 sample_period;
	__u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/*
 * Complete, with `nr` first, since BPF indexes an array of it: CO-RE does not relocate the size of
 * an element.
 */
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

struct super_block {
	u32 s_dev;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_rdev;
	struct hlist_head i_dentry;
};

struct qstr {
	u32 len;
	const unsigned char *name;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct hlist_node d_alias; /* from Linux 7 on */
};

struct dentry___before_7 {
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct fs_struct {
	struct path root;
};

struct file {
	struct inode *f_inode;
	unsigned int f_flags;
	struct path f_path;
};

struct address_space {
	struct inode *host;
};

struct folio {
	struct address_space *mapping;
	unsigned int _nr_pages; /* from Linux 6.15 on */
};

struct folio___before_6_15 {
	unsigned int _folio_nr_pages;
};

enum pageflags { PG_head = 6 };

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct sched_entity {
	u64 sum_exec_runtime;
	u64 prev_sum_exec_runtime; /* when it last came to a CPU */
};

typedef struct {
	unsigned int val;
} kuid_t;

struct cred {
	kuid_t euid;
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	unsigned int flags;
	unsigned int on_cpu; /* an int, from Linux 7 on a byte */
	struct sched_entity se;
	unsigned int __state;
	unsigned long jobctl;
	unsigned in_iowait : 1;
	struct files_struct *files;
	struct fs_struct *fs;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	const struct cred *cred;
	struct thread_struct thread;
	char comm[16];
};

/* The context of an iterator over tasks, include/linux/bpf.h. */
struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* Offset of the numbers in this kernel's struct pid. */
#define NUMBERS_OFFSET bpf_core_field_offset(struct pid, numbers)
/* Offset in struct mount of the part that other structs point to. */
#define MOUNT_OFFSET bpf_core_field_offset(struct mount, mnt)
/* Offset in struct dentry of the node by which an inode's list of links holds it. */
#define ALIAS_OFFSET                                                                                   \
	(bpf_core_field_exists(struct dentry, d_alias) ? bpf_core_field_offset(struct dentry, d_alias) \
						       : bpf_core_field_offset(struct dentry___before_7, d_u.d_alias))

/* The number of pages of a folio. */
static __always_inline u64 folio__pages(const struct folio *folio)
{
	const struct folio___before_6_15 *before = (const void *)folio;
	u64 flags;

	bpf_probe_read_kernel(&flags, sizeof(flags), folio); /* the flags are its first word in every kernel */
	if (!(flags & 1ULL << bpf_core_enum_value(enum pageflags, PG_head)))
		return 1;
	if (bpf_core_field_exists(folio->_nr_pages))
		return BPF_CORE_READ(folio, _nr_pages);
	return BPF_CORE_READ(before, _folio_nr_pages);
}

#endif
