// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Operators in the model: records in, rows out. That the table is torch's is what tests/replay/test_ops_format.py shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"
#include "user/lib/words.h"
#include "user/report/report.h"
#include "user/runtime/torch/flops.h"

#define COUNT(array)          (sizeof(array) / sizeof(*(array)))

#define WORD(tag, dtype, cnt) ((tag) | (uint64_t)(dtype) << 8 | (uint64_t)(cnt) << 32)
#define NONE                  WORD(OP_WORD_NONE, 0, 0)
#define T1(a)                 WORD(OP_WORD_TENSOR, 6, 1), a
#define T2(a, b)              WORD(OP_WORD_TENSOR, 6, 2), a, b
#define T3(a, b, c)           WORD(OP_WORD_TENSOR, 6, 3), a, b, c
#define T4(a, b, c, d)        WORD(OP_WORD_TENSOR, 6, 4), a, b, c, d
#define INT(a)                WORD(OP_WORD_INT, 0, 1), a
#define INTS(a, b)            WORD(OP_WORD_INTS, 0, 2), a, b
#define CUT                   WORD(OP_WORD_CUT, 0, 0)
#define LIST(cnt)             WORD(OP_WORD_TENSOR_LIST, 0, cnt)
#define WORDS(...)            (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8

/* The figures are those that torch 2.15 gives with with_flops=True. */
static void test_flops(void **state)
{
	static const struct {
		const char *op;
		uint64_t words[24];
		size_t cnt;
		uint64_t flops;
	} cases[] = {
#define CASE(op, flops, ...) {op, {__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8, flops}
		CASE("aten::conv2d", 27648, T4(2, 3, 8, 8), T4(4, 3, 3, 3), NONE, INTS(1, 1), INTS(1, 1), INTS(1, 1),
		     INT(1)),
		CASE("aten::conv2d", 8640, T4(2, 4, 18, 17), T4(4, 2, 3, 2), T1(4), INTS(2, 3), INTS(1, 0), INTS(1, 2),
		     INT(2)),
		/* padding="same", no batch, no groups, no stride, arguments that did not fit */
		CASE("aten::conv2d", 0, T4(2, 3, 8, 8), T4(4, 3, 3, 3), NONE, INTS(1, 1), NONE, INTS(1, 1), INT(1)),
		CASE("aten::conv2d", 0, T3(4, 18, 17), T4(4, 2, 3, 2), NONE, INTS(1, 1), INTS(1, 1), INTS(1, 1),
		     INT(1)),
		CASE("aten::conv2d", 0, T4(2, 3, 8, 8), T4(4, 3, 3, 3), NONE, INTS(1, 1), INTS(1, 1), INTS(1, 1),
		     INT(0)),
		CASE("aten::conv2d", 0, T4(2, 3, 8, 8), T4(4, 3, 3, 3), NONE, INTS(1, 0), INTS(1, 1), INTS(1, 1),
		     INT(1)),
		CASE("aten::conv2d", 0, T4(2, 3, 8, 8), T4(4, 3, 3, 3), CUT),
		CASE("aten::mm", 120, T2(3, 4), T2(4, 5)),
		CASE("aten::mm", 0, T2(0, 4), T2(4, 5)),
		CASE("aten::mm", 0, T2(3, 0), T2(0, 5)),
		CASE("aten::mm", 0, T2(3, 4), CUT),
		CASE("aten::mm", 0, T2(3, 4)),
		CASE("aten::addmm", 120, T1(5), T2(3, 4), T2(4, 5), NONE, NONE),
		CASE("aten::bmm", 240, T3(2, 3, 4), T3(2, 4, 5)),
		CASE("aten::bmm", 0, T3(0, 3, 4), T3(0, 4, 5)),
		CASE("aten::baddbmm", 240, T3(2, 3, 5), T3(2, 3, 4), T3(2, 4, 5), NONE, NONE),
		CASE("aten::add", 6, T2(2, 3), T1(3), NONE),
		CASE("aten::add", 1, WORD(OP_WORD_TENSOR, 6, 0), T2(2, 3), NONE),
		CASE("aten::add", 0, WORD(OP_WORD_OPAQUE, 6, 0), NONE, NONE),
		CASE("aten::mul", 24, T3(2, 3, 4), NONE),
		CASE("aten::mul_", 0, T3(2, 3, 4), NONE),
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(words__check(cases[i].words, cases[i].cnt), 0);
		assert_int_equal(flops__count(cases[i].op, cases[i].words, cases[i].cnt), cases[i].flops);
	}
	assert_int_equal(flops__count("aten::mm", NULL, 0), 0);
}

static void check_shapes(const char *expected, const uint64_t *words, size_t cnt)
{
	char *text = words__shapes(words, cnt);

	assert_int_equal(words__check(words, cnt), 0);
	assert_string_equal(text, expected);
	free(text);
}

static void test_shapes(void **state)
{
	check_shapes("[]", NULL, 0);
	check_shapes("[[64, 784], [128, 784], []]", WORDS(T2(64, 784), T2(128, 784), NONE));
	check_shapes("[[], [], []]", WORDS(INTS(1, 2), INT(-1), WORD(OP_WORD_OPAQUE, 6, 0)));
	check_shapes("[[], [7]]", WORDS(LIST(3), T2(2, 3), NONE, T1(1), T1(7)));
	check_shapes("[[-1], ...]", WORDS(T1(-1), CUT));
	check_shapes("[[], ...]", WORDS(LIST(9), T1(1), CUT));
	assert_string_equal(words__dtype(6), "float32");
	assert_string_equal(words__dtype(15), "bfloat16");
	assert_string_equal(words__dtype(29), "uint64");
	assert_string_equal(words__dtype(44), "float8_e8m0fnu");
	assert_null(words__dtype(30));
	assert_null(words__dtype(255));
}

static void test_hostile_words(void **state)
{
	assert_int_not_equal(words__check(WORDS(WORD(OP_WORD_TENSOR, 6, 2), 1)), 0);
	assert_int_not_equal(words__check(WORDS(WORD(OP_WORD_TENSOR, 6, UINT32_MAX), 1)), 0);
	assert_int_not_equal(words__check(WORDS(WORD(OP_WORD_INT, 0, 2), 1, 2)), 0);
	assert_int_not_equal(words__check(WORDS(WORD(OP_WORD_INT, 0, 0))), 0);
	assert_int_not_equal(words__check(WORDS(CUT, NONE)), 0);
	assert_int_not_equal(words__check(WORDS(LIST(UINT32_MAX), T1(1))), 0);
	assert_int_not_equal(words__check(WORDS(LIST(1), INT(1))), 0);
	assert_int_not_equal(words__check(WORDS(LIST(2), T1(1), CUT, NONE)), 0);
	assert_int_not_equal(words__check(WORDS(WORD(77, 0, 0))), 0);
}

static int add_op(struct job *job, struct op_key key, struct op_val val)
{
	struct rec_op op = {.hdr = {.type = REC_OP, .size = sizeof(op)}, .key = key, .val = val};

	return add_copy(job, &op);
}

static void add_group(struct job *job, uint64_t id, const uint64_t *words, size_t cnt, uint32_t said_cnt)
{
	size_t size = sizeof(struct rec_op_group) + cnt * sizeof(*words);
	struct rec_op_group *group = calloc(1, size);

	*group = (struct rec_op_group){.hdr = {REC_OP_GROUP, 0, size},
				       .id = id,
				       .source = 90,
				       .source_offset = 10,
				       .module = 91,
				       .word_cnt = said_cnt};
	memcpy(group->words, words, cnt * sizeof(*words));
	assert_int_equal(add_copy(job, group), 0);
	free(group);
}

/* A function whose code at 8 is of line 7. */
static void add_code(struct job *job, uint64_t id, uint64_t file, uint64_t name)
{
	static const struct code_line lines[] = {{0, 5}, {8, 7}, {12, 9}};
	struct rec_code code = {
		.hdr.type = REC_CODE, .id = id, .file = file, .name = name, .first_line = 5, .line_cnt = 3};

	assert_int_equal(add_with_array(job, &code.hdr, sizeof(code), lines, sizeof(lines)), 0);
}

static struct op_val val(uint64_t calls, uint64_t total_ns)
{
	return (struct op_val){.calls = calls, .total_ns = total_ns, .self_ns = total_ns / 2};
}

/* The last record of a key holds, rows keep the order of the first, and what they refer to may come later. */
static void test_rows(void **state)
{
	struct job *job = job__new();
	const struct op_row *rows;
	size_t cnt;

	assert_int_equal(add_op(job, (struct op_key){7, SPAN_OP, 1, 2, 3}, val(1, 10)), 0);
	assert_int_equal(add_op(job, (struct op_key){7, SPAN_EVALUATE, 4, 0, 0}, val(1, 20)), 0);
	assert_int_equal(add_op(job, (struct op_key){6, SPAN_LABEL, 5, 0, 9}, val(1, 30)), 0);
	assert_int_equal(add_op(job, (struct op_key){6, SPAN_OP, 6, 0, 0}, val(1, 30)), 0);
	assert_int_equal(add_op(job, (struct op_key){6, SPAN_NODE, 4, 0, 0}, val(0, 0)), 0);
	rows = job__ops(job, &cnt);
	assert_int_equal(cnt, 4);
	assert_string_equal(rows[0].name, "(name lost, id 0000000000000001)");
	assert_int_equal(rows[0].word_cnt, 0);
	add_text(job, 1, "aten::mm.out");
	add_text(job, 2, "step");
	add_text(job, 4, "MmBackward0");
	add_text(job, 5, "ProfilerStep#12");
	add_text(job, 6, "aten::_version");
	add_text(job, 92, "/venv/lib/python3.11/site-packages/net.py");
	add_text(job, 93, "Net.forward");
	add_code(job, 90, 92, 93);
	add_group(job, 3, WORDS(T2(3, 4), T2(4, 5)), 6);
	add_group(job, 3, WORDS(NONE), 1);
	assert_int_equal(add_op(job, (struct op_key){7, SPAN_OP, 1, 2, 3}, val(5, 50)), 0);
	rows = job__ops(job, &cnt);
	assert_int_equal(cnt, 3);
	assert_string_equal(rows[0].name, "aten::mm");
	assert_string_equal(rows[0].overload, "out");
	assert_string_equal(rows[0].action, "step");
	assert_string_equal(rows[0].source, "net.py(7): Net.forward");
	assert_string_equal(rows[0].module, "(name lost, id 000000000000005b)");
	assert_int_equal(rows[0].val.calls, 5);
	assert_int_equal(rows[0].word_cnt, 6);
	assert_int_equal(rows[0].flops, 120);
	assert_string_equal(rows[1].name, "autograd::engine::evaluate_function: MmBackward0");
	assert_null(rows[1].action);
	assert_string_equal(rows[2].name, "ProfilerStep*");
	assert_null(rows[2].source);
	assert_int_equal(job__malformed(job), 0);
	job__free(job);
}

static void test_malformed(void **state)
{
	struct rec_op_window window = {.hdr = {REC_OP_WINDOW, 0, sizeof(window)}, .start_ns = 2, .end_ns = 1};
	struct job *job = job__new();
	size_t cnt;

	add_op(job, (struct op_key){1, SPAN_ACTION, 1, 0, 0}, val(1, 1));
	add_op(job, (struct op_key){1, 99, 1, 0, 0}, val(1, 1));
	add_op(job, (struct op_key){1, SPAN_OP, 0, 0, 0}, val(1, 1));
	assert_int_equal(job__malformed(job), 3);
	add_group(job, 0, WORDS(NONE), 1);
	add_group(job, 1, WORDS(NONE), 2);
	add_group(job, 1, WORDS(NONE), UINT32_MAX);
	add_group(job, 1, WORDS(T1(3)), 1);
	assert_int_equal(job__malformed(job), 7);
	add_copy(job, &window);
	window.hdr.size -= 8;
	add_copy(job, &window);
	assert_int_equal(job__malformed(job), 9);
	assert_non_null(job__ops(job, &cnt));
	assert_int_equal(cnt, 0);
	job__op_windows(job, &cnt);
	assert_int_equal(cnt, 0);
	job__free(job);
}

static void test_windows(void **state)
{
	struct rec_op_window window = {.hdr = {REC_OP_WINDOW, 0, sizeof(window)}, .pid = 2, .index = 1};
	const struct rec_op_window *windows;
	struct job *job = job__new();
	size_t cnt;

	for (__u64 steps = 1; steps <= 3; steps++) {
		window.steps = steps;
		add_copy(job, &window);
	}
	window.index = 0;
	add_copy(job, &window);
	window.pid = 1;
	add_copy(job, &window);
	windows = job__op_windows(job, &cnt);
	assert_int_equal(cnt, 3);
	assert_int_equal(windows[0].pid, 1);
	assert_int_equal(windows[2].index, 1);
	assert_int_equal(windows[2].steps, 3);
	job__free(job);
}

static void test_sums_stay_at_their_ends(void **state)
{
	struct op_val sum = {0}, most = {.calls = UINT64_MAX, .self_bytes = {INT64_MIN, INT64_MAX}};

	op_val__add(&sum, &most);
	op_val__add(&sum, &most);
	assert_true(sum.calls == UINT64_MAX);
	assert_true(sum.self_bytes[OP_MEMORY_CPU] == INT64_MIN && sum.self_bytes[OP_MEMORY_DEVICE] == INT64_MAX);
}

static void test_report(void **state)
{
	const struct report_options options[] = {
		{.json = true}, {.per_rank = true}, {.by_action = true, .shapes = true}};
	struct job *job = job__new();

	assert_ptr_equal(report__find("ops"), &report_ops);
	assert_string_equal(report_ops.sort_keys[0], "cpu_time_total");
	add_op(job, (struct op_key){1, SPAN_OP, 1, 0, 0}, val(1, 1));
	for (size_t i = 0; i < COUNT(options); i++) {
		FILE *full = fopen("/dev/full", "w");

		assert_true((options[i].json ? report_ops.json : report_ops.text)(job, &options[i], full) < 0);
		fclose(full);
	}
	job__free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flops),
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_hostile_words),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_sums_stay_at_their_ends),
		cmocka_unit_test(test_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
