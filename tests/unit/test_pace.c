// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A process is slower once two windows in a row are longer than is usual (user/analysis/live/trigger.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "user/analysis/live/trigger.c"

#define MS      1000000ull
#define PERCENT 10

static struct pace pace;
static uint64_t now_ns, step, told;

static int setup(void **state)
{
	(void)state;
	memset(&pace, 0, sizeof(pace));
	now_ns = step = told = 0;
	return 0;
}

static void one(uint64_t ms)
{
	now_ns += ms * MS;
	told += pace__add(&pace, ++step, now_ns, ms * MS, PERCENT);
}

/* Windows of equal steps. */
static void windows(int cnt, uint64_t ms)
{
	while (cnt--) {
		uint64_t begin_ns = now_ns;

		while (now_ns < begin_ns + PACE_NS)
			one(ms);
	}
}

static void test_slower(void **state)
{
	uint64_t begin_ns, begin_step;

	(void)state;
	windows(PACE_WINDOWS + 3, 100);
	begin_ns = now_ns;
	begin_step = step + 1;
	windows(1, 125);
	assert_int_equal(told, 0);
	windows(1, 125);
	assert_int_equal(told, 1);
	assert_int_equal(pace.change.usual_ns, 100 * MS);
	assert_int_equal(pace.change.now_ns, 125 * MS);
	assert_int_equal(pace.change.since_ns, begin_ns);
	assert_int_equal(pace.change.since_step, begin_step);
	windows(PACE_WINDOWS - 1, 125); /* told once */
	assert_int_equal(told, 1);
}

/* By less; for one window; in single steps, however long; and before there is anything usual. */
static void test_not_slower(void **state)
{
	(void)state;
	windows(PACE_WINDOWS / 2 - 1, 100);
	windows(PACE_WINDOWS, 200);
	assert_int_equal(told, 0);
	setup(NULL);
	windows(PACE_WINDOWS, 100);
	windows(50, 110);
	assert_int_equal(told, 0);
	setup(NULL);
	windows(PACE_WINDOWS, 100);
	for (int i = 0; i < 20; i++) {
		windows(1, 125);
		windows(1, 100);
	}
	assert_int_equal(told, 0);
	for (int i = 0; i < 1000; i++)
		one(i % 3 ? 100 : 5000);
	assert_int_equal(told, 0);
}

/* Back to what was usual, it may become slower again; what has lasted is usual. */
static void test_again(void **state)
{
	(void)state;
	windows(PACE_WINDOWS, 100);
	windows(4, 125);
	windows(1, 108); /* not back: longer by more than half of the percentage */
	windows(2, 125);
	assert_int_equal(told, 1);
	windows(2, 100);
	windows(2, 125);
	assert_int_equal(told, 2);
	windows(3 * PACE_WINDOWS, 200);
	told = 0;
	windows(2, 250);
	assert_int_equal(told, 1);
	assert_int_equal(pace.change.usual_ns, 200 * MS);
}

/* A window has 20 steps, however long they are; of very many, some are kept. */
static void test_lengths(void **state)
{
	(void)state;
	for (int i = 0; i < PACE_STEPS_MIN * PACE_WINDOWS; i++)
		one(60000);
	for (int i = 0; i < 2 * PACE_STEPS_MIN - 1; i++)
		one(70000);
	assert_int_equal(told, 0);
	one(70000);
	assert_int_equal(told, 1);
	setup(NULL);
	windows(PACE_WINDOWS, 1);
	for (uint64_t i = 0; i < 2 * PACE_NS / MS; i++) /* most of them take two */
		one(i % 5 < 2 ? 1 : 2);
	assert_int_equal(told, 1);
	assert_int_equal(pace.change.now_ns, 2 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_slower, setup),
		cmocka_unit_test_setup(test_not_slower, setup),
		cmocka_unit_test_setup(test_again, setup),
		cmocka_unit_test_setup(test_lengths, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
