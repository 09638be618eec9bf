// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * System calls: counts and times them by process and number, and counts what they read and write by
 * process and file or pipe. In: each system call of the machine, and each page that enters its page
 * cache. Out: rows in maps, and the paths of files in the ring buffer.
 *
 * A process outside the job pays for the kernel's slower path, and for two failed look-ups. So
 * user space loads the programs at system calls only on request; without them, the page cache tells
 * which file a page fault waited for.
 */
#include "bpf/pipes.h"
#include "bpf/window.h"

#define SYSCALL_ROWS 65536
#define PAGE_BYTES   4096

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SYSCALL_ROWS);
	__type(key, struct syscall_key);
	__type(value, struct syscall_val);
} syscall_rows SEC(".maps");

/* The state of a thread, created if the thread is one of the job; otherwise NULL. */
static __always_inline struct syscall_thread *syscall_thread__get(struct task_struct *task)
{
	struct syscall_thread *t = bpf_task_storage_get(&syscall_threads, task, NULL, 0);
	u32 pid;

	if (t)
		return t;
	pid = task_pid(task);
	if (!bpf_map_lookup_elem(&procs, &pid))
		return NULL;
	t = bpf_task_storage_get(&syscall_threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		count(CNT_CALLS_LOST);
	return t;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(syscall_enter, struct pt_regs *regs, long number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct syscall_thread *t = syscall_thread__get(task);
	const struct file *file;
	u64 start = 0;
	u32 fd;

	if (!t)
		return 0;
	if (++t->turn % HITS_PER_SAMPLE == 0)
		start = bpf_ktime_get_ns();
	t->number = (u64)number < SYSCALL_NUMBERS ? number : SYSCALL_UNKNOWN;
	t->disk_bytes = 0;
	t->transfer = transfer__of(t->number, regs, &fd);
	t->copies = t->number == SYS_SENDFILE || t->number == SYS_COPY_FILE_RANGE;
	file = t->transfer >= TRANSFER_SYNC ? task__file(task, fd) : NULL;
	t->on_file = file && file__at(&t->file, file, task_pid(task));
	t->on_pipe =
		file && !t->on_file && t->transfer >= TRANSFER_READ && pipe__at(&t->file.key, file, task_pid(task));
	t->since_ns = bpf_ktime_get_ns();
	t->enter_ns = start ? t->since_ns - start : 0;
	return 0;
}

/* Does a call that began at since_ns and ends now lie in its process's window? */
static __always_inline bool call_counts(const struct proc *proc, u64 since_ns)
{
	return window__is_open(proc) && since_ns >= window__since(proc);
}

static __always_inline struct syscall_val *syscall_row__of(u32 pid, u32 number)
{
	struct syscall_key key = {.pid = pid, .number = number};
	struct syscall_val *row = bpf_map_lookup_elem(&syscall_rows, &key), empty = {};

	if (row)
		return row;
	bpf_map_update_elem(&syscall_rows, &key, &empty, BPF_NOEXIST);
	row = bpf_map_lookup_elem(&syscall_rows, &key);
	if (!row)
		count(CNT_CALLS_LOST);
	return row;
}

static __always_inline void call__add_file(struct syscall_thread *t, s64 result, u64 now, u64 ns)
{
	struct file_add add = {.now = now, .ns = ns};
	u64 bytes = result > 0 ? result : 0;

	if (t->transfer == TRANSFER_READ) {
		add.reads = 1;
		add.read_bytes = bytes;
		add.disk_bytes = t->file.direct ? bytes : t->disk_bytes;
		add.disk_reads = 1;
	} else {
		add.writes = 1;
		add.written_bytes = bytes;
	}
	file__add(&t->file.key, t->file.dentry, t->file.mnt, &add);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(syscall_exit, struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct syscall_thread *t = bpf_task_storage_get(&syscall_threads, task, NULL, 0);
	struct syscall_val *row;
	struct proc *proc;
	u64 now, since;
	u32 pid;

	if (!t || !t->since_ns)
		return 0;
	now = bpf_ktime_get_ns();
	since = t->since_ns;
	t->since_ns = 0;
	pid = task_pid(task);
	proc = bpf_map_lookup_elem(&procs, &pid);
	if (!proc || !call_counts(proc, since))
		return 0;
	row = syscall_row__of(pid, t->number);
	if (row) {
		__sync_fetch_and_add(&row->calls, 1);
		__sync_fetch_and_add(&row->total_ns, now - since);
		if (result < 0 && result > -SYSCALL_ERRORS)
			__sync_fetch_and_add(&row->errors, 1);
		else if (t->transfer)
			__sync_fetch_and_add(&row->bytes, result);
	}
	if (t->on_file && t->transfer != TRANSFER_SYNC)
		call__add_file(t, result, now, now - since);
	else if (t->on_pipe)
		pipe__add(proc, &t->file.key, t->transfer == TRANSFER_WRITE, result, now);
	if (t->enter_ns) {
		__sync_fetch_and_add(&proc->cost.calls_sampled, 1);
		__sync_fetch_and_add(&proc->cost.calls_sampled_ns, t->enter_ns + bpf_ktime_get_ns() - now);
	}
	return 0;
}

/*
 * A page enters the page cache. Runs in the thread that needs the page, or for which the kernel
 * reads ahead.
 */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(page_added, struct folio *folio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct syscall_thread *t = syscall_thread__get(task);
	struct file_add add = {};
	const struct inode *inode;
	struct file_key key = {};
	const struct proc *proc;
	u64 name;
	u32 pid;

	if (!t || (!want_syscalls && task__call_number(task) >= 0))
		return 0;
	add.disk_bytes = folio__pages(folio) * PAGE_BYTES;
	inode = BPF_CORE_READ(folio, mapping, host);
	if (t->since_ns && t->on_file && t->transfer != TRANSFER_SYNC) {
		/*
		 * A call that copies also fills the other file's pages, so compare the inodes.
		 * Compare them only then, since on overlayfs a file has another inode than its
		 * pages.
		 */
		if (!t->copies || t->file.key.inode == BPF_CORE_READ(inode, i_ino))
			t->disk_bytes += add.disk_bytes;
		return 0;
	}
	pid = task_pid(task);
	proc = bpf_map_lookup_elem(&procs, &pid);
	add.now = bpf_ktime_get_ns();
	if (!proc || !call_counts(proc, add.now) || !key__of_page(&key, inode, pid))
		return 0;
	add.faults = !t->since_ns;
	if (want_syscalls)
		name = file__add(&key, inode__dentry(inode), inode__mount(inode, task), &add);
	else
		name = file__name(&key, inode__dentry(inode), inode__mount(inode, task));
	if (add.faults) {
		t->fault_file = name;
		t->fault_regs = regs__hash(task);
	}
	return 0;
}

/* Counts the threads that are inside a call when the window closes. */
SEC("iter/task")
int syscall_unfinished(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct syscall_thread *t;
	struct syscall_val *row;
	struct proc *proc;
	u32 pid;

	t = task ? bpf_task_storage_get(&syscall_threads, task, NULL, 0) : NULL;
	if (!t || !t->since_ns)
		return 0;
	pid = task_pid(task);
	proc = bpf_map_lookup_elem(&procs, &pid);
	row = proc && proc->window == WINDOW_OPEN ? syscall_row__of(pid, t->number) : NULL;
	if (row)
		row->unfinished++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
