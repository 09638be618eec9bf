// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Texts of a target on their way out: what is escaped, how wide it is, streams for people, JSON; and figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/lib/columns.h"
#include "user/lib/digits.h"
#include "user/lib/json.h"
#include "user/lib/output.h"
#include "user/lib/utf8.h"
#include "user/report/print/text.h"

static void test_escape(void **state)
{
	static const char *const pairs[][2] = {
		{"a\tb\n\x1b[m\x7f", "a\\x09b\\x0a\\x1b[m\\x7f"},
		{"\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "\\x80\\x9b\\x9f\xc2\xa0"},
		{"\x9b\xff", "\xef\xbf\xbd\xef\xbf\xbd"},
		{"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9",
		 "\\u061c\\u200e\\u200f\\u2028\\u202e\\u2066\\u2069"},
		{"\xe6\x97\xa5\xe2\x80\x8d\xc3\xa9", "\xe6\x97\xa5\xe2\x80\x8d\xc3\xa9"},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		char *escaped = utf8__escape(pairs[i][0]);

		assert_string_equal(escaped, pairs[i][1]);
		free(escaped);
	}
}

static void expect_fit(const char *text, size_t width, const char *expected)
{
	char *fitting = text__fit(text, width);

	assert_string_equal(fitting, expected);
	assert_true(columns__of_text(fitting) <= width);
	free(fitting);
}

static void test_cells(void **state)
{
	assert_int_equal(columns__of_text("abc"), 3);
	assert_int_equal(columns__of_text("\xe6\x97\xa5\xe6\x9c\xac"), 4);  /* wide */
	assert_int_equal(columns__of_text("e\xcc\x81\xcc\x81\xcc\x81"), 1); /* combining */
	expect_fit("abcdefgh", 5, "ab…gh");
	expect_fit("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", 6, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e");
	expect_fit("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", 5, "\xe6\x97\xa5…\xe8\xaa\x9e");
	expect_fit("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", 4, "…\xe8\xaa\x9e");
	expect_fit("\xe6\x97\xa5", 1, "…");
}

static void expect_broken(const char *text, size_t width, size_t hang, const char *expected)
{
	char *printed = NULL;
	size_t bytes;
	FILE *out = open_memstream(&printed, &bytes);

	columns__print(out, 0, text, width, hang);
	assert_int_equal(fclose(out), 0);
	assert_string_equal(printed, expected);
	free(printed);
}

static void test_broken(void **state)
{
	expect_broken("", 10, 2, "\n");
	expect_broken("a word and another", 10, 2, "a word and\n  another\n");
	expect_broken("a word and another", 9, 0, "a word\nand\nanother\n");
	expect_broken("a word and another", SIZE_MAX, 2, "a word and another\n");
	expect_broken("OK    name   what was found", 18, 13,
		      "OK    name   what\n             was\n             found\n");
	expect_broken("/a/path/that/is/long is here", 8, 2, "/a/path/that/is/long\n  is\n  here\n");
	expect_broken("x /a/path/that/is/long", 8, 2, "x /a/path/that/is/long\n");
	expect_broken("\xe6\x97\xa5\xe6\x9c\xac \xe8\xaa\x9e", 6, 0, "\xe6\x97\xa5\xe6\x9c\xac\n\xe8\xaa\x9e\n");
}

/* Also what a write cuts in two. */
static void test_for_people(void **state)
{
	static const char *const parts[] = {"a\tb\r",   "\nc\rd\x1b[m\n", "\xc2",     "\x9b",
					    "\xe6\x97", "\xa5",           "\xe2\x80", "x\n"};
	static const char expected[] = "a\tb\r\nc\\x0dd\\x1b[m\n\\x9b\xe6\x97\xa5\xef\xbf\xbdx\n";
	char found[128] = "";
	int ends[2];
	FILE *out;

	assert_int_equal(pipe(ends), 0);
	out = output__for_people(ends[1]);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		fputs(parts[i], out);
		assert_int_equal(fflush(out), 0);
	}
	assert_int_equal(read(ends[0], found, sizeof(found) - 1), sizeof(expected) - 1);
	assert_string_equal(found, expected);
	fclose(out);
	close(ends[1]);
	close(ends[0]);
}

static void test_digits(void **state)
{
	static const struct {
		double value;
		int cnt;
		const char *text;
	} cases[] = {
		{0, 3, "0"},
		{3.14159, 3, "3.14"},
		{999.4, 3, "999"},
		{1234.5, 2, "1234"},
		{12345678, 4, "12345678"},
		{-1234.4, 3, "-1234"},
		{0.00012345, 2, "0.00012"},
		{0.0000500001, 3, "0.00005"},
		{0.00009996, 3, "0.0001"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(DIGITS(cases[i].value, cases[i].cnt), cases[i].text);
	assert_string_equal(DIGITS(NAN, 3), "nan");
	assert_string_equal(DIGITS(1e300, 3), "1e+300");
}

/* DEL is what jansson leaves. */
static void test_json(void **state)
{
	json_t *string = json__string("\x7f"
				      "a\x7f\x1b\xc2\x9b\xff");
	char *text = json__text(string, JSON_ENCODE_ANY);

	assert_string_equal(text, "\"\\u007fa\\u007f\\u001B\\u009B\\uFFFD\"");
	free(text);
	json_decref(string);
	assert_null(json__text(NULL, JSON_ENCODE_ANY));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_escape),     cmocka_unit_test(test_cells), cmocka_unit_test(test_broken),
		cmocka_unit_test(test_for_people), cmocka_unit_test(test_json),  cmocka_unit_test(test_digits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
