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

#include "user/proc/deputy.c"

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

static int spin(const void *in, struct deputy_out *out)
{
	(void)in;
	(void)out;
	for (volatile bool always = true; always;)
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
	deputy__set_patience(0);
	assert_int_equal(deputy__run(getppid(), say_pid, &(int){7}, sizeof(int), NULL), -ETIMEDOUT);
	/* who asks with a patience of his own asks at once; it answers, and so it does to others */
	deputy__set_patience(50);
	assert_int_equal(deputy__run(getppid(), say_pid, &(int){7}, sizeof(int), NULL), 7);
	deputy__set_patience(0);
	assert_false(deputy__gave_up(getppid()));
	assert_int_equal(deputy__run(getppid(), say_pid, &(int){7}, sizeof(int), NULL), 7);
	assert_int_not_equal(ask(1), pid);
	(void)state;
}

/* The next time that it is asked, as if it had come. */
static void come(pid_t pid)
{
	find_silent(pid)->again_ms = now_ms();
}

/* One that does not answer is asked again, more and more seldom, and no more while others have cost enough of the minute. */
static void test_asked_again(void **state)
{
	pid_t pid = getppid();
	uint64_t before = now_ms(), first, second;

	(void)state;
	deputy__set_patience(1);
	assert_int_equal(deputy__run(pid, never_return, "", 1, NULL), -ETIMEDOUT);
	first = find_silent(pid)->again_ms;
	assert_true(first >= before + AGAIN_MS && first <= now_ms() + AGAIN_MS);
	assert_int_equal(deputy__run(pid, never_return, "", 1, NULL), -ETIMEDOUT);
	second = find_silent(pid)->again_ms;
	assert_true(second >= first + AGAIN_MS);
	for (int i = 0; i < 2 * AGAIN_MAX; i++)
		assert_int_equal(deputy__run(pid, never_return, "", 1, NULL), -ETIMEDOUT);
	assert_true(find_silent(pid)->again_ms <= now_ms() + ((uint64_t)AGAIN_MS << AGAIN_MAX));
	deputy__set_patience(0);
	assert_int_equal(patience_ms(pid), IMPATIENCE_MS);
	assert_int_equal(deputy__run(pid, say_pid, &(int){7}, sizeof(int), NULL), -ETIMEDOUT);
	assert_true(deputy__refuses(pid));
	come(pid);
	lost_ms = LOST_MS;
	assert_int_equal(deputy__run(pid, say_pid, &(int){7}, sizeof(int), NULL), -ETIMEDOUT);
	lost_ms = 0;
	assert_false(deputy__refuses(pid));
	assert_int_equal(deputy__run(pid, say_pid, &(int){7}, sizeof(int), NULL), 7);
	assert_false(deputy__gave_up(pid));
	assert_int_equal(patience_ms(pid), PATIENCE_MS);
}

static pid_t start_idle(void)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return pid;
}

static void stop_idle(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* A deputy that runs, or waits for a processor, gets more time; that ends, too. */
static void test_not_blocked(void **state)
{
	pid_t pid = start_idle();
	uint64_t before = now_ms();

	(void)state;
	deputy__set_patience(2);
	assert_int_equal(deputy__run(pid, spin, "", 1, NULL), -ETIMEDOUT);
	assert_true(now_ms() - before >= 2 * EXTENSIONS);
	assert_true(deputy__gave_up(pid));
	deputy__set_patience(0);
	stop_idle(pid);
}

/* Each is waited for once, however many there are. Those that have ended are forgotten. */
static void test_many_silent(void **state)
{
	enum { MANY = SILENT_MIN + 4 };
	static pid_t pids[MANY];
	int said = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);

	(void)state;
	dup2(null, STDERR_FILENO); /* a message for each */
	deputy__set_patience(1);
	for (int i = 0; i < MANY; i++) {
		pids[i] = start_idle();
		assert_int_equal(deputy__run(pids[i], never_return, "", 1, NULL), -ETIMEDOUT);
	}
	deputy__set_patience(0);
	dup2(said, STDERR_FILENO);
	close(said);
	close(null);
	for (int i = 0; i < MANY; i++)
		assert_true(deputy__gave_up(pids[i]));
	for (int i = 0; i < MANY - 1; i++)
		stop_idle(pids[i]);
	forget_silent();
	assert_false(deputy__gave_up(pids[0]));
	assert_true(deputy__gave_up(pids[MANY - 1]));
	stop_idle(pids[MANY - 1]);
	forget_silent();
	assert_true(silent.items.cnt <= 1); /* the parent, of the test before */
}

/* Where deputies do not end although they are killed, there are not more and more of them. */
static void test_not_reaped(void **state)
{
	pid_t pid = start_idle();

	(void)state;
	ask(1);
	kill_deputy();
	for (size_t i = 0; i < KILLED_MAX; i++)
		killed[i] = pid;
	assert_int_equal(deputy__run(1, say_pid, &(int){7}, sizeof(int), NULL), -EAGAIN);
	stop_idle(pid);
	ask(7);
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
		cmocka_unit_test(test_answers),     cmocka_unit_test(test_silent),
		cmocka_unit_test(test_asked_again), cmocka_unit_test(test_not_blocked),
		cmocka_unit_test(test_many_silent), cmocka_unit_test(test_not_reaped),
		cmocka_unit_test(test_hands),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
