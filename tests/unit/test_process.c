/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * process__*: this process and children that the test starts, compared with what the dynamic loader, stat(2), getpid(2)
 * and the children themselves say; hostile names of files and threads; zombies, kernel threads, pids that are not
 * there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/children.h"
#include "user/proc/environ.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"

/* ---- helpers ---- */

static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	char buffer[65536];
	ssize_t got;

	assert_true(in >= 0 && out >= 0);
	while ((got = read(in, buffer, sizeof(buffer))) > 0)
		assert_int_equal(write(out, buffer, (size_t)got), got);
	close(in);
	close(out);
}

/* A new folder, and the path of a `sleep` to run and copy. */
struct sleeper {
	char folder[64];
	char program[PATH_MAX];
};

static int setup_sleeper(void **state)
{
	static const char *const places[] = {"/bin/sleep", "/usr/bin/sleep", "/run/current-system/sw/bin/sleep"};
	static struct sleeper sleeper;

	strcpy(sleeper.folder, "/tmp/stepflame-process-XXXXXX");
	assert_non_null(mkdtemp(sleeper.folder));
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !sleeper.program[0]; i++) {
		if (!realpath(places[i], sleeper.program))
			sleeper.program[0] = 0;
	}
	*state = &sleeper;
	return sleeper.program[0] ? 0 : -1;
}

static int teardown_sleeper(void **state)
{
	const struct sleeper *sleeper = *state;
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(sleeper->folder);

	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", sleeper->folder, entry->d_name);
		unlink(path);
	}
	if (dir)
		closedir(dir);
	rmdir(sleeper->folder);
	return 0;
}

static const struct mapped_file *find_path(const struct process *process, const char *path)
{
	for (size_t i = 0; i < process->file_cnt; i++) {
		if (!strcmp(process->files[i].path, path))
			return &process->files[i];
	}
	return NULL;
}

static off_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* ---- identity ---- */

static void test_self(void **state)
{
	struct process process;
	char comm[16];

	assert_int_equal(process__read(getpid(), &process), 0);
	assert_int_equal(process.pid, getpid());
	assert_int_equal(process.parent, getppid());
	prctl(PR_GET_NAME, comm);
	assert_string_equal(process.comm, comm);
	assert_true(process__alive(&process));
	process.start_time--; /* what the pid's former owner would have */
	assert_false(process__alive(&process));
	process__release(&process);
	process__release(&process);
}

#define SOME_TICKS 100 /* between two readings */

static void test_usage(void **state)
{
	struct proc_stat stat;
	struct tms used;

	do
		times(&used);
	while (used.tms_utime + used.tms_stime < 3);
	assert_int_equal(proc__stat(getpid(), 0, &stat), 0);
	assert_in_range(stat.user_ticks, used.tms_utime, used.tms_utime + SOME_TICKS);
	assert_in_range(stat.system_ticks, used.tms_stime, used.tms_stime + SOME_TICKS);
	assert_int_equal(stat.thread_cnt, 1);
}

static void *read_from_thread(void *err)
{
	struct process process;

	*(int *)err = process__read((pid_t)syscall(SYS_gettid), &process);
	if (!*(int *)err) {
		*(int *)err = process.pid == getpid() ? 0 : 1;
		process__release(&process);
	}
	return NULL;
}

static void test_thread_id(void **state)
{
	pthread_t thread;
	int err = -1;

	assert_int_equal(pthread_create(&thread, NULL, read_from_thread, &err), 0);
	pthread_join(thread, NULL);
	assert_int_equal(err, 0);
}

static bool name_oneself(void *name)
{
	return prctl(PR_SET_NAME, name) == 0;
}

static void test_hostile_comm(void **state)
{
	static const char *const names[] = {") Z 1 2 3 4", "a) R (b", "new\nline", "((((", "))))", ""};
	struct process process;
	bool done;
	pid_t pid;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		pid = start_child(name_oneself, (void *)names[i], &done);
		assert_true(done);
		assert_int_equal(process__read(pid, &process), 0);
		assert_string_equal(process.comm, names[i]);
		assert_int_equal(process.parent, getpid());
		assert_int_equal(process.pid, pid);
		assert_true(process__alive(&process));
		process__release(&process);
		end_child(pid);
	}
}

static void test_command(void **state)
{
	const struct sleeper *sleeper = *state;
	char *word = calloc(1, 6001);
	struct process process;
	pid_t pid;

	memset(word, 'x', 6000);
	pid = start_program(sleeper->program, (const char *const[]){"a b", "60", "1", NULL}, NULL);
	assert_int_equal(process__read(pid, &process), 0);
	assert_string_equal(process.command, "a b 60 1");
	process__release(&process);
	end_child(pid);

	pid = start_program(sleeper->program, (const char *const[]){word, "60", NULL}, NULL);
	assert_int_equal(process__read(pid, &process), 0);
	assert_int_equal(strlen(process.command), sizeof(process.command) - 1);
	assert_memory_equal(process.command, word, sizeof(process.command) - 1);
	process__release(&process);
	end_child(pid);
	free(word);
}

static void test_gone(void **state)
{
	struct process process, before;
	siginfo_t info;
	pid_t pid;

	assert_int_equal(process__read(0, &process), -ESRCH);
	assert_int_equal(process__read(-1, &process), -ESRCH);
	assert_int_equal(process__read(0x7fffffff, &process), -ESRCH);
	process__release(&process);

	pid = fork_child();
	if (pid == 0) {
		for (;;)
			pause();
	}
	assert_int_equal(process__read(pid, &before), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* a zombie still */
	assert_int_equal(process__read(pid, &process), -ESRCH);
	assert_false(process__alive(&before));
	waitpid(pid, NULL, 0);
	assert_int_equal(process__read(pid, &process), -ESRCH);
	assert_false(process__alive(&before));
	process__release(&before);
}

/* A stranger may not look at this process. */
static void test_forbidden(void **state)
{
	struct process process;
	int status;
	pid_t pid;

	if (geteuid()) {
		print_message("needs root to become another user\n");
		skip();
	}
	pid = fork_child();
	if (pid == 0) {
		if (setgid(65534) || setuid(65534))
			_exit(1);
		_exit(-process__read(getppid(), &process));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_true(WEXITSTATUS(status) == EACCES || WEXITSTATUS(status) == EPERM);
}

static void test_kernel_thread(void **state)
{
	struct process process;
	char comm[16] = "";
	FILE *file = fopen("/proc/2/comm", "r");

	if (file) {
		(void)!fscanf(file, "%15s", comm);
		fclose(file);
	}
	if (strcmp(comm, "kthreadd")) {
		print_message("kernel threads are not visible here\n");
		skip();
	}
	assert_int_equal(process__read(2, &process), -ESRCH);
}

/* ---- mapped files ---- */

static int expect_base(struct dl_phdr_info *info, size_t size, void *ctx)
{
	const struct process *process = ctx;
	const struct mapped_file *file;
	char path[PATH_MAX];

	if (!realpath(info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe", path))
		return 0; /* the vdso */
	file = find_path(process, path);
	assert_non_null(file);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_offset == 0)
			assert_int_equal(file->base, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	return 0;
}

static void test_bases(void **state)
{
	struct process process;
	void *low;
	int fd;

	/* Data mappings of the same file, below the program and at another offset, change nothing. */
	fd = open("/proc/self/exe", O_RDONLY);
	low = mmap((void *)0x10000000, 8192, PROT_READ, MAP_PRIVATE, fd, 4096);
	assert_true(low != MAP_FAILED);
	assert_int_equal(process__read(getpid(), &process), 0);
	dl_iterate_phdr(expect_base, &process);
	assert_non_null(process__file(&process, "libc.so."));
	assert_null(process__file(&process, "ibc.so."));
	process__release(&process);
	munmap(low, 8192);
	close(fd);
}

/* Starts a copy of sleep by that name, and expects it under that name among the mapped files. */
static void expect_name(const struct sleeper *sleeper, const char *name, bool deleted)
{
	const struct mapped_file *file;
	struct process process;
	char path[PATH_MAX], magic[4];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/%s", sleeper->folder, name);
	copy_file(sleeper->program, path);
	pid = start_program(path, (const char *const[]){"sleep", "60", NULL}, NULL);
	if (deleted) {
		unlink(path);
		copy_file("/proc/self/exe", path); /* another file by that name */
	}
	assert_int_equal(process__read(pid, &process), 0);
	file = find_path(&process, path);
	assert_non_null(file);
	assert_ptr_equal(process__file(&process, name), file);
	assert_int_equal(size_of(file->open_path), size_of(sleeper->program));
	assert_int_equal(file->content.bytes, size_of(sleeper->program));
	assert_int_equal(process__read_memory(pid, file->base, magic, sizeof(magic)), 0);
	assert_memory_equal(magic, "\177ELF", 4);
	process__release(&process);
	end_child(pid);
	unlink(path);
}

static void test_hostile_names(void **state)
{
	static const char *const names[] = {"plain",
					    "with  two spaces ",
					    "real (deleted)",
					    "new\nline",
					    "\nffffffff-fffffffff r-xp 00000000 00:01 1 libpython3.12.so",
					    "back\\012slash",
					    "(deleted)",
					    "\xff\xfe\x01"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		expect_name(*state, names[i], false);
}

static void test_deleted(void **state)
{
	if (geteuid()) {
		print_message("needs root for map_files\n");
		skip();
	}
	expect_name(*state, "gone", true);
	expect_name(*state, "gone (deleted)", true);
	expect_name(*state, "gone\nline", true);
}

/* Between the look at the maps and the opening, another file, a FIFO or a device takes the path. */
static void test_replaced(void **state)
{
	const struct sleeper *sleeper = *state;
	const struct mapped_file *file;
	struct process process;
	struct stat st;
	char path[PATH_MAX];
	pid_t pid;
	int fd;

	if (geteuid()) {
		print_message("needs root for map_files\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/replaced", sleeper->folder);
	for (int round = 0; round < 3; round++) {
		copy_file(sleeper->program, path);
		pid = start_program(path, (const char *const[]){"sleep", "60", NULL}, NULL);
		assert_int_equal(process__read(pid, &process), 0);
		file = find_path(&process, path);
		assert_non_null(file);
		unlink(path);
		if (round == 0)
			copy_file("/proc/self/exe", path);
		else if (round == 1)
			assert_int_equal(mkfifo(path, 0600), 0);
		else
			assert_int_equal(symlink("/dev/zero", path), 0);
		fd = mapped_file__open(file);
		assert_true(fd >= 0 && !fstat(fd, &st));
		assert_int_equal(st.st_ino, file->inode);
		close(fd);
		/* the mapping is gone: nothing is opened in its place */
		end_child(pid);
		assert_true(mapped_file__open(file) < 0);
		process__release(&process);
		unlink(path);
	}
}

/* In a mount namespace of its own: a file on a file system that the parent does not see. */
static bool map_privately(void *arg)
{
	const struct sleeper *sleeper = arg;
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/private", sleeper->folder);
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", sleeper->folder, "tmpfs", 0, NULL))
		return false;
	copy_file(sleeper->program, path);
	fd = open(path, O_RDONLY);
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
}

static void test_mount_namespace(void **state)
{
	const struct sleeper *sleeper = *state;
	const struct mapped_file *file;
	struct process process;
	char expected[PATH_MAX], path[PATH_MAX];
	bool done;
	pid_t pid;

	pid = start_child(map_privately, *state, &done);
	if (!done) {
		end_child(pid);
		print_message("needs root for a mount namespace\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/private", sleeper->folder);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(process__read(pid, &process), 0);
	file = find_path(&process, path);
	assert_non_null(file);
	snprintf(expected, sizeof(expected), "/proc/%d/root%s/private", pid, sleeper->folder);
	assert_string_equal(file->open_path, expected);
	assert_int_equal(size_of(file->open_path), size_of(sleeper->program));
	assert_int_equal(file->content.bytes, size_of(sleeper->program));
	process__release(&process);
	end_child(pid);
}

/* ---- environment, memory ---- */

static void test_environ(void **state)
{
	static const char *const environment[] = {"RANK_X=9", "RANK=a=b c", "EMPTY=", "NONSENSE", "RANK=2", NULL};
	const struct sleeper *sleeper = *state;
	char value[64], tiny[4], empty[8] = "before", none[8] = "before";
	const struct environ_value wanted[] = {{"RANK", value, sizeof(value)},
					       {"RANK", tiny, sizeof(tiny)},
					       {"EMPTY", empty, sizeof(empty)},
					       {"RAN", none, sizeof(none)}};
	pid_t pid;

	pid = start_program(sleeper->program, (const char *const[]){"sleep", "60", NULL}, environment);
	assert_int_equal(process__environ(pid, "RANK", value, sizeof(value)), 0);
	assert_string_equal(value, "a=b c");
	assert_int_equal(process__environ(pid, "RANK", tiny, sizeof(tiny)), 0);
	assert_string_equal(tiny, "a=b");
	assert_int_equal(process__environ(pid, "EMPTY", value, sizeof(value)), 0);
	assert_string_equal(value, "");
	assert_int_equal(process__environ(pid, "RAN", value, sizeof(value)), -ENOENT);
	assert_int_equal(process__environ(pid, "NONSENSE", value, sizeof(value)), -ENOENT);
	assert_int_equal(process__environs(pid, wanted, 4), 0);
	assert_string_equal(value, "a=b c");
	assert_string_equal(tiny, "a=b");
	assert_string_equal(empty, "");
	assert_string_equal(none, "");
	end_child(pid);
	assert_int_equal(process__environ(pid, "RANK", value, sizeof(value)), -ESRCH);
}

/* The longest of what /proc says; cut where there is no room. */
static void test_cgroup(void **state)
{
	char path[4096], cut[2], line[4200];
	FILE *file = fopen("/proc/self/cgroup", "r");
	bool listed = false;

	assert_non_null(file);
	assert_int_equal(process__cgroup(getpid(), path, sizeof(path)), 0);
	while (fgets(line, sizeof(line), file)) {
		const char *of = strchr(strchr(line, ':') + 1, ':') + 1;

		line[strcspn(line, "\n")] = 0;
		assert_true(strlen(of) <= strlen(path));
		listed |= !strcmp(of, path);
	}
	fclose(file);
	assert_true(listed && path[0] == '/');
	assert_int_equal(process__cgroup(getpid(), cut, sizeof(cut)), 0);
	assert_string_equal(cut, "/");
	assert_int_equal(process__cgroup(0x3fffff, path, sizeof(path)), -ESRCH);
}

static void test_memory(void **state)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t address = (uint64_t)(uintptr_t)pages;
	char buffer[16];

	assert_true(pages != MAP_FAILED);
	memcpy(pages, "fifteen letters", 16);
	munmap(pages + 4096, 4096);
	assert_int_equal(process__read_memory(getpid(), address, buffer, 16), 0);
	assert_string_equal(buffer, "fifteen letters");
	assert_int_equal(process__read_memory(getpid(), address + 4080, buffer, 16), 0);
	assert_int_equal(process__read_memory(getpid(), address + 4088, buffer, 16), -EFAULT); /* half of it */
	assert_int_equal(process__read_memory(getpid(), 0, buffer, 16), -EFAULT);
	assert_int_equal(process__read_memory(getpid(), UINT64_MAX - 3, buffer, 16), -EFAULT);
	assert_int_equal(process__read_memory(0x7fffffff, address, buffer, 16), -ESRCH);
	munmap(pages, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_self),          cmocka_unit_test(test_thread_id),
		cmocka_unit_test(test_hostile_comm),  cmocka_unit_test(test_command),
		cmocka_unit_test(test_gone),          cmocka_unit_test(test_forbidden),
		cmocka_unit_test(test_kernel_thread), cmocka_unit_test(test_bases),
		cmocka_unit_test(test_hostile_names), cmocka_unit_test(test_deleted),
		cmocka_unit_test(test_replaced),      cmocka_unit_test(test_mount_namespace),
		cmocka_unit_test(test_environ),       cmocka_unit_test(test_cgroup),
		cmocka_unit_test(test_memory),        cmocka_unit_test(test_usage),
	};

	return cmocka_run_group_tests(tests, setup_sleeper, teardown_sleeper);
}
