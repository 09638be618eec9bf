// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* When a disk is short of room (user/watch/watch.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "user/watch/watch.h"

#define GB 1000000000ull

static void test_small_disk(void **state)
{
	(void)state;
	assert_false(room__is_short(0, 20 * GB, 2 * GB, false));
	assert_true(room__is_short(0, 20 * GB, 2 * GB - 1, false));
}

static void test_large_disk(void **state)
{
	(void)state;
	assert_false(room__is_short(0, 10000 * GB, 5 * GB, false));
	assert_true(room__is_short(0, 10000 * GB, 5 * GB - 1, false));
}

static void test_wanted(void **state)
{
	(void)state;
	assert_false(room__is_short(GB, 20 * GB, GB, false));
	assert_true(room__is_short(GB, 20 * GB, GB - 1, false));
}

/* It does not go to and fro. */
static void test_ends_later(void **state)
{
	(void)state;
	assert_true(room__is_short(0, 20 * GB, 2.3 * GB, true));
	assert_false(room__is_short(0, 20 * GB, 2.4 * GB, true));
}

static void test_no_such_folder(void **state)
{
	(void)state;
	assert_false(room__is_short_at("/nonexistent", 0, true));
	assert_false(room__is_short_at("/", 1, false));
	assert_true(room__is_short_at("/", UINT64_MAX, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_disk), cmocka_unit_test(test_large_disk),     cmocka_unit_test(test_wanted),
		cmocka_unit_test(test_ends_later), cmocka_unit_test(test_no_such_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
