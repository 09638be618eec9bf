/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is meant by a mistyped word (user/lib/similar.c), and what is said while a recording goes on (user/cmd/progress.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/cmd/progress.h"
#include "user/lib/similar.h"

#define S 1000000000ULL

static void test_distance(void **state)
{
	char longest[34];

	memset(longest, 'a', 33);
	longest[33] = 0;
	assert_int_equal(similar__distance("", ""), 0);
	assert_int_equal(similar__distance("record", "record"), 0);
	assert_int_equal(similar__distance("recrod", "record"), 1); /* swapped */
	assert_int_equal(similar__distance("recor", "record"), 1);
	assert_int_equal(similar__distance("rrecord", "record"), 1);
	assert_int_equal(similar__distance("regord", "record"), 1);
	assert_int_equal(similar__distance("", "record"), 6);
	assert_int_equal(similar__distance("kitten", "sitting"), 3);
	assert_true(similar__distance(longest, "a") == SIZE_MAX && similar__distance("a", longest) == SIZE_MAX);
	assert_int_equal(similar__distance(longest + 1, ""), 32);
}

static const char *meant_by(const char *word)
{
	static const char *const words[] = {"record", "report", "restore", "top", "ps"};
	struct similar similar = {.word = word};

	for (size_t i = 0; i < 5; i++)
		similar__try(&similar, words[i]);
	return similar.best ?: "";
}

static void test_best(void **state)
{
	assert_string_equal(meant_by("recrod"), "record");
	assert_string_equal(meant_by("reprot"), "report");
	assert_string_equal(meant_by("recort"), "record"); /* one from either: the first */
	assert_string_equal(meant_by("tpo"), "top");
	assert_string_equal(meant_by("sp"), ""); /* of two characters none may be wrong */
	assert_string_equal(meant_by("xyzzy"), "");
	assert_string_equal(meant_by(""), "");
}

static void test_times(void **state)
{
	char text[32];

	assert_string_equal(progress__time(0, text), "0.0 s");
	assert_string_equal(progress__time(12340000000ULL, text), "12.3 s");
	assert_string_equal(progress__time(100 * S, text), "1 min 40 s");
	assert_string_equal(progress__time(3600 * S + 120 * S, text), "1 h 2 min");
}

/* What is said on stderr, which is no terminal, at these times. */
static const char *said(struct progress *progress, const uint64_t *ms, size_t cnt)
{
	static char text[4096];
	FILE *file = tmpfile();
	int before = dup(STDERR_FILENO);
	size_t bytes;

	assert_true(file && before >= 0);
	fflush(stderr);
	dup2(fileno(file), STDERR_FILENO);
	for (size_t i = 0; i < cnt; i++) {
		struct session_progress now = {
			.elapsed_ns = ms[i] * 1000000, .steps = ms[i] / 100, .calls = ms[i] / 10, .lost = i};

		progress__show(progress, &now);
	}
	progress__clear(progress);
	fflush(stderr);
	dup2(before, STDERR_FILENO);
	close(before);
	rewind(file);
	bytes = fread(text, 1, sizeof(text) - 1, file);
	text[bytes] = 0;
	fclose(file);
	return text;
}

/* One line each ten seconds, however seldom it is asked. */
static void test_lines(void **state)
{
	struct progress unknown = {0}, known = {.duration_ns = 60 * S};

	assert_string_equal(said(&unknown, (const uint64_t[]){0, 9900, 10000, 10100, 35000, 39900, 40000}, 7),
			    "stepflame: 10.0 s recorded: 100 steps, 1000 calls, 2 lost\n"
			    "stepflame: 35.0 s recorded: 350 steps, 3500 calls, 4 lost\n"
			    "stepflame: 40.0 s recorded: 400 steps, 4000 calls, 6 lost\n");
	assert_string_equal(said(&known, (const uint64_t[]){9000, 20000, 60000}, 3),
			    "stepflame: 20.0 s recorded, 40.0 s left: 200 steps, 2000 calls, 1 lost\n"
			    "stepflame: 60.0 s recorded: 600 steps, 6000 calls, 2 lost\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_distance),
		cmocka_unit_test(test_best),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
