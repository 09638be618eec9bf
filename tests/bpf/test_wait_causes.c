/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a wait is for (include/waits.h): by the system call that the thread is in, its arguments and its files; and that
 * samples (bpf/waits.h) and `dump` (user/proc/task.c) say the same of it.
 */
#include "tests/bpf/native/sampler.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "user/proc/task.h"

static u32 cause_in(struct pt_regs user, u32 state)
{
	const struct rec_sample *rec;

	cpu.user = user;
	switch_to(&cpu.other, state);
	wait_ns(THRESHOLD);
	sample_waking(&job.task);
	back();
	waits__flush(&job.task);
	rec = next_sample();
	assert_int_equal(rec->weight_ns, THRESHOLD);
	return rec->cause;
}

/* An open file, whose row has a name: nobody asks for its path. */
static struct file file_of(struct inode *inode)
{
	static struct super_block sb;
	struct file_key key = {.pid = JOB_PID};
	struct file_val row = {.name = 1};

	inode->i_sb = &sb;
	bpf_map_update_elem(&file_rows, &key, &row, BPF_ANY);
	return (struct file){.f_inode = inode};
}

static u32 cause_of(long number, u64 di, u64 si)
{
	return cause_in(in_call(number, di, si, 0), SLEEPS);
}

enum { FD_FILE, FD_PIPE, FD_SOCKET, FD_TERMINAL, FD_EVENT, FD_DISK, FD_CLOSED, FD_CNT };

struct wait_case {
	long number;
	u64 di, si, dx;
	u32 cause;
};

static const struct wait_case sleeping[] = {
	{SYS_CLOCK_NANOSLEEP, 0, 0, 0, CAUSE_SLEEP},
	{SYS_NANOSLEEP, 0, 0, 0, CAUSE_SLEEP},
	{SYS_SELECT, 0, 0, 0, CAUSE_SLEEP}, /* of no files */
	{SYS_SELECT, 5, 0, 0, CAUSE_POLL},
	{SYS_PSELECT6, 0, 0, 0, CAUSE_SLEEP},
	{SYS_PSELECT6, 5, 0, 0, CAUSE_POLL},
	{SYS_POLL, 0x1000, 0, 0, CAUSE_SLEEP},
	{SYS_POLL, 0x1000, 1, 0, CAUSE_POLL},
	{SYS_PPOLL, 0x1000, 0, 0, CAUSE_SLEEP},
	{SYS_PPOLL, 0x1000, 2, 0, CAUSE_POLL},
	{SYS_EPOLL_WAIT, 3, 0x1000, 0, CAUSE_POLL},
	{SYS_EPOLL_PWAIT, 3, 0x1000, 0, CAUSE_POLL},
	{SYS_EPOLL_PWAIT2, 3, 0x1000, 0, CAUSE_POLL},
	{SYS_WAIT4, 0, 0, 0, CAUSE_CHILD_WAIT},
	{SYS_WAITID, 0, 0, 0, CAUSE_CHILD_WAIT},
	{SYS_FSYNC, FD_FILE, 0, 0, CAUSE_FSYNC},
	{SYS_FDATASYNC, FD_FILE, 0, 0, CAUSE_FSYNC},
	{SYS_MSYNC, 0, 0, 0, CAUSE_FSYNC},
	{SYS_SYNC, 0, 0, 0, CAUSE_FSYNC},
	{SYS_SYNCFS, 0, 0, 0, CAUSE_FSYNC},
	{SYS_SYNC_FILE_RANGE, 0, 0, 0, CAUSE_FSYNC},
	{SYS_CONNECT, 0, 0, 0, CAUSE_SOCKET},
	{SYS_ACCEPT, 0, 0, 0, CAUSE_SOCKET},
	{SYS_ACCEPT4, 0, 0, 0, CAUSE_SOCKET},
	{SYS_RECVFROM, 0, 0, 0, CAUSE_SOCKET},
	{SYS_RECVMSG, 0, 0, 0, CAUSE_SOCKET},
	{SYS_RECVMMSG, 0, 0, 0, CAUSE_SOCKET},
	{SYS_SENDMMSG, 0, 0, 0, CAUSE_SOCKET},
	{SYS_READ, FD_FILE, 0, 0, CAUSE_DISK_READ},
	{SYS_READ, FD_DISK, 0, 0, CAUSE_DISK_READ},
	{SYS_READ, FD_PIPE, 0, 0, CAUSE_PIPE},
	{SYS_READ, FD_SOCKET, 0, 0, CAUSE_SOCKET},
	{SYS_READ, FD_TERMINAL, 0, 0, CAUSE_UNKNOWN}, /* somebody types */
	{SYS_READ, FD_EVENT, 0, 0, CAUSE_UNKNOWN},
	{SYS_READ, FD_CLOSED, 0, 0, CAUSE_UNKNOWN},
	{SYS_READ, FD_CNT, 0, 0, CAUSE_UNKNOWN},
	{SYS_READ, ~0ull, 0, 0, CAUSE_UNKNOWN},
	{SYS_PREAD64, FD_FILE, 0, 0, CAUSE_DISK_READ},
	{SYS_READV, FD_FILE, 0, 0, CAUSE_DISK_READ},
	{SYS_PREADV, FD_FILE, 0, 0, CAUSE_DISK_READ},
	{SYS_PREADV2, FD_FILE, 0, 0, CAUSE_DISK_READ},
	{SYS_WRITE, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_WRITE, FD_PIPE, 0, 0, CAUSE_PIPE},
	{SYS_WRITE, FD_TERMINAL, 0, 0, CAUSE_UNKNOWN},
	{SYS_PWRITE64, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_WRITEV, FD_SOCKET, 0, 0, CAUSE_SOCKET},
	{SYS_PWRITEV, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_PWRITEV2, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_IOCTL, FD_FILE, 0, 0, CAUSE_UNKNOWN},
	{SYS_SENDFILE, FD_SOCKET, FD_FILE, 0, CAUSE_SOCKET},
	{SYS_SENDFILE, FD_FILE, FD_FILE, 0, CAUSE_UNKNOWN},
	{SYS_SPLICE, FD_PIPE, 0, 0, CAUSE_PIPE},
	{SYS_VFORK, 0, 0, 0, CAUSE_CHILD_WAIT},
	{SYS_FLOCK, FD_FILE, 0, 0, CAUSE_LOCK},
	{SYS_OPENAT, 0, 0, 0, CAUSE_UNKNOWN}, /* of a pipe with a name, perhaps */
	{SYS_RENAME, 0, 0, 0, CAUSE_UNKNOWN},
	{SYS_CLOSE, FD_FILE, 0, 0, CAUSE_UNKNOWN},
	{SYS_NEWFSTATAT, 0, 0, 0, CAUSE_DISK_READ}, /* of a file system that user space serves */
	{SYS_ACCESS, 0, 0, 0, CAUSE_DISK_READ},
	{SYS_READLINK, 0, 0, 0, CAUSE_DISK_READ},
	{SYS_GETDENTS64, FD_FILE, 0, 0, CAUSE_DISK_READ},
	{SYS_IO_URING_ENTER, FD_EVENT, 0, 0, CAUSE_POLL},
	{SYS_IO_GETEVENTS, 0, 0, 0, CAUSE_POLL},
	{SYS_IO_PGETEVENTS, 0, 0, 0, CAUSE_POLL},
	{1023, 0, 0, 0, CAUSE_UNKNOWN},
	{1024, 0, 0, 0, CAUSE_UNKNOWN}, /* no call has that number */
};

/* Cannot be interrupted. */
static const struct wait_case blocked[] = {
	{SYS_OPENAT, 0, 0, O_RDONLY, CAUSE_DISK_READ},
	{SYS_OPENAT, 0, 0, O_WRONLY, CAUSE_DISK_READ},
	{SYS_OPENAT, 0, 0, O_WRONLY | O_TRUNC, CAUSE_DISK_WRITE},
	{SYS_OPENAT, 0, 0, O_WRONLY | O_CREAT, CAUSE_DISK_WRITE},
	{SYS_OPEN, 0, O_RDWR | O_TRUNC, 0, CAUSE_DISK_WRITE},
	{SYS_OPEN, 0, O_RDWR, O_TRUNC, CAUSE_DISK_READ},
	{SYS_RENAME, 0, 0, 0, CAUSE_DISK_WRITE},
	{SYS_CLOSE, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_FTRUNCATE, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_FALLOCATE, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_SENDFILE, FD_SOCKET, FD_FILE, 0, CAUSE_DISK_READ},
	{SYS_WRITE, FD_FILE, 0, 0, CAUSE_DISK_WRITE},
	{SYS_READ, FD_PIPE, 0, 0, CAUSE_PIPE},
	{SYS_MMAP, 0, 0, 0, CAUSE_UNKNOWN},
};

static void open_files(void)
{
	static struct inode inodes[FD_CNT] = {{.i_mode = 0100644}, {.i_mode = 0010600}, {.i_mode = 0140755},
					      {.i_mode = 0020620}, {.i_mode = 0000600}, {.i_mode = 0060660}};
	static struct file files[FD_CNT], *open[FD_CNT + 1];
	static struct fdtable table = {.max_fds = FD_CNT, .fd = open};
	static struct files_struct all = {.fdt = &table};

	for (int i = 0; i < FD_CNT; i++) {
		files[i] = file_of(&inodes[i]);
		open[i] = i == FD_CLOSED ? NULL : &files[i];
	}
	job.task.files = &all;
}

static void expect_causes(const struct wait_case *cases, size_t cnt, u32 state)
{
	for (size_t i = 0; i < cnt; i++) {
		const struct wait_case *c = &cases[i];

		if (cause_in(in_call(c->number, c->di, c->si, c->dx), state) == c->cause)
			continue;
		print_message("case %zu: call %ld\n", i, c->number);
		fail();
	}
}

static void test_causes(void **state)
{
	(void)state;
	open_files();
	expect_causes(sleeping, sizeof(sleeping) / sizeof(*sleeping), SLEEPS);
	expect_causes(blocked, sizeof(blocked) / sizeof(*blocked), BLOCKED);
	/* in another call, for a disk */
	job.task.in_iowait = 1;
	assert_int_equal(cause_of(SYS_GETDENTS64, FD_FILE, 0), CAUSE_DISK_READ);
	assert_int_equal(cause_of(161 /* chroot, which is not in the table */, 0, 0), CAUSE_DISK_READ);
	assert_int_equal(cause_of(SYS_IO_URING_ENTER, FD_EVENT, 0),
			 CAUSE_POLL); /* the kernel counts any wait of its so */
	assert_int_equal(cause_of(SYS_MMAP, 0, 0), CAUSE_DISK_READ);
	assert_int_equal(cause_of(SYS_FSYNC, FD_FILE, 0), CAUSE_FSYNC);
	expect_counters(CNT__COUNT);
}

enum { OPEN_MAX_FD = 64 };

/* What `dump` says of a thread of this process, and a sample of one whose files are the same. */
static void expect_same(long number, u64 arg0, u64 arg1, bool blocked)
{
	const struct task task = {.state = blocked ? 'D' : 'S',
				  .syscall = number < 0 ? TASK_NO_SYSCALL : number,
				  .args = {arg0, arg1, arg1 << 6}};
	struct pt_regs user = number < 0 ? in_user() : in_call(number, arg0, arg1, arg1 << 6);
	u32 dump = task__cause(getpid(), &task, &job.proc->py), sample = cause_in(user, blocked ? BLOCKED : SLEEPS);

	if (dump == sample)
		return;
	print_message("call %ld(%llx, %llx), %d: dump %u, sample %u\n", number, (unsigned long long)arg0,
		      (unsigned long long)arg1, blocked, dump, sample);
	fail();
}

static void test_dump_says_the_same(void **state)
{
	struct inode inodes[OPEN_MAX_FD] = {0};
	struct file files[OPEN_MAX_FD], *open_files[OPEN_MAX_FD] = {0};
	struct fdtable table = {.max_fds = OPEN_MAX_FD, .fd = open_files};
	struct files_struct all = {.fdt = &table};
	int ends[2], fds[6] = {open("/proc/self/exe", O_RDONLY), socket(AF_UNIX, SOCK_STREAM, 0),
			       open("/dev/null", O_RDONLY), eventfd(0, 0), open("/", O_RDONLY | O_DIRECTORY)};

	(void)state;
	assert_int_equal(pipe(ends), 0);
	fds[5] = ends[1];
	for (int fd = 0; fd < OPEN_MAX_FD; fd++) {
		struct stat file;

		if (fstat(fd, &file))
			continue;
		inodes[fd].i_mode = (u16)file.st_mode;
		files[fd] = file_of(&inodes[fd]);
		open_files[fd] = &files[fd];
	}
	job.task.files = &all;
	job.proc->py.gil_address = 0x7f0000010000ULL;
	job.proc->py.gil_bytes = 208;
	for (long number = -1; number < 500; number++) {
		const u64 others[] = {OPEN_MAX_FD - 1, 1000000, ~0ull, 0x7f0000010008ULL, 0x7f0000020000ULL};

		for (int i = 0; i < 2 * 2 * 6; i++)
			expect_same(number, (u64)fds[i / 4], i & 1, i & 2);
		for (int i = 0; i < 2 * 2 * 5; i++)
			expect_same(number, others[i / 4], i & 1, i & 2);
	}
	for (int i = 0; i < 6; i++)
		close(fds[i]);
	close(ends[0]);
}

static void test_futex(void **state)
{
	(void)state;
	job.proc->py.gil_address = 0x7f0000010000ULL;
	job.proc->py.gil_bytes = 208;
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f0000010000ULL, 0), CAUSE_GIL);
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f00000100cfULL, 0), CAUSE_GIL);
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f00000100d0ULL, 0), CAUSE_LOCK);
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f000000ffffULL, 0), CAUSE_LOCK);
	job.proc->py.gil_bytes = 0; /* not known */
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f0000010000ULL, 0), CAUSE_LOCK);
}

/* Outside of calls, what cannot be interrupted is a page that is not there. */
static void test_no_call(void **state)
{
	(void)state;
	assert_int_equal(cause_in(in_user(), SLEEPS), CAUSE_UNKNOWN);
	assert_int_equal(cause_in(in_user(), BLOCKED), CAUSE_PAGE_FAULT);
	assert_int_equal(cause_in(in_user(), 0x102), CAUSE_PAGE_FAULT); /* killable */
	assert_int_equal(cause_in(in_call(SYS_NANOSLEEP, 0, 0, 0), 0x101), CAUSE_SLEEP);
	job.task.in_iowait = 1;
	assert_int_equal(cause_in(in_user(), SLEEPS), CAUSE_PAGE_FAULT);
}

/* By a stop signal, a debugger or a freezer: no wait of its program's, whatever that did. */
static void test_pauses(void **state)
{
	const struct pt_regs sleeps = in_call(SYS_NANOSLEEP, 0, 0, 0);

	(void)state;
	assert_int_equal(cause_in(in_user(), STOPPED), CAUSE_PAUSED);
	assert_int_equal(cause_in(in_user(), TRACED), CAUSE_PAUSED);
	assert_int_equal(cause_in(sleeps, STOPPED), CAUSE_PAUSED);
	assert_int_equal(cause_in(sleeps, TASK_FROZEN), CAUSE_PAUSED);
	job.task.flags = PF_FROZEN;
	assert_int_equal(cause_in(in_user(), BLOCKED), CAUSE_PAUSED);
	job.task.flags = 0;
	job.task.jobctl = JOBCTL_TRAP_FREEZE;
	assert_int_equal(cause_in(in_user(), SLEEPS), CAUSE_PAUSED);
	job.task.jobctl = 1UL << 17; /* a stop that is still to come */
	assert_int_equal(cause_in(sleeps, SLEEPS), CAUSE_SLEEP);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, samples_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_causes), TEST(test_dump_says_the_same), TEST(test_futex),
					   TEST(test_no_call), TEST(test_pauses)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
