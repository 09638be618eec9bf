/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * inject__load into children of the test: the C library itself is what is loaded, and getpid what is called, so that the
 * answer is known; the child's sleeps are as long as they must be. No root: a child may be traced.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/children.h"
#include "user/session/sources/inject.h"

#define NAP_MS 20

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e3 + ts.tv_nsec / 1e6;
}

/* Sleeps until the pipe is closed; the exit status says whether a sleep was cut short. */
static pid_t start_sleeper(int *end)
{
	const struct timespec nap = {.tv_nsec = NAP_MS * 1000000};
	int ends[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	pid = fork_child();
	if (!pid) {
		close(ends[1]);
		do {
			double began = now_ms();

			if (nanosleep(&nap, NULL) || now_ms() - began < NAP_MS)
				_exit(1);
		} while (read(ends[0], &byte, 1) < 0);
		_exit(0);
	}
	close(ends[0]);
	*end = ends[1];
	return pid;
}

static void check_end(pid_t pid, int end)
{
	int status;

	close(end);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int load(pid_t pid, const char *library, const char *entry, struct remote_load *out)
{
	struct process process;
	int err;

	assert_int_equal(process__read(pid, &process), 0);
	err = inject__load(&process, library, entry, out);
	process__release(&process);
	return err;
}

static void test_called(void **state)
{
	struct remote_load found;
	int end;
	pid_t pid = start_sleeper(&end);

	assert_int_equal(load(pid, "libc.so.6", "getpid", &found), 0);
	assert_int_equal(found.result, pid);
	assert_int_equal(found.tid, pid);
	assert_true(found.stopped_ns > 0 && found.loaded_ns > 0);
	check_end(pid, end);
	(void)state;
}

static void test_not_there(void **state)
{
	struct remote_load found;
	int end;
	pid_t pid = start_sleeper(&end);
	char path[2000];

	assert_int_equal(load(pid, "/nowhere/lib.so", "getpid", &found), -ENOENT);
	assert_non_null(strstr(found.why, "/nowhere/lib.so"));
	assert_int_equal(load(pid, "libc.so.6", "no_such_function", &found), -ENOENT);
	assert_non_null(strstr(found.why, "no_such_function"));
	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = 0;
	assert_int_equal(load(pid, path, "getpid", &found), -ENAMETOOLONG);
	check_end(pid, end);
	(void)state;
}

/* One that computes and never waits is left alone. */
static void test_busy(void **state)
{
	struct remote_load found;
	pid_t pid = fork_child();

	for (volatile int forever = !pid; forever;)
		;
	assert_int_equal(load(pid, "libc.so.6", "getpid", &found), -EAGAIN);
	assert_non_null(strstr(found.why, "none of its threads"));
	assert_int_equal(found.tid, 0);
	end_child(pid);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_called),
		cmocka_unit_test(test_not_there),
		cmocka_unit_test(test_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
