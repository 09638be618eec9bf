// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The deputy (user/proc/deputy.h): answers, is killed, and does not answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/proc/deputy.h"

static int say_pid(const void *in, struct deputy_out *out)
{
	pid_t pid = getpid();

	memcpy(out->bytes, &pid, sizeof(pid));
	out->size = sizeof(pid);
	return *(const int *)in;
}

static int never_return(const void *in, struct deputy_out *out)
{
	(void)in;
	(void)out;
	while (pause())
		;
	return 0;
}

static int hand_null(const void *in, struct deputy_out *out)
{
	(void)out;
	deputy__hand(open(in, O_PATH | O_CLOEXEC));
	return 0;
}

static pid_t ask(int value)
{
	const struct deputy_out *out;
	pid_t pid;

	assert_int_equal(deputy__run(1, say_pid, &value, sizeof(value), &out), value);
	assert_int_equal(out->size, sizeof(pid));
	memcpy(&pid, out->bytes, sizeof(pid));
	return pid;
}

static void test_answers(void **state)
{
	pid_t pid = ask(7);

	assert_int_not_equal(pid, getpid());
	assert_int_equal(ask(-EAGAIN), pid);
	assert_false(deputy__is_self());
	kill(pid, SIGKILL); /* by somebody: another one takes its place */
	assert_int_not_equal(ask(8), pid);
	(void)state;
}

static void test_silent(void **state)
{
	pid_t pid = ask(1);

	deputy__set_patience(50);
	assert_int_equal(deputy__run(getppid(), never_return, "", 1, NULL), -ETIMEDOUT);
	assert_true(deputy__gave_up(getppid()));
	assert_int_equal(deputy__run(getppid(), never_return, "", 1, NULL), -ETIMEDOUT);
	assert_false(deputy__gave_up(1));
	/* who asks with a patience of his own asks again */
	assert_int_equal(deputy__run(getppid(), say_pid, &(int){7}, sizeof(int), NULL), 7);
	deputy__set_patience(0);
	assert_int_equal(deputy__run(getppid(), say_pid, &(int){7}, sizeof(int), NULL), -ETIMEDOUT);
	assert_int_not_equal(ask(1), pid);
	(void)state;
}

static void test_hands(void **state)
{
	struct stat handed, null;
	int fd;

	assert_int_equal(deputy__run(1, hand_null, "/dev/null", 10, NULL), 0);
	fd = deputy__take();
	assert_true(fd >= 0 && !fstat(fd, &handed) && !stat("/dev/null", &null));
	assert_int_equal(handed.st_rdev, null.st_rdev);
	close(fd);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_hands),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
