/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Files: finds the file of a system call or a page fault, and counts what each process reads from
 * it and writes to it, in a map that user space reads.
 */
#ifndef STEPFLAME_BPF_FILES_H
#define STEPFLAME_BPF_FILES_H

#include "bpf/file_path.h"
#include "bpf/waits.h"

#define FILE_ROWS     65536
#define FILE_ROWS_ALL (FILE_ROWS - 2048) /* beyond that, files share the row of their directory */
#define FILE_ROWS_OWN 32768              /* and beyond that, those of one process */
#define DIRECTORIES   1024               /* rows of a process beyond those */
#define FILE_O_DIRECT 040000             /* include/uapi/asm-generic/fcntl.h: bypasses the page cache */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FILE_ROWS);
	__type(key, struct file_key);
	__type(value, struct file_val);
} file_rows __weak SEC(".maps");

__u64 file_row_cnt __weak = 0; /* rows; user space subtracts those that it deletes */

/* The file of a system call in progress: its kernel addresses and its key. */
struct file_at {
	u64 dentry, mnt;
	u32 direct;
	u32 pad;
	struct file_key key;
};

/* What a system call does with its file. */
enum transfer {
	TRANSFER_NONE,
	TRANSFER_OTHER, /* no file to count, but the call returns a number of bytes */
	TRANSFER_SYNC,  /* no bytes, but the call writes its file to the disk */
	TRANSFER_READ,
	TRANSFER_WRITE,
};

/* What a call does with its file. *fd: the descriptor that it reads, writes or syncs. */
static __always_inline u32 transfer__of(u32 number, const struct pt_regs *regs, u32 *fd)
{
	*fd = regs->di;
	switch (number) {
	case SYS_READ:
	case SYS_PREAD64:
	case SYS_READV:
	case SYS_PREADV:
	case SYS_PREADV2:
	case SYS_COPY_FILE_RANGE:
		return TRANSFER_READ;
	case SYS_SENDFILE:
		*fd = regs->si;
		return TRANSFER_READ;
	case SYS_WRITE:
	case SYS_PWRITE64:
	case SYS_WRITEV:
	case SYS_PWRITEV:
	case SYS_PWRITEV2:
		return TRANSFER_WRITE;
	case SYS_FSYNC:
	case SYS_FDATASYNC:
	case SYS_SYNC_FILE_RANGE:
	case SYS_SYNCFS:
		return TRANSFER_SYNC;
	case SYS_SENDTO ... SYS_RECVMSG:
	case SYS_SPLICE ... SYS_TEE:
	case SYS_VMSPLICE:
	case SYS_PROCESS_VM_READV ... SYS_PROCESS_VM_WRITEV:
		return TRANSFER_OTHER;
	}
	return TRANSFER_NONE;
}

/* A thread's system call in progress, and its last page fault that brought in a page. */
struct syscall_thread {
	u64 since_ns; /* 0: no call in progress */
	u32 number;
	u8 transfer; /* enum transfer */
	u8 on_file;  /* the call transfers or syncs `file` */
	u8 copies;   /* the call copies `file` to another one */
	u8 turn;     /* counts calls: BPF times its programs at one in HITS_PER_SAMPLE */
	u8 on_pipe;  /* the call reads or writes the pipe of file.key */
	struct file_at file;
	u64 disk_bytes; /* brought into the page cache during the call */
	u64 enter_ns;   /* what the program at its entry took; 0: not timed */
	u64 fault_file; /* name id of the file that was mapped at the fault */
	u64 fault_regs; /* see regs__hash */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct syscall_thread);
} syscall_threads __weak SEC(".maps");

/* What one call, or one page that was brought in, adds to a row. */
struct file_add {
	u64 now, ns;
	u64 read_bytes, written_bytes, disk_bytes;
	u32 reads, writes, disk_reads, faults;
};

static __always_inline bool key__of_inode(struct file_key *key, const struct inode *inode, u32 pid)
{
	u32 type = BPF_CORE_READ(inode, i_mode) & MODE_TYPE;

	if (type != MODE_FILE && type != MODE_BLOCK)
		return false;
	key->pid = pid;
	key->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	key->inode = BPF_CORE_READ(inode, i_ino);
	return true;
}

/*
 * The key of the file that a page belongs to; false: neither a file nor a disk. The inode of a disk
 * itself is in no directory; the number of the disk identifies it.
 */
static __always_inline bool key__of_page(struct file_key *key, const struct inode *inode, u32 pid)
{
	if (!key__of_inode(key, inode, pid))
		return false;
	if ((BPF_CORE_READ(inode, i_mode) & MODE_TYPE) == MODE_BLOCK) {
		key->dev = BPF_CORE_READ(inode, i_rdev);
		key->inode = 0;
	}
	return true;
}

/* Fills in an open file. False: it is neither a regular file nor a disk. */
static __always_inline bool file__at(struct file_at *at, const struct file *file, u32 pid)
{
	if (!key__of_inode(&at->key, BPF_CORE_READ(file, f_inode), pid))
		return false;
	at->dentry = (u64)BPF_CORE_READ(file, f_path.dentry);
	at->mnt = (u64)BPF_CORE_READ(file, f_path.mnt);
	at->direct = !!(BPF_CORE_READ(file, f_flags) & FILE_O_DIRECT);
	return true;
}

/* The dentry of one of an inode's links, whichever comes first; 0: none. */
static __always_inline u64 inode__dentry(const struct inode *inode)
{
	u64 link = (u64)BPF_CORE_READ(inode, i_dentry.first);

	return link ? link - ALIAS_OFFSET : 0;
}

/*
 * The mount of an inode for which there is no open file; 0: unknown. It is known if the inode is in
 * the file system of the process's root.
 */
static __always_inline u64 inode__mount(const struct inode *inode, struct task_struct *task)
{
	const struct vfsmount *mnt = BPF_CORE_READ(task, fs, root.mnt);

	return BPF_CORE_READ(mnt, mnt_sb) == BPF_CORE_READ(inode, i_sb) ? (u64)mnt : 0;
}

/* Creates a row with this key, without a name. NULL: no room. */
static __always_inline struct file_val *file_row__new(const struct file_key *key, u64 mnt, struct proc *proc)
{
	struct file_val empty = {.flags = mnt ? 0 : key->inode ? FILE_MOUNT_UNKNOWN : FILE_DISK};

	if (!bpf_map_update_elem(&file_rows, key, &empty, BPF_NOEXIST)) {
		__sync_fetch_and_add(&file_row_cnt, 1);
		__sync_fetch_and_add(&proc->room.files, 1);
	}
	return bpf_map_lookup_elem(&file_rows, key);
}

/*
 * Creates the row of a file or, when there are many, of its directory: `key` then becomes the key
 * of that row. NULL: no room.
 */
static __always_inline struct file_val *file_row__more(struct file_key *key, u64 *dentry, u64 mnt)
{
	const struct dentry *leaf = (const void *)*dentry;
	u32 pid = key->pid;
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct file_val *row;

	if (!proc)
		return NULL;
	if (file_row_cnt < FILE_ROWS_ALL && proc->room.files < FILE_ROWS_OWN)
		return file_row__new(key, mnt, proc);
	leaf = BPF_CORE_READ(leaf, d_parent);
	*dentry = (u64)leaf;
	key->inode = BPF_CORE_READ(leaf, d_inode, i_ino);
	row = bpf_map_lookup_elem(&file_rows, key);
	if (!row && proc->room.files < FILE_ROWS_OWN + DIRECTORIES)
		row = file_row__new(key, mnt, proc);
	if (row)
		row->flags |= FILE_DIRECTORY;
	return row;
}

/*
 * The row of a file, created if it does not exist. When there are many rows, files share the row of
 * their directory, and `key` becomes the key of that row. NULL (counted): no room.
 */
static __always_inline struct file_val *file_row__of(struct file_key *key, u64 dentry, u64 mnt)
{
	struct file_val *row = bpf_map_lookup_elem(&file_rows, key);

	if (!row)
		row = file_row__more(key, &dentry, mnt);
	if (row && !row->name) /* the row is new, or the ring buffer was full */
		row->name = file_path__send(dentry, mnt);
	if (!row)
		count(CNT_FILES_LOST);
	return row;
}

/* The file's name id; 0: unknown. Creates its row at its first use. */
static __always_inline u64 file__name(struct file_key *key, u64 dentry, u64 mnt)
{
	struct file_val *row = file_row__of(key, dentry, mnt);

	return row ? row->name : 0;
}

/* Adds to the row of a file. Returns the file's name id; 0: unknown. */
static __always_inline u64 file__add(struct file_key *key, u64 dentry, u64 mnt, const struct file_add *add)
{
	struct file_val *row = file_row__of(key, dentry, mnt);

	if (!row)
		return 0;
	row->last_ns = add->now;
	if (add->reads) {
		__sync_fetch_and_add(&row->reads, 1);
		__sync_fetch_and_add(&row->read_bytes, add->read_bytes);
	}
	if (add->writes) {
		__sync_fetch_and_add(&row->writes, 1);
		__sync_fetch_and_add(&row->written_bytes, add->written_bytes);
	}
	if (add->disk_bytes) {
		__sync_fetch_and_add(&row->disk_reads, add->disk_reads);
		__sync_fetch_and_add(&row->faults, add->faults);
		__sync_fetch_and_add(&row->disk_bytes, add->disk_bytes);
	}
	__sync_fetch_and_add(&row->total_ns, add->ns);
	return row->name;
}

/*
 * Hash of the registers with which the current thread entered the kernel. Page faults with equal
 * registers are one fault: the same instruction with the same operands. By the time the thread
 * waits, the kernel's own note of where the fault was is gone.
 */
static __always_inline u64 regs__hash(struct task_struct *task)
{
	const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
	u64 hash = name_hash__seed(0, 0);

	hash = name_hash__add(name_hash__add(hash, regs->ip), regs->sp);
	hash = name_hash__add(name_hash__add(hash, regs->ax), regs->bx);
	hash = name_hash__add(name_hash__add(hash, regs->cx), regs->dx);
	hash = name_hash__add(name_hash__add(hash, regs->si), regs->di);
	hash = name_hash__add(name_hash__add(hash, regs->bp), regs->r8);
	hash = name_hash__add(name_hash__add(hash, regs->r9), regs->r10);
	hash = name_hash__add(name_hash__add(hash, regs->r11), regs->r12);
	hash = name_hash__add(name_hash__add(hash, regs->r13), regs->r14);
	return name_hash__end(name_hash__add(hash, regs->r15));
}

static __always_inline s32 task__call_number(struct task_struct *task)
{
	return regs__syscall((const struct pt_regs *)bpf_task_pt_regs(task));
}

/* The file that the system call of the current thread transfers or syncs. False: none. */
static __always_inline bool syscall__file(struct task_struct *task, struct file_at *at)
{
	const struct pt_regs *user = (const struct pt_regs *)bpf_task_pt_regs(task);
	const struct file *file;
	u32 fd;

	if (transfer__of(regs__syscall(user), user, &fd) < TRANSFER_SYNC)
		return false;
	file = task__file(task, fd);
	return file && file__at(at, file, task_pid(task));
}

/*
 * Name id of the file that the current thread waits for in a system call; 0: none, or unknown.
 * Creates the file's row at its first use.
 */
static __always_inline u64 syscall__file_name(struct task_struct *task)
{
	struct file_at at = {};

	return syscall__file(task, &at) ? file__name(&at.key, at.dentry, at.mnt) : 0;
}

/* The same for a page fault that brought in a page. */
static __always_inline u64 fault__file_name(struct task_struct *task)
{
	const struct syscall_thread *t = bpf_task_storage_get(&syscall_threads, task, NULL, 0);

	return t && t->fault_file && t->fault_regs == regs__hash(task) ? t->fault_file : 0;
}

#endif
