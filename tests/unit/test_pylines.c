/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Line tables: by hand, at random, and all of many modules of the standard library in each interpreter, against what
 * that says of its code by dis.findlinestarts (3.8, 3.9), co_lines (3.10) or co_positions. Each table is also read from
 * the interpreter while it lives.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/children.h"
#include "tests/pythons.h"
#include "user/runtime/python/pylines.h"

/* ---- by hand ---- */

static void expect(int minor, const char *table, size_t size, const struct code_line *lines, uint32_t cnt)
{
	struct code_line found[16];
	uint8_t *exact = malloc(size ? size : 1); /* so that the sanitizer sees a read behind it */

	memcpy(exact, table, size);
	assert_int_equal(py_lines__decode(minor, exact, size, 100, found, 16), cnt);
	assert_memory_equal(found, lines, cnt * sizeof(found[0]));
	free(exact);
}

#define EXPECT(minor, table, ...)                                                        \
	expect(minor, table, sizeof(table) - 1, (const struct code_line[]){__VA_ARGS__}, \
	       sizeof((const struct code_line[]){__VA_ARGS__}) / sizeof(struct code_line))

static void test_tables(void **state)
{
	/* 300 bytes of one line; 300 lines on; back */
	EXPECT(8, "\xff\x00\x2d\x7f\x00\x7f\x00\x2e\x04\xfe", {0, 100}, {300, 400}, {304, 398});
	EXPECT(9, "", {0, 100});
	EXPECT(9, "\x00\x02\x04", {0, 102}); /* half a pair */
	EXPECT(10, "\x04\x00\x02\x80\x06\x02\x00\x05\x02\xfe", {0, 100}, {4, 0}, {6, 102}, {12, 105}, {14, 0});
	EXPECT(10, "", {0, 0});
	/* no columns, +1; short; one line +2; none; long -3, of which columns 4 */
	EXPECT(11, "\xe9\x02\x80\x11\xe0\x01\x02\xf8\xf0\x07\x00\x41\x02\x05", {0, 101}, {6, 103}, {8, 0}, {10, 100},
	       {12, 0});
	EXPECT(14, "\xe8\x7f\x7f\x7f\x7f\x7f\x7f\x7f", {0, 0}); /* a number without end */
	EXPECT(12, "\x01\xe8", {0, 0});                         /* begins in the middle */
}

static void test_at(void **state)
{
	const struct code_line lines[] = {{0, 7}, {4, 0}, {6, 9}};

	assert_int_equal(py_lines__at(lines, 3, 5, -1), 5);
	assert_int_equal(py_lines__at(lines, 3, 5, 0), 7);
	assert_int_equal(py_lines__at(lines, 3, 5, 3), 7);
	assert_int_equal(py_lines__at(lines, 3, 5, 4), 0);
	assert_int_equal(py_lines__at(lines, 3, 5, 600), 9);
	assert_int_equal(py_lines__at(lines, 0, 5, 0), 0);
}

static void test_random(void **state)
{
	struct code_line lines[64];
	uint8_t table[256], *exact;

	srandom(1);
	for (int i = 0; i < 200000; i++) {
		size_t size = (size_t)random() % sizeof(table);
		uint32_t max = 2 + (uint32_t)random() % 63, cnt;

		for (size_t k = 0; k < size; k++)
			table[k] = (uint8_t)random();
		exact = malloc(size + 1);
		memcpy(exact + 1, table, size);
		cnt = py_lines__decode(8 + i % 7, exact + 1, size, (uint32_t)random(), lines, max);
		free(exact);
		assert_true(cnt >= 1 && cnt <= max && lines[0].offset == 0);
		for (uint32_t k = 0; k < cnt; k++) {
			assert_true(lines[k].line >= 0);
			assert_true(k == 0 ||
				    (lines[k].offset > lines[k - 1].offset && lines[k].line != lines[k - 1].line));
		}
	}
}

/* What is cut has no line, rather than the last one that is known. */
static void test_cut(void **state)
{
	struct code_line lines[3];
	const uint8_t lnotab[] = {2, 1, 2, 1, 2, 1, 2, 1};

	assert_int_equal(py_lines__decode(8, lnotab, sizeof(lnotab), 1, lines, 3), 3);
	assert_int_equal(lines[1].line, 2);
	assert_int_equal(lines[2].offset, 4);
	assert_int_equal(lines[2].line, 0);
}

static void test_gone(void **state)
{
	static const uint64_t type[64], object[8] = {1, (uint64_t)(uintptr_t)&type, 4};
	struct rec_code code = {.pid = (uint32_t)getpid(), .first_line = 1, .table_bytes = -1}, *out;

	assert_int_equal(py_lines__complete(py_layout__find(11), &code, &out), -ENOENT);
	code.hdr.size = sizeof(code);
	code.table_bytes = 1; /* beyond the record */
	assert_int_equal(py_lines__complete(py_layout__find(11), &code, &out), -EINVAL);
	code.table_bytes = -1;
	code.line_table = (uint64_t)(uintptr_t)object; /* no bytes object */
	assert_int_equal(py_lines__complete(py_layout__find(11), &code, &out), -EINVAL);
	code.line_table = 8;
	assert_int_equal(py_lines__complete(py_layout__find(11), &code, &out), -EINVAL);
	assert_null(out);
}

/* ---- the interpreters' own ---- */

/* A line a code object: first line, address of the table, the table ("-": empty), the lines of each 2 bytes of code. */
static const char script[] =
	"import dis, glob, os, sys, types\n"
	"def lines(code):\n"
	"    units = len(code.co_code) // 2\n"
	"    if sys.version_info >= (3, 11):\n"
	"        return [p[0] for p in code.co_positions()]\n"
	"    if sys.version_info >= (3, 10):\n"
	"        return [line for start, end, line in code.co_lines() for i in range(start, end, 2)]\n"
	"    found, starts = [], dict(dis.findlinestarts(code))\n"
	"    for unit in range(units):\n"
	"        found.append(starts.get(2 * unit, found[-1] if found else code.co_firstlineno))\n"
	"    return found\n"
	"def walk(code):\n"
	"    yield code\n"
	"    for const in code.co_consts:\n"
	"        if isinstance(const, types.CodeType):\n"
	"            yield from walk(const)\n"
	"lib = os.path.dirname(os.__file__)\n"
	"sources = [open(f, encoding='utf8').read() for f in sorted(glob.glob(lib + '/[a-i]*.py') + glob.glob(lib + "
	"'/asyncio/*.py'))]\n"
	"sources.append('\\n' * 70000 + 'def far(a):\\n' + '\\n' * 500 + '    return (a +\\n' + '\\n' * 1000 + ' "
	"a(1,\\n  2) * 3)\\n')\n"
	"sources.append('x = [\\n' + ''.join('  f(%d),\\n' % i for i in range(1500)) + ']\\n')\n"
	"kept = []\n"
	"for source in sources:\n"
	"    for code in walk(compile(source, 'source.py', 'exec')):\n"
	"        table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab\n"
	"        kept.append((code, table))\n"
	"        print(code.co_firstlineno, id(table), table.hex() or '-', ','.join(str(n or 0) for n in "
	"lines(code)))\n"
	"print(flush=True)\n"
	"import time; time.sleep(60)\n";

static size_t unhex(const char *hex, uint8_t **out)
{
	size_t size = *hex == '-' ? 0 : strlen(hex) / 2;

	*out = malloc(size + 1);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(sscanf(hex + 2 * i, "%2" SCNx8, *out + i), 1);
	return size;
}

/* One line of the script's: the lines that it gives of each 2 bytes are those that are decoded. */
static void expect_code(pid_t pid, const struct py_layout *layout, char *text)
{
	struct rec_code code = {.pid = (uint32_t)pid, .table_bytes = -1}, *record;
	struct code_line *lines = malloc(PY_LINES_MAX * sizeof(*lines));
	char *first = strtok(text, " "), *address = strtok(NULL, " "), *hex = strtok(NULL, " "), *one;
	uint8_t *table;
	size_t size = unhex(hex, &table);
	uint32_t cnt;

	code.first_line = (uint32_t)atoi(first);
	code.line_table = strtoull(address, NULL, 10);
	cnt = py_lines__decode(layout->minor, table, size, code.first_line, lines, PY_LINES_MAX);
	assert_int_equal(py_lines__complete(layout, &code, &record), 0);
	assert_int_equal(record->line_cnt, cnt);
	assert_int_equal(record->line_table, 0);
	assert_int_equal(record->hdr.size, sizeof(*record) + cnt * sizeof(*lines));
	assert_memory_equal(record->lines, lines, cnt * sizeof(*lines));
	for (int64_t offset = 0; (one = strtok(NULL, ",\n")); offset += 2) {
		assert_int_equal(py_lines__at(lines, cnt, code.first_line, offset), atoi(one));
		assert_int_equal(py_lines__at(lines, cnt, code.first_line, offset + 1), atoi(one));
	}
	free(record);
	free(lines);
	free(table);
}

static void test_interpreter(void **state)
{
	struct process process;
	struct python python;
	char *line = NULL;
	size_t size = 0;
	int codes = 0;
	FILE *from;
	pid_t pid;

	pid = start_printing((const char *const[]){*state, "-c", script, NULL}, &from);
	assert_true(getline(&line, &size, from) > 1);
	assert_int_equal(process__read(pid, &process), 0);
	assert_int_equal(python__find(&process, &python, NULL), 0);
	do {
		expect_code(pid, &python.process.layout, line);
		codes++;
	} while (getline(&line, &size, from) > 1);
	print_message("  %s: %d code objects\n", python.version, codes);
	assert_true(codes > 1000);
	fclose(from);
	free(line);
	process__release(&process);
	end_child(pid);
}

int main(void)
{
	struct CMUnitTest tests[PYTHON_MAX + 5] = {
		cmocka_unit_test(test_tables), cmocka_unit_test(test_at),   cmocka_unit_test(test_random),
		cmocka_unit_test(test_cut),    cmocka_unit_test(test_gone),
	};
	char *pythons[PYTHON_MAX], names[PYTHON_MAX][256];
	size_t python_cnt = find_pythons(pythons), cnt = 5;
	int failed;

	for (size_t i = 0; i < python_cnt; i++) {
		snprintf(names[i], sizeof(names[i]), "test_interpreter %s", pythons[i]);
		tests[cnt++] = (struct CMUnitTest){
			.name = names[i], .test_func = test_interpreter, .initial_state = pythons[i]};
	}
	if (python_cnt == 0)
		print_message("[  SKIPPED ] no CPython found: set STEPFLAME_PYTHONS\n");
	failed = _cmocka_run_group_tests("pylines", tests, cnt, NULL, NULL);
	for (size_t i = 0; i < python_cnt; i++)
		free(pythons[i]);
	return failed;
}
