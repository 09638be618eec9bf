/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tables as text and as JSON (user/report/print/table.c). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/report/print/table.h"
#include "user/report/print/text.h"

/* JSON begins with the name, text ends with it. */
static int add_row(struct table *table, const char *name, uint64_t bytes, json_t *ns)
{
	const struct cell cells[] = {
		cell__json("name", json_string(name)),
		cell__new("bytes", 3, "bytes", 20, 0, json_integer((json_int_t)bytes)),
		cell__new("total_us", 1, "total ms", 10, 3, ns),
		cell__new(NULL, 2, "share", 6, 1, json_real(12.34)),
		cell__if(false, cell__new("never", 9, "never", 5, 0, json_integer(1))),
		cell__last(4, "name", strdup(name)),
	};

	return TABLE_ADD(table, cells);
}

static void test_text(void **state)
{
	char *text = NULL;
	size_t bytes;
	struct table table = {.title = "A title", .gap = "  ", .unknown = "?"};

	(void)state;
	table.out = open_memstream(&text, &bytes);
	assert_non_null(table.out);
	assert_int_equal(add_row(&table, "a\x1b[31m", 7, json_integer(1500000)), 0);
	assert_int_equal(add_row(&table, "b", UINT64_MAX, json_null()), 0);
	table.ruled = true;
	assert_int_equal(add_row(&table, "total", 0, json_integer(0)), 0);
	fclose(table.out);
	assert_string_equal(text, "A title\n"
				  "  total ms  share                bytes  name\n"
				  "---------- ------ --------------------  ----------------\n"
				  "     1.500   12.3                    7  a\\x1b[31m\n"
				  "         ?   12.3 18446744073709551615  b\n"
				  "---------- ------ --------------------  ----------------\n"
				  "     0.000   12.3                    0  total\n");
	free(text);
}

static void test_json(void **state)
{
	json_t *object = json_object();
	struct table table = table__json(object, "rows");
	char *text;

	(void)state;
	assert_int_equal(add_row(&table, "a", 7, json_integer(1500)), 0);
	assert_int_equal(add_row(&table, "b", UINT64_MAX, json_null()), 0);
	text = json_dumps(object, JSON_COMPACT);
	assert_string_equal(text, "{\"rows\":[{\"name\":\"a\",\"bytes\":7,\"total_us\":1.5},"
				  "{\"name\":\"b\",\"bytes\":9223372036854775807,\"total_us\":null}]}");
	free(text);
	json_decref(object);
}

static int add_wide_row(struct table *table, const char *name, json_t *ns)
{
	const struct cell cells[] = {
		cell__new("name", 1, "phase", -7, 0, json_string(name)),
		cell__new("total_s", 2, "total s", 9, -4, ns),
		cell__new(NULL, 3, "cause", -8, 0, json_string("-")),
	};

	return TABLE_ADD(table, cells);
}

static void test_wide_rules(void **state)
{
	char *text = NULL;
	size_t bytes;
	struct table table = {.gap = "  ", .rules = RULES_WIDE};

	(void)state;
	table.out = open_memstream(&text, &bytes);
	assert_non_null(table.out);
	assert_int_equal(add_wide_row(&table, "data", json_integer(123456789)), 0);
	table.ruled = true;
	assert_int_equal(add_wide_row(&table, "all", json_integer(12345678900)), 0);
	fclose(table.out);
	assert_string_equal(text, "---------------------------\n"
				  "phase     total s  cause   \n"
				  "---------------------------\n"
				  "data       0.1235  -       \n"
				  "---------------------------\n"
				  "all         12.35  -       \n"
				  "---------------------------\n");
	free(text);
}

static void test_fit(void **state)
{
	static const struct {
		const char *text;
		size_t width;
		const char *fitting;
	} cases[] = {
		{"short", 5, "short"},
		{"too long", 7, "too…ong"},
		{"\u00e9\u00e9\u00e9\u00e9", 3, "\u00e9…\u00e9"},
		{"/data/file", 9, "/d…a/file"},
		{"a\nb", 6, "a\\x0ab"},
		{"text", 1, "…"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *fitting = text__fit(cases[i].text, cases[i].width);

		assert_string_equal(fitting, cases[i].fitting);
		free(fitting);
	}
}

static void test_no_memory(void **state)
{
	json_t *object = json_object();
	struct table table = table__json(object, "rows");

	(void)state;
	assert_int_equal(add_row(&table, "a", 7, NULL), -ENOMEM);
	assert_int_equal(json_array_size(table.list), 0);
	json_decref(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text), cmocka_unit_test(test_json),      cmocka_unit_test(test_wide_rules),
		cmocka_unit_test(test_fit),  cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
