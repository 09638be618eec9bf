/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A command behind --: when it begins, and how it ended, in the numbers of a shell. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/session/launch.h"

/* Runs a command to its end. Returns its exit code; *err: of launch__release. */
static int run(char **argv, int *err)
{
	const struct launch_user same = {0};
	struct launch launch = {.go = -1};
	int code;

	assert_int_equal(launch__fork(&launch, argv, &same), 0);
	*err = launch__release(&launch);
	launch__reap(&launch, true);
	assert_true(launch.ended);
	code = launch__exit_code(&launch);
	launch__close(&launch);
	return code;
}

static int run_shell(const char *script)
{
	int err, code = run((char *[]){"sh", "-c", (char *)script, NULL}, &err);

	assert_int_equal(err, 0);
	return code;
}

static void test_ends(void **state)
{
	(void)state;
	assert_int_equal(run_shell("exit 0"), 0);
	assert_int_equal(run_shell("exit 7"), 7);
	assert_int_equal(run_shell("exit 255"), 255);
	assert_int_equal(run_shell("kill -KILL $$"), 128 + SIGKILL);
	assert_int_equal(run_shell("kill -TERM $$"), 128 + SIGTERM);
	assert_int_equal(run_shell("kill -PIPE $$"), 128 + SIGPIPE); /* which is not ignored there */
}

static void test_cannot_run(void **state)
{
	int err;

	(void)state;
	assert_int_equal(run((char *[]){"/nowhere/no such program", NULL}, &err), 127);
	assert_int_equal(err, -ENOENT);
	assert_int_equal(run((char *[]){"/dev/null", NULL}, &err), 126);
	assert_int_equal(err, -EACCES);
}

/* stepflame gave up before it began: it never does. */
static void test_given_up(void **state)
{
	const struct launch_user same = {0};
	struct launch launch = {.go = -1};

	(void)state;
	assert_int_equal(launch__fork(&launch, (char *[]){"sh", "-c", "exit 7", NULL}, &same), 0);
	launch__reap(&launch, false);
	assert_false(launch.ended);
	launch__close(&launch);
	launch__reap(&launch, true);
	assert_int_equal(launch__exit_code(&launch), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_cannot_run),
		cmocka_unit_test(test_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
