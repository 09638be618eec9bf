/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Times and sizes as they are given on the command line (user/cmd/session_args.c). What is refused ends the program: tests/replay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "user/cmd/session_args.h"

#define MS 1000000ull
#define S  (1000 * MS)

static void test_times(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} times[] = {
		{"10", 10 * S},      {"10s", 10 * S},    {"0.5", 500 * MS}, {"1.5s", 1500 * MS},
		{"500ms", 500 * MS}, {"0.25ms", 250000}, {"2m", 120 * S},   {"1.5m", 90 * S},
		{"1h", 3600 * S},    {"0.5h", 1800 * S}, {"1e3ms", S},      {"1e-6ms", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++)
		assert_int_equal(session_args__time(NULL, times[i].text), times[i].ns);
}

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {
		{"1", 1},          {"4096", 4096},     {"1K", 1 << 10},    {"1M", 1 << 20},
		{"1.5M", 3 << 19}, {"2G", 2ull << 30}, {"1T", 1ull << 40},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		assert_int_equal(session_args__size(NULL, sizes[i].text), sizes[i].bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
