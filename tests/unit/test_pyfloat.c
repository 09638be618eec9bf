// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* pyfloat__format against what CPython 3.11 prints. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "user/report/simple.c"

/* Printed by: for x in ...: print(f"{x!r}, '{x:.5}'") */
static const struct {
	double value;
	int precision;
	const char *text;
} cases[] = {
	{0.0, 5, "0.0"},
	{-0.0, 5, "-0.0"},
	{1.0, 5, "1.0"},
	{0.5, 5, "0.5"},
	{100.0, 5, "100.0"},
	{1234.5, 5, "1234.5"},
	{9999.0, 5, "9999.0"},
	{9999.95, 5, "1e+04"},
	{9999.94, 5, "9999.9"},
	{10000.0, 5, "1e+04"},
	{12345.678, 5, "1.2346e+04"},
	{99999.9, 5, "1e+05"},
	{0.1, 5, "0.1"},
	{0.001, 5, "0.001"},
	{0.0001, 5, "0.0001"},
	{0.000123456, 5, "0.00012346"},
	{0.000099999, 5, "9.9999e-05"},
	{0.0000999999, 5, "0.0001"},
	{1e-05, 5, "1e-05"},
	{1.5e-9, 5, "1.5e-09"},
	{5e-324, 5, "4.9407e-324"},
	{1.7976931348623157e308, 5, "1.7977e+308"},
	{2.5, 1, "2e+00"},
	{0.125, 2, "0.12"},
	{0.1, 17, "0.10000000000000001"},
	{33.333333333333336, 5, "33.333"},
	{INFINITY, 5, "inf"},
	{-INFINITY, 5, "-inf"},
	{NAN, 5, "nan"},
};

static void test_cases(void **state)
{
	char text[PYFLOAT_MAX];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(pyfloat__format(cases[i].value, cases[i].precision, text), cases[i].text);
}

static void test_longest_fits(void **state)
{
	char text[PYFLOAT_MAX];

	pyfloat__format(-1.2345678901234567e-300, 17, text);
	assert_string_equal(text, "-1.2345678901234568e-300");
	pyfloat__format(-0.00012345678901234567, 17, text);
	assert_int_equal(strlen(text), strlen("-0.00012345678901234567"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_longest_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
