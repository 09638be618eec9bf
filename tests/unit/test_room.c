// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* When a disk is short of room, and when a new ring begins (user/watch/watch.c). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "user/watch/jobs.h"

static bool all_ended(const struct watched_jobs *jobs)
{
	(void)jobs;
	return true;
}

#define watched_jobs__all_ended all_ended
#include "user/watch/watch.c"

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

/* The loop does not wait for a child that keeps an event, however long that takes: it has the old ring. */
static void test_ring_is_kept(void **state)
{
	static const struct watch_options options = {.state = "/nonexistent"};
	static const struct session_progress progress = {.elapsed_ns = 1};
	static struct watch watch = {.options = &options};

	(void)state;
	watch.events.child = fork();
	if (!watch.events.child) {
		alarm(5);
		pause();
	}
	assert_int_equal(renew_ring(&watch, &progress), 0);
	assert_int_equal(kill(watch.events.child, SIGKILL), 0);
	events__end(&watch.events);
	assert_int_not_equal(renew_ring(&watch, &progress), 0); /* there is no such folder */
}

/* Four in the last minutes of an hour leave no room for four more in the first of the next. */
static void test_per_hour(void **state)
{
	static const struct watch_options options = {.per_hour = 4};
	static struct watch watch = {.options = &options};
	static const uint64_t minutes[] = {1, 56, 57, 58, 60, 61, 62, 115, 116, 117, 118};
	static const bool wanted[] = {true, true, true, true, false, true, false, false, true, true, true};

	(void)state;
	for (size_t i = 0; i < sizeof(minutes) / sizeof(*minutes); i++) {
		watch.now_ns = HOUR_NS + minutes[i] * (HOUR_NS / 60);
		assert_int_equal(is_wanted(&watch, NULL, TRIGGER_SLOW), wanted[i]);
		if (wanted[i])
			count_kept(&watch);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_disk),     cmocka_unit_test(test_large_disk),
		cmocka_unit_test(test_wanted),         cmocka_unit_test(test_ends_later),
		cmocka_unit_test(test_no_such_folder), cmocka_unit_test(test_ring_is_kept),
		cmocka_unit_test(test_per_hour),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
