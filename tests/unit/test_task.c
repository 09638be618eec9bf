/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a blocked thread waits for, by its system call and the kind of file; and the threads of processes that the test
 * starts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "tests/children.h"
#include "user/proc/task.h"

static enum wait_cause cause(char state, long syscall, uint64_t arg0, uint64_t arg1)
{
	const struct py_process py = {.gil_address = 0x1000, .gil_bytes = 208};
	const struct task task = {.state = state, .syscall = syscall, .args = {arg0, arg1}};

	return task__cause(getpid(), &task, &py);
}

static void test_causes(void **state)
{
	const struct task futex = {.state = 'S', .syscall = SYS_futex, .args = {0x1000}};
	int ends[2], sockets[2], file = open("/proc/self/exe", O_RDONLY), null = open("/dev/null", O_RDONLY);

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	assert_int_equal(cause('S', SYS_futex, 0x1000, 0), CAUSE_GIL);
	assert_int_equal(cause('S', SYS_futex, 0x1000 + 207, 0), CAUSE_GIL);
	assert_int_equal(cause('S', SYS_futex, 0x1000 + 208, 0), CAUSE_LOCK);
	assert_int_equal(cause('S', SYS_futex, 0xfff, 0), CAUSE_LOCK);
	assert_int_equal(task__cause(getpid(), &futex, NULL), CAUSE_LOCK);
	assert_int_equal(cause('S', SYS_read, (uint64_t)ends[0], 0), CAUSE_PIPE);
	assert_int_equal(cause('S', SYS_write, (uint64_t)ends[1], 0), CAUSE_PIPE);
	assert_int_equal(cause('S', SYS_read, (uint64_t)sockets[0], 0), CAUSE_SOCKET);
	assert_int_equal(cause('D', SYS_pread64, (uint64_t)file, 0), CAUSE_DISK_READ);
	assert_int_equal(cause('D', SYS_write, (uint64_t)file, 0), CAUSE_DISK_WRITE);
	assert_int_equal(cause('D', SYS_pwritev2, (uint64_t)file, 0), CAUSE_DISK_WRITE);
	assert_int_equal(cause('S', SYS_sendfile, (uint64_t)sockets[0], (uint64_t)file), CAUSE_SOCKET);
	assert_int_equal(cause('D', SYS_sendfile, (uint64_t)sockets[0], (uint64_t)file), CAUSE_DISK_READ);
	assert_int_equal(cause('S', SYS_read, (uint64_t)null, 0), CAUSE_UNKNOWN);
	assert_int_equal(cause('S', SYS_read, 9999, 0), CAUSE_UNKNOWN);
	assert_int_equal(cause('S', SYS_select, 0, 0), CAUSE_SLEEP);
	assert_int_equal(cause('S', SYS_pselect6, 4, 0), CAUSE_POLL);
	assert_int_equal(cause('S', SYS_poll, 0x7000, 2), CAUSE_POLL);
	assert_int_equal(cause('S', SYS_poll, 0, 0), CAUSE_SLEEP);
	assert_int_equal(cause('D', SYS_fsync, 3, 0), CAUSE_FSYNC);
	assert_int_equal(cause('D', SYS_openat, 0, 0), CAUSE_DISK_READ);
	assert_int_equal(cause('S', SYS_openat, 0, 0), CAUSE_UNKNOWN);
	assert_int_equal(cause('D', TASK_NO_SYSCALL, 0, 0), CAUSE_PAGE_FAULT);
	assert_int_equal(cause('S', 9999, 0, 0), CAUSE_UNKNOWN);
	assert_int_equal(cause('R', TASK_SYSCALL_UNKNOWN, 0, 0), CAUSE_NONE);
	assert_int_equal(cause('T', SYS_read, 0, 0), CAUSE_NONE);
}

static bool rename_oneself(void *arg)
{
	return !prctl(PR_SET_NAME, ") R 1 (\n", 0, 0, 0);
}

/* A name that looks like the rest of the line misleads nobody. */
static void test_name(void **state)
{
	struct task task;
	pid_t *tids;
	bool done;
	pid_t pid = start_child(rename_oneself, NULL, &done);

	assert_true(done);
	assert_int_equal(task__list(pid, &tids), 1);
	assert_int_equal(tids[0], pid);
	free(tids);
	for (int i = 0; i < 1000; i++) { /* until it waits */
		assert_int_equal(task__read(pid, pid, &task), 0);
		if (task.state != 'R')
			break;
		usleep(1000);
	}
	assert_string_equal(task.name, ") R 1 (\n");
	assert_string_equal(task__state(&task), "sleeping");
	assert_string_equal(task__syscall(&task), "pause");
	assert_int_equal(task.nstid, pid);
	assert_true(task.blocked_s < 60);
	end_child(pid);
	assert_int_equal(task__list(pid, &tids), -ESRCH);
	assert_int_equal(task__read(pid, pid, &task), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_causes), cmocka_unit_test(test_name)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
