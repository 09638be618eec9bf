/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which threads that wait are looked at from outside: a few at a time, each so many times, and all that run Python in the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "user/session/sources/awaited.c"

static struct awaited own;
static struct session session = {.state[SOURCE_AWAITED] = &own};

static int begin(void **state)
{
	(void)state;
	memset(&own, 0, sizeof(own));
	return 0;
}

static int finish(void **state)
{
	(void)state;
	free_state(&session);
	return 0;
}

static void wait_in(pid_t pid, pid_t tid, uint64_t stack)
{
	const struct rec_sample sample = {.kind = SAMPLE_WAIT,
					  .cause = CAUSE_LOCK,
					  .waits = 1,
					  .weight_ns = LEAST_NS,
					  .pid = pid,
					  .tid = tid,
					  .stack = stack};

	awaited__note(&session, &sample);
}

static bool is_asked(pid_t pid, pid_t tid)
{
	for (size_t i = 0; i < own.cnt; i++)
		if (own.threads[i].pid == pid && own.threads[i].tid == tid)
			return true;
	return false;
}

/* The threads of a pool of C++ wait for locks all the time, and say nothing. */
static void test_native_threads(void **state)
{
	(void)state;
	for (pid_t tid = 0; tid < 2 * THREADS_MAX; tid++)
		wait_in(10, 11 + tid, 0);
	assert_int_equal(own.cnt, 0);
	wait_in(10, 10, 1);
	assert_true(is_asked(10, 10));
}

static void test_places(void **state)
{
	(void)state;
	for (pid_t tid = 0; tid < THREADS_MAX; tid++) {
		wait_in(10, 10 + tid, 1);
		wait_in(10, 10 + tid, 1);
	}
	wait_in(20, 20, 1);
	assert_int_equal(own.cnt, THREADS_MAX);
	assert_false(is_asked(20, 20));
	own.threads[3].looks = LOOKS_MAX;
	wait_in(10, 13, 1);
	assert_int_equal(own.threads[3].looks, LOOKS_MAX);
	wait_in(20, 20, 1);
	assert_true(is_asked(20, 20));
	assert_false(is_asked(10, 13));
	/* it had its looks */
	own.threads[4].looks = LOOKS_MAX;
	wait_in(10, 13, 1);
	assert_false(is_asked(10, 13));
	/* the number of a thread that ended, in another process */
	wait_in(30, 20, 1);
	assert_true(is_asked(30, 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_native_threads, begin, finish),
		cmocka_unit_test_setup_teardown(test_places, begin, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
