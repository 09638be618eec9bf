// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Lines of the summary: labels, breaks, bars, and what goes where the screen is full (user/report/print/lines.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/lib/columns.h"
#include "user/report/print/lines.h"
#include "user/report/print/text.h"

#define ALL 100

static const struct line_text plain = {"Label", LINE_PLAIN, 3, 0, 0};

/* Prints at most max lines, and releases them. */
static void check_printed(struct lines *lines, size_t max, const char *expected)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	assert_int_equal(lines__print(lines, max, out), 0);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
	lines__release(lines);
	assert_int_equal(lines->items.cnt, 0);
}

static void test_breaks(void **state)
{
	struct lines lines = {.width = 60, .utf8 = true};

	(void)state;
	assert_int_equal(lines__room(&lines), 48);
	lines__add(&lines, &plain, "%s", "a text that is longer than what one line has room for, which is %d");
	lines__add(&lines, &(struct line_text){"", LINE_PLAIN, 2, 0, 4},
		   "%d words that hang below the first line by %s", 9, "four");
	lines__add(&lines, &(struct line_text){"Fits", LINE_PLAIN, 2, 0, 0},
		   "123456789 123456789 123456789 123456789 12345678 then");
	lines__add(&lines, &(struct line_text){"Empty", LINE_PLAIN, 2, 0, 0}, "%s", "");
	check_printed(&lines, ALL,
		      "Label       a text that is longer than what one line has\n"
		      "            room for, which is %d\n"
		      "            9 words that hang below the first line by four\n"
		      "Fits        123456789 123456789 123456789 123456789 12345678\n"
		      "            then\n"
		      "Empty\n");
}

/* The last line that a text may have is cut in its middle; a percent sign stays with its number. */
static void test_cuts(void **state)
{
	struct lines lines = {.width = 60, .utf8 = true};
	const struct line_text one = {"One", LINE_PLAIN, 1, 0, 0};

	(void)state;
	lines__add(&lines, &one, "first words %080d last words", 7);
	lines__add(&lines, &plain, "this is a text of which the number must stay: 12 %% of it");
	check_printed(&lines, ALL,
		      "One         first words 00000000000…0000000000007 last words\n"
		      "Label       this is a text of which the number must stay:\n"
		      "            12 % of it\n");
}

/* A word that is longer than a line is a line of its own, and cut. */
static void test_long_word(void **state)
{
	struct lines lines = {.width = 60};

	(void)state;
	lines__add(&lines, &plain, "of %s/train.py it is", "/home/somebody/with/a/name/of/a/folder/that/is/long");
	check_printed(&lines, ALL,
		      "Label       of\n"
		      "            /home/someb~me/of/a/folder/that/is/long/train.py\n"
		      "            it is\n");
}

static void test_narrow(void **state)
{
	struct lines lines = {.width = 30, .utf8 = true};

	(void)state;
	assert_int_equal(lines__room(&lines), 28);
	lines__add(&lines, &(struct line_text){"Label", LINE_PLAIN, 2, 0, 0},
		   "in a narrow terminal a text has twice as many lines, and its label stands in it");
	lines__add(&lines, &(struct line_text){"", LINE_PLAIN, 1, 0, 0}, "one line stays one, and is cut");
	lines__add_block(&lines, &(struct line_text){"Block", LINE_PLAIN, 2, 0, 0}, "a\nb\nc\n");
	check_printed(&lines, ALL,
		      "Label: in a narrow terminal a\n"
		      "  text has twice as many\n"
		      "  lines, and its label stands\n"
		      "  in it\n"
		      "  one line stay…ne, and is cut\n"
		      "Block:\n"
		      "  a\n"
		      "  b\n");
}

static void test_block(void **state)
{
	struct lines lines = {.width = 60, .utf8 = true};

	(void)state;
	lines__add_block(&lines, &plain, "│ ▁▂▇ │\n  as it is\n\nfour\n");
	check_printed(&lines, ALL,
		      "Label       │ ▁▂▇ │\n"
		      "              as it is\n"
		      "\n");
}

/* Nothing that comes in steers the terminal, and a terminal without UTF-8 gets ASCII. */
static void test_hostile(void **state)
{
	struct lines lines = {.width = 60, .utf8 = true}, ascii = {.width = 60};

	(void)state;
	lines__add(&lines, &plain, "%s", "a\033[31m\nb\xff\u202e훈련");
	check_printed(&lines, ALL, "Label       a\\x1b[31m\\x0ab�\\u202e훈련\n");
	lines__add(&ascii, &plain, "%s", "a\033[31m 훈련 é");
	lines__add_block(&ascii, &plain, "▁▂\n");
	check_printed(&ascii, ALL, "Label       a\\x1b[31m ?? ?\nLabel       ??\n");
}

static void test_colours(void **state)
{
	struct lines lines = {.width = 60, .colour = true, .utf8 = true};

	(void)state;
	lines__add(&lines, &(struct line_text){"Hot", LINE_HOT, 1, 0, 0}, "hot");
	lines__add(&lines, &(struct line_text){"", LINE_DIM, 1, 0, 0}, "dim");
	lines__add(&lines, &plain, "%s", "");
	check_printed(&lines, ALL,
		      "\033[1mHot\033[0m         \033[1;33mhot\033[0m\n"
		      "            \033[2mdim\033[0m\n"
		      "\033[1mLabel\033[0m\n");
}

/* Lines with the largest number go first, of those the last. */
static void test_full_screen(void **state)
{
	struct lines lines = {.width = 60};
	static const int spare[] = {0, 3, 1, 3, 9, 0};

	(void)state;
	for (int i = 0; i < 6; i++)
		lines__add(&lines, &(struct line_text){"", LINE_PLAIN, 1, spare[i], 0}, "%d", i);
	check_printed(&lines, 3,
		      "            0\n"
		      "            2\n"
		      "            5\n");
	for (int i = 0; i < 6; i++)
		lines__add(&lines, &(struct line_text){"", LINE_PLAIN, 1, spare[i], 0}, "%d", i);
	check_printed(&lines, 4,
		      "            0\n"
		      "            1\n"
		      "            2\n"
		      "            5\n");
	lines__add(&lines, &plain, "gone");
	check_printed(&lines, 0, "");
}

static size_t count(const char *text, const char *what)
{
	size_t cnt = 0;

	while ((text = strstr(text, what))) {
		text += strlen(what);
		cnt++;
	}
	return cnt;
}

/* Blocks are as many as the shares, rounded so that they add up; small parts have no name. */
static void test_bar(void **state)
{
	static const struct bar_part parts[] = {
		{"forward", 0.5}, {"backward", 0.25}, {"data", 0.15}, {"optimizer", 0.0964}, {"other", 0.0036}};
	struct lines lines = {.width = 60, .utf8 = true}, ascii = {.width = 60};
	char *text = NULL;
	size_t bytes;
	FILE *out;

	(void)state;
	lines__add_bar(&ascii, &plain, parts, 5);
	check_printed(&ascii, ALL,
		      "Label       ########################============+++++++-----\n"
		      "            # forward 50 %  = backward 25 %  + data 15 %\n"
		      "            - optimizer 9.6 %\n");
	lines__add_bar(&lines, &plain, parts, 5);
	out = open_memstream(&text, &bytes);
	assert_int_equal(lines__print(&lines, 1, out), 0);
	fclose(out);
	assert_int_equal(count(text, "█"), 24);
	assert_int_equal(count(text, "▒"), 12);
	assert_int_equal(count(text, "▓"), 7);
	assert_int_equal(count(text, "░"), 5);
	free(text);
	lines__release(&lines);
}

/* No line is wider than the terminal, whatever the text; each word comes out, unless it is cut. */
static void test_widths(void **state)
{
	static const char *const words[] = {"a",           "훈련", "of", "é",
					    "train.py:31", "50",   "%",  "_MapDatasetFetcher.fetch"};
	unsigned int random = 1;

	(void)state;
	for (size_t width = 20; width < 140; width++) {
		struct lines lines = {.width = width, .utf8 = width % 3};
		char input[2000] = "", *text = NULL, *rest = NULL;
		size_t bytes;
		FILE *out = open_memstream(&text, &bytes);

		for (int i = 0; i < 40; i++) {
			random = random * 1103515245 + 12345;
			strcat(strcat(input, i ? " " : ""), words[random >> 16 & 7]);
		}
		lines__add(&lines, &(struct line_text){"Label", LINE_PLAIN, width % 2 ? 3 : 200, 0, width % 5}, "%s",
			   input);
		assert_int_equal(lines__print(&lines, ALL, out), 0);
		fclose(out);
		for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
			if (columns__of_text(line) > width)
				fail_msg("width %zu: %s", width, line);
		free(text);
		lines__release(&lines);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_breaks),  cmocka_unit_test(test_cuts),        cmocka_unit_test(test_long_word),
		cmocka_unit_test(test_narrow),  cmocka_unit_test(test_block),       cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_colours), cmocka_unit_test(test_full_screen), cmocka_unit_test(test_bar),
		cmocka_unit_test(test_widths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
