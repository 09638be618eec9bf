/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls (bpf/syscalls.bpf.c): what calls, and pages that come into the cache, add to which row, the paths of files, and
 * which file a sample has.
 */
#include "tests/bpf/native/sampler.h"

#define LICENSE LICENSE_OF_SYSCALLS /* job.h has included a program with one of its own */
#include "bpf/syscalls.bpf.c"
#undef LICENSE

#define FDS 8

/* A mount at /mnt of the root, and on it a directory d. */
static struct {
	struct super_block root_sb, sb;
	struct dentry root, mnt_dir, top, dir;
	struct mount root_mount, mount;
	struct fs_struct fs;
	struct files_struct files;
	struct fdtable table;
	struct file *fds[FDS];
	struct task_struct other;
	struct pid other_pid;
	void *hashed;
} host;

struct test_file {
	struct inode inode;
	struct dentry dentry;
	struct file file;
	struct address_space pages;
};

static struct dentry dentry_of(const char *name, struct dentry *parent)
{
	return (struct dentry){.d_hash.pprev = &host.hashed,
			       .d_parent = parent,
			       .d_name = {strlen(name), (const unsigned char *)name}};
}

/* Descriptor fd: a file of that name in /mnt/d. */
static void open_as(struct test_file *f, u32 fd, const char *name, u64 inode, u32 mode)
{
	*f = (struct test_file){.inode = {.i_mode = mode, .i_sb = &host.sb, .i_ino = inode},
				.dentry = dentry_of(name, &host.dir)};
	f->dentry.d_inode = &f->inode;
	f->inode.i_dentry.first = &f->dentry.d_alias;
	f->pages.host = &f->inode;
	f->file = (struct file){.f_inode = &f->inode, .f_path = {&host.mount.mnt, &f->dentry}};
	host.fds[fd] = &f->file;
}

static int syscalls_setup(void **state)
{
	samples_setup(state);
	memset(&host, 0, sizeof(host));
	file_row_cnt = 0;
	host.root_sb.s_dev = 1;
	host.sb.s_dev = 8 << 20 | 1;
	host.root = dentry_of("/", &host.root);
	host.mnt_dir = dentry_of("mnt", &host.root);
	host.top = dentry_of("/", &host.top);
	host.dir = dentry_of("d", &host.top);
	host.root_mount = (struct mount){&host.root_mount, &host.root, {&host.root, &host.root_sb}};
	host.mount = (struct mount){&host.root_mount, &host.mnt_dir, {&host.top, &host.sb}};
	host.fs.root = (struct file_place){&host.root_mount.mnt, &host.root};
	host.table = (struct fdtable){FDS, host.fds};
	host.files.fdt = &host.table;
	job.task.fs = job.thread.fs = &host.fs;
	job.task.files = job.thread.files = &host.files;
	host.other =
		(struct task_struct){.pid = 1, .tgid = 1, .group_leader = &host.other, .thread_pid = &host.other_pid};
	return 0;
}

static void enter(long number, u64 di, u64 si)
{
	syscall_enter(&(struct pt_regs){.di = di, .si = si}, number);
}

static void call(long number, u64 di, s64 result, u64 ns)
{
	enter(number, di, 0);
	wait_ns(ns);
	syscall_exit(&(struct pt_regs){}, result);
}

static const struct syscall_val *calls_of(u32 number)
{
	struct syscall_key key = {JOB_PID, number};

	return bpf_map_lookup_elem(&syscall_rows, &key);
}

static void expect_calls(u32 number, u64 calls, u64 errors, u64 ns, u64 bytes)
{
	const struct syscall_val *val = calls_of(number);

	assert_non_null(val);
	assert_int_equal(val->calls, calls);
	assert_int_equal(val->errors, errors);
	assert_int_equal(val->total_ns, ns);
	assert_int_equal(val->bytes, bytes);
}

static struct file_val *row_of(u64 inode)
{
	struct file_key key = {JOB_PID, host.sb.s_dev, inode};

	return bpf_map_lookup_elem(&file_rows, &key);
}

static void expect_path(const struct file_val *row, const char *path)
{
	u64 id;

	assert_non_null(row);
	assert_int_equal(names_sent(NAME_UTF8, path, strlen(path), &id), 1);
	assert_int_equal(row->name, id);
}

static void page(struct test_file *f, u64 pages)
{
	page_added(&(struct folio){.mapping = &f->pages, .pages = pages});
}

/* ---- calls ---- */

static void test_counts(void **state)
{
	(void)state;
	call(39, 0, 4242, 100); /* getpid: no bytes */
	call(39, 0, 4242, 20);
	call(SYS_SENDTO, 3, 70, 5);
	call(SYS_READ, 99, -9, 1);
	call(SYS_READ, 99, -4095, 1);
	call(9, 0, -4096, 1); /* mmap: an address up there is none of errors */
	call(5000, 0, -38, 3);
	call(-1, 0, -38, 4);
	expect_calls(39, 2, 0, 120, 0);
	expect_calls(SYS_SENDTO, 1, 0, 5, 70);
	expect_calls(SYS_READ, 2, 2, 2, 0);
	expect_calls(9, 1, 0, 1, 0);
	expect_calls(SYSCALL_UNKNOWN, 2, 2, 7, 0);
	expect_counters(CNT__COUNT);
}

static void test_others(void **state)
{
	(void)state;
	native.task = &host.other;
	call(39, 0, 0, 1);
	assert_null(bpf_task_storage_get(&syscall_threads, &host.other, NULL, 0));
	native.task = &job.thread; /* of the job's process */
	call(39, 0, 0, 1);
	expect_calls(39, 1, 0, 1, 0);
}

static void test_window(void **state)
{
	(void)state;
	job.proc->window = WINDOW_WAITING;
	enter(39, 0, 0);
	job.proc->window_start_ns = native.now_ns + 1;
	wait_ns(5);
	job.proc->window = WINDOW_OPEN;
	syscall_exit(&(struct pt_regs){}, 0); /* began before */
	assert_null(calls_of(39));
	call(39, 0, 0, 7);
	job.proc->window = WINDOW_DONE;
	call(39, 0, 0, 7);
	syscall_exit(&(struct pt_regs){}, 0); /* its entry was not seen */
	expect_calls(39, 1, 0, 7, 0);
}

static void test_unfinished(void **state)
{
	(void)state;
	enter(SYS_FUTEX, 0, 0);
	syscall_unfinished(&(struct bpf_iter__task){&job.task});
	syscall_unfinished(&(struct bpf_iter__task){&job.thread});
	syscall_unfinished(&(struct bpf_iter__task){NULL});
	assert_int_equal(calls_of(SYS_FUTEX)->unfinished, 1);
	assert_int_equal(calls_of(SYS_FUTEX)->calls, 0);
}

/* A fork counts from its first instruction on, until its window opens, and from then on. */
static void test_fork(void **state)
{
	struct pid pid = {.numbers = {{77}}};
	struct task_struct child = {.pid = 77, .tgid = 77, .thread_pid = &pid};
	struct syscall_key key = {77, 39};
	struct proc *proc;
	u32 nr = 77;

	(void)state;
	child.group_leader = &child;
	for (u32 want = 0; want < 2; want++) {
		native__set_knob(&want_children, want);
		process_fork(&job.task, &child);
		proc = bpf_map_lookup_elem(&procs, &nr);
		native.task = &child;
		call(39, 0, 0, 3);
		assert_int_equal(!!bpf_map_lookup_elem(&syscall_rows, &key), want);
		native.task = &job.task;
	}
	enter(39, 0, 0); /* of the parent, which goes on */
	native.task = &child;
	enter(39, 0, 0);
	wait_ns(5);
	proc->window = WINDOW_OPEN;
	proc->window_start_ns = native.now_ns;
	syscall_exit(&(struct pt_regs){}, 0);
	assert_int_equal(((struct syscall_val *)bpf_map_lookup_elem(&syscall_rows, &key))->calls, 2);
}

/* ---- files ---- */

static void test_files(void **state)
{
	struct test_file f, pipe;
	struct file_val *row;

	(void)state;
	open_as(&f, 3, "new\nline", 11, MODE_FILE);
	open_as(&pipe, 4, "", 12, MODE_FIFO);
	call(SYS_READ, 3, 100, 10);
	call(SYS_PREAD64, 3, 0, 10);
	call(SYS_PREADV2, 3, -5, 10);
	call(SYS_WRITE, 3, 7, 30);
	call(SYS_READ, 4, 9, 10); /* a pipe is no file, nor are these descriptors */
	call(SYS_READ, 5, -9, 10);
	call(SYS_READ, FDS, -9, 10);
	call(SYS_READ, ~0u, -9, 10);
	call(3, 3, 0, 10); /* close */
	row = row_of(11);
	expect_path(row, "/mnt/d/new\nline");
	assert_int_equal(row->reads, 3);
	assert_int_equal(row->read_bytes, 100);
	assert_int_equal(row->writes, 1);
	assert_int_equal(row->written_bytes, 7);
	assert_int_equal(row->total_ns, 60);
	assert_int_equal(row->disk_bytes, 0);
	assert_null(row_of(12));
	expect_calls(SYS_READ, 5, 3, 50, 109);
	expect_counters(CNT__COUNT);
}

static void test_disk(void **state)
{
	struct test_file f, other;

	(void)state;
	open_as(&f, 3, "f", 11, MODE_FILE);
	open_as(&other, 4, "o", 12, MODE_FILE);
	enter(SYS_READ, 3, 0);
	page(&f, 4);
	page(&f, 1);
	syscall_exit(&(struct pt_regs){}, 100);
	call(SYS_READ, 3, 100, 1); /* of the cache */
	page(&f, 2);               /* a page fault */
	enter(SYS_WRITE, 3, 0);
	page(&f, 9); /* made, not read */
	syscall_exit(&(struct pt_regs){}, 100);
	enter(SYS_SENDFILE, 4, 3);
	page(&f, 1);
	page(&other, 9); /* it is written */
	syscall_exit(&(struct pt_regs){}, 4096);
	enter(28, 0, 0); /* madvise */
	page(&other, 1);
	syscall_exit(&(struct pt_regs){}, 0);
	f.file.f_flags = FILE_O_DIRECT;
	call(SYS_READ, 3, 512, 1);
	assert_int_equal(row_of(11)->reads, 4);
	assert_int_equal(row_of(11)->disk_reads, 3);
	assert_int_equal(row_of(11)->faults, 1);
	assert_int_equal(row_of(11)->disk_bytes, (4 + 1 + 2 + 1) * 4096 + 512);
	assert_int_equal(row_of(12)->disk_bytes, 4096);
	assert_int_equal(row_of(12)->faults, 0);
	expect_path(row_of(11), "/mnt/d/f");
	/* whose mount is not known */
	expect_path(row_of(12), "/d/o");
	assert_int_equal(row_of(12)->flags, FILE_MOUNT_UNKNOWN);
}

/* Blocks of directories and the like, which a file system reads by the disk that it is on. */
static void test_disk_itself(void **state)
{
	struct file_key key = {.pid = JOB_PID, .dev = 254 << 20};
	const struct file_val *row;
	struct test_file disk;

	(void)state;
	open_as(&disk, 3, "", 254 << 20, MODE_BLOCK);
	disk.inode.i_rdev = 254 << 20;
	disk.dentry.d_parent = &disk.dentry;
	disk.dentry.d_hash.pprev = NULL;
	call(39, 0, 0, 1);
	page(&disk, 2);
	row = bpf_map_lookup_elem(&file_rows, &key);
	assert_non_null(row);
	assert_int_equal(row->disk_bytes, 2 * 4096);
	assert_int_equal(row->flags, FILE_DISK);
	assert_int_equal(row->name, 0);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

static void test_paths(void **state)
{
	struct test_file f, g, h, i, nameless;

	(void)state;
	open_as(&f, 1, "gone", 1, MODE_FILE);
	f.dentry.d_hash.pprev = NULL;
	call(SYS_READ, 1, 1, 1);
	expect_path(row_of(1), "/mnt/d/gone (deleted)");
	/* in no directory */
	open_as(&g, 2, "memfd:x", 2, MODE_FILE);
	g.dentry.d_parent = &g.dentry;
	call(SYS_READ, 2, 1, 1);
	expect_path(row_of(2), "memfd:x");
	open_as(&nameless, 5, "", 5, MODE_FILE);
	nameless.dentry.d_parent = &nameless.dentry;
	call(SYS_READ, 5, 1, 1);
	assert_int_equal(row_of(5)->name, 0);
	/* as a process sees it that has its root elsewhere */
	host.fs.root = (struct file_place){&host.mount.mnt, &host.top};
	open_as(&h, 3, "h", 3, MODE_FILE);
	call(SYS_READ, 3, 1, 1);
	expect_path(row_of(3), "/d/h");
	/* a ring that leads nowhere */
	open_as(&i, 4, "i", 4, MODE_FILE);
	host.dir.d_parent = &i.dentry;
	i.dentry.d_parent = &host.dir;
	call(SYS_READ, 4, 1, 1);
	assert_non_null(row_of(4));
	host.dir.d_parent = &host.top;
}

static void test_long_paths(void **state)
{
	char name[256], path[REC_NAME_MAX + 1];
	struct dentry dirs[3];
	struct test_file f;

	(void)state;
	memset(name, 'a', 200);
	name[200] = 0;
	for (int n = 0; n < 3; n++)
		dirs[n] = dentry_of(name, n ? &dirs[n - 1] : &host.top);
	open_as(&f, 1, "leaf", 1, MODE_FILE);
	f.dentry.d_parent = &dirs[2];
	call(SYS_READ, 1, 1, 1);
	snprintf(path, sizeof(path), ".../%s/%s/leaf", name, name);
	expect_path(row_of(1), path);
	expect_counters(CNT_NAME_CUT, 1, CNT__COUNT);
}

/* A name that does not get through is told at the next call. */
static void test_full_ring(void **state)
{
	struct test_file f;

	(void)state;
	open_as(&f, 1, "f", 1, MODE_FILE);
	native.ring_full = true;
	call(SYS_READ, 1, 5, 1);
	assert_int_equal(row_of(1)->name, 0);
	native.ring_full = false;
	call(SYS_READ, 1, 5, 1);
	expect_path(row_of(1), "/mnt/d/f");
	assert_int_equal(row_of(1)->read_bytes, 10);
	expect_counters(CNT_RING_FULL, 1, CNT__COUNT);
}

/* With many files, of all processes or of one, further ones are counted by their directory. */
static void expect_directories(void)
{
	struct inode dir = {.i_ino = 500};
	struct test_file f;

	host.dir.d_inode = &dir;
	for (u64 n = 0; n < 3; n++) {
		open_as(&f, 1, "f", 1 + n, MODE_FILE);
		call(SYS_READ, 1, 5, 1);
		assert_null(row_of(1 + n));
	}
	assert_int_equal(row_of(500)->reads, 3);
	assert_int_equal(row_of(500)->flags, FILE_DIRECTORY);
	expect_path(row_of(500), "/mnt/d");
	expect_counters(CNT__COUNT);
}

static void test_many_files(void **state)
{
	(void)state;
	file_row_cnt = FILE_ROWS_ALL;
	expect_directories();
}

static void test_many_files_of_one(void **state)
{
	(void)state;
	job.proc->room.files = FILE_ROWS_OWN;
	expect_directories();
}

/* A process that has filled its part is told of, and leaves the rest to others. */
static void test_many_directories(void **state)
{
	struct inode dir = {.i_ino = 500};
	struct test_file f;

	(void)state;
	host.dir.d_inode = &dir;
	job.proc->room.files = FILE_ROWS_OWN + DIRECTORIES;
	open_as(&f, 1, "f", 1, MODE_FILE);
	call(SYS_READ, 1, 5, 1);
	assert_null(row_of(1));
	expect_counters(CNT_FILES_LOST, 1, CNT__COUNT);
}

/* ---- pipes ---- */

static const struct pipe_val *pipe_of(u64 inode)
{
	struct file_key key = {JOB_PID, host.sb.s_dev, inode};

	return bpf_map_lookup_elem(&pipe_rows, &key);
}

static void test_pipes(void **state)
{
	struct test_file a, b, f;
	u64 first;

	(void)state;
	open_as(&a, 3, "", 11, MODE_FIFO);
	open_as(&b, 4, "", 12, MODE_FIFO);
	open_as(&f, 5, "f", 13, MODE_FILE);
	call(SYS_READ, 3, 4, 10);
	first = native.now_ns;
	call(SYS_READ, 3, 300, 10); /* what the message is */
	call(SYS_READ, 3, 4, 20);
	call(SYS_READ, 4, 4, 5); /* in turns */
	call(SYS_READ, 3, 4, 5);
	call(SYS_READ, 4, 4, 7);
	call(SYS_READ, 4, 4, 100);
	call(SYS_READ, 3, 4, 1); /* the other one had two in a row */
	call(SYS_READ, 3, -4, 9);
	call(SYS_WRITE, 3, 4, 9);
	call(SYS_WRITE, 3, 0, 9);
	call(SYS_READ, 5, 4, 9);
	assert_non_null(pipe_of(11));
	assert_int_equal(pipe_of(11)->messages, 4);
	assert_int_equal(pipe_of(11)->first_ns, first);
	assert_int_equal(pipe_of(11)->active_cnt, 2);
	assert_int_equal(pipe_of(11)->active_ns, 10 + 20 + 5 + 5);
	assert_int_equal(pipe_of(11)->writes, 1);
	assert_int_equal(pipe_of(12)->messages, 3);
	assert_int_equal(pipe_of(12)->active_cnt, 2);
	assert_int_equal(pipe_of(12)->active_ns, 5 + 7 + 100);
	assert_int_equal(pipe_of(12)->writes, 0);
	assert_null(pipe_of(13));
	assert_null(row_of(11));
	expect_counters(CNT__COUNT);
}

/* ---- samples ---- */

static u64 name_of(u64 inode)
{
	const struct file_val *row = row_of(inode);

	return row ? row->name : 0;
}

/* In a call, a wait of the cause that it has by itself. */
static const struct rec_sample *wait_in(long number, u64 di, u64 si, u32 cause)
{
	const struct rec_sample *rec;

	cpu.user = in_call(number, di, si, 0);
	enter(number, di, si);
	wait_for(THRESHOLD, 2 * THRESHOLD);
	syscall_exit(&cpu.user, 0);
	rec = expect_wait(cause, THRESHOLD, 1);
	assert_int_equal(expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1)->file, 0);
	return rec;
}

static void test_waits_in_calls(void **state)
{
	struct test_file f, g, pipe;
	u64 id, synced;

	(void)state;
	open_as(&f, 3, "f", 11, MODE_FILE);
	open_as(&g, 5, "g", 13, MODE_FILE);
	open_as(&pipe, 4, "", 12, MODE_FIFO);
	id = wait_in(SYS_READ, 3, 0, CAUSE_DISK_READ)->file; /* the first call that uses it */
	expect_path(row_of(11), "/mnt/d/f");
	assert_int_equal(id, name_of(11));
	assert_int_equal(wait_in(SYS_PWRITE64, 3, 0, CAUSE_DISK_WRITE)->file, id);
	assert_int_equal(row_of(11)->reads + row_of(11)->writes, 2);
	synced = wait_in(SYS_FSYNC, 5, 0, CAUSE_FSYNC)->file;
	expect_path(row_of(13), "/mnt/d/g");
	assert_int_equal(synced, name_of(13));
	assert_int_equal(row_of(13)->reads + row_of(13)->writes + row_of(13)->last_ns, 0);
	assert_int_equal(wait_in(SYS_READ, 4, 0, CAUSE_PIPE)->file, 0);
	assert_int_equal(wait_in(SYS_READ, 7, 0, CAUSE_UNKNOWN)->file, 0);
	assert_int_equal(wait_in(SYS_FUTEX, 3, 0, CAUSE_LOCK)->file, 0);
	job.task.in_iowait = 1;
	assert_int_equal(wait_in(SYS_SENDFILE, 4, 3, CAUSE_DISK_READ)->file, id);
	assert_int_equal(wait_in(SYS_COPY_FILE_RANGE, 3, 0, CAUSE_DISK_READ)->file, id);
	assert_int_equal(wait_in(21, 3, 0, CAUSE_DISK_READ)->file, 0); /* access: of no descriptor */
	expect_no_more();
	expect_counters(CNT__COUNT);
}

static void test_timer_in_calls(void **state)
{
	struct test_file f;

	(void)state;
	open_as(&f, 3, "f", 11, MODE_FILE);
	for (int i = 0; i < 2; i++) {
		cpu.user = in_call(SYS_READ, 3, 0, 0);
		enter(SYS_READ, 3, 0);
		timer(KERNEL_CS, KERNEL_IP);
		syscall_exit(&cpu.user, 0);
		assert_int_equal(next_sample()->file, i ? name_of(11) : 0); /* of a file that is known */
	}
	cpu.user = in_call(SYS_FUTEX, 3, 0, 0);
	timer(KERNEL_CS, KERNEL_IP);
	assert_int_equal(next_sample()->file, 0);
	timer(USER_CS, USER_IP);
	assert_int_equal(next_sample()->file, 0);
}

/* A page fault is known by its registers, whether system calls are counted or not. */
static void expect_faults(u64 counted)
{
	struct test_file f, g;

	open_as(&f, 3, "f", 11, MODE_FILE);
	open_as(&g, 4, "g", 12, MODE_FILE);
	call(39, 0, 0, 1);
	cpu.user = in_user();
	wait_for(THRESHOLD, 0);
	assert_int_equal(expect_wait(CAUSE_PAGE_FAULT, THRESHOLD, 1)->file, 0); /* of no file, or not in the window */
	page(&f, 4);
	wait_for(THRESHOLD, 0);
	assert_int_equal(expect_wait(CAUSE_PAGE_FAULT, THRESHOLD, 1)->file, name_of(11));
	assert_int_not_equal(name_of(11), 0);
	cpu.user.r13++; /* goes on, to memory of its own */
	wait_for(THRESHOLD, 0);
	assert_int_equal(expect_wait(CAUSE_PAGE_FAULT, THRESHOLD, 1)->file, 0);
	page(&g, 1);
	wait_for(THRESHOLD, 0);
	assert_int_equal(expect_wait(CAUSE_PAGE_FAULT, THRESHOLD, 1)->file, name_of(12));
	assert_int_equal(row_of(12)->faults, counted);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

static void test_waits_in_faults(void **state)
{
	(void)state;
	expect_faults(1);
}

static void test_waits_uncounted(void **state)
{
	struct test_file f;

	(void)state;
	native__set_knob(&want_syscalls, 0);
	expect_faults(0);
	open_as(&f, 5, "h", 13, MODE_FILE);
	cpu.user = in_call(SYS_READ, 5, 0, 0);
	page(&f, 1); /* in a call, whose file its descriptor tells */
	assert_null(row_of(13));
	wait_for(THRESHOLD, 0);
	assert_int_equal(expect_wait(CAUSE_DISK_READ, THRESHOLD, 1)->file, name_of(13));
	assert_int_equal(row_of(13)->last_ns, 0);
}

static void test_no_storage(void **state)
{
	(void)state;
	native.storage_failures = 2;
	call(39, 0, 0, 1);
	assert_null(calls_of(39));
	expect_counters(CNT_CALLS_LOST, 1, CNT__COUNT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, syscalls_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_counts),
		TEST(test_others),
		TEST(test_window),
		TEST(test_unfinished),
		TEST(test_fork),
		TEST(test_files),
		TEST(test_disk),
		TEST(test_paths),
		TEST(test_pipes),
		TEST(test_disk_itself),
		TEST(test_long_paths),
		TEST(test_full_ring),
		TEST(test_many_files),
		TEST(test_many_files_of_one),
		TEST(test_many_directories),
		TEST(test_no_storage),
		TEST(test_waits_in_calls),
		TEST(test_timer_in_calls),
		TEST(test_waits_in_faults),
		TEST(test_waits_uncounted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
