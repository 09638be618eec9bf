/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operators, nodes and labels one by one: their rows, what they are done for, how they end, memory, windows
 * (bpf/ops.bpf.c, op_rows.h, op_window.h).
 */
#include "tests/bpf/native/ops.h"

#define F FN_FIRST

/* ---- rows ---- */

static void test_nested(void **state)
{
	for (int i = 0; i < 2; i++) {
		op__enter(0, FRAME(1));
		wait_ns(10);
		op__run(2, 5, FRAME(2));
		op__enter(4, FRAME(2));
		wait_ns(3);
		op__run(2, 1, FRAME(3));
		op__exit(FRAME(2));
		op__exit(FRAME(1));
	}
	expect_op(SPAN_OP, OP_ID(0), 0, 2, 38, 20);
	expect_op(SPAN_OP, OP_ID(2), 0, 4, 12, 12);
	expect_op(SPAN_OP, OP_ID(4), 0, 2, 8, 6);
	expect_counters(CNT__COUNT);
	assert_int_equal(op_proc->hits, 16);
	assert_int_equal(native_map__cnt(&aggs), 0);
}

/* torch/autograd/profiler_util.py, _remove_dup_nodes; more in test_ops_random.c. */
static void test_dup(void **state)
{
	op__enter(0, FRAME(1));
	wait_ns(1);
	op__enter(0, FRAME(2));
	wait_ns(10);
	op__run(1, 100, FRAME(3)); /* an overload of that name */
	op__run(2, 1000, FRAME(3));
	op__exit(FRAME(2));
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 1111, 11);
	expect_op(SPAN_OP, OP_ID(1), 0, 1, 100, 100);
	expect_op(SPAN_OP, OP_ID(2), 0, 1, 1000, 1000);
}

static void test_dup_chain(void **state)
{
	for (u64 n = 1; n <= 3; n++) {
		op__enter(n == 1, FRAME(n));
		wait_ns(1);
		memory__allocate(0x1000 * n, 1ull << n);
	}
	for (u64 n = 3; n >= 1; n--)
		op__exit(FRAME(n));
	expect_op(SPAN_OP, OP_ID(1), 0, 1, 3, 3);
	expect_op(SPAN_OP, OP_ID(0), 0, 0, 0, 0);
	expect_bytes(OP_ID(1), OP_MEMORY_CPU, 14, 14);
	expect_bytes(OP_ID(0), OP_MEMORY_CPU, 0, 0);
	assert_int_equal(op_row_cnt(), 1);
}

/* What was allocated by one and freed inside of it adds up to 0, and yet is its own. */
static void test_dup_bytes(void **state)
{
	op__enter(0, FRAME(1));
	op__enter(0, FRAME(2));
	memory__allocate(0x1000, 64);
	op__enter(2, FRAME(3));
	memory__free(0x1000);
	op__exit(FRAME(3));
	op__exit(FRAME(2));
	op__exit(FRAME(1));
	assert_int_equal(op_val(SPAN_OP, OP_ID(0), 0)->calls, 1);
	expect_bytes(OP_ID(0), OP_MEMORY_CPU, 64, 0);
	expect_bytes(OP_ID(2), OP_MEMORY_CPU, -64, -64);
}

/*
 * An only child is one whether an action is between or not, and is not when the other is in an action, or has lost its
 * end.
 */
static void test_dup_between(void **state)
{
	u64 gen = action__new("between");

	op__enter(0, FRAME(1));
	action__next(gen, FRAME(2));
	op__run(0, 5, FRAME(3));
	action__next(gen, FRAME(2));
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 5, 5);
	expect_op(SPAN_OP, OP_ID(0), latin_id("between"), 0, 0, 0);
	op__enter(2, FRAME(1));
	op__run(2, 5, FRAME(2));
	backward(7, FRAME(2));
	fn__enter(FN_BACKWARD, FRAME(2));
	op__run(4, 1, FRAME(3));
	fn__exit(FN_BACKWARD, FRAME(2));
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(2), 0, 2, 13 + 5, 7 + 5);
	op__enter(6, FRAME(1));
	op__run(6, 5, FRAME(2));
	op__enter(0, FRAME(2)); /* ends by an exception */
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(6), 0, 2, 10, 5);
	expect_counters(CNT_UNWOUND, 1, CNT__COUNT);
}

static void test_threads(void **state)
{
	op__enter(0, FRAME(1));
	native.task = &job.thread;
	op__enter(0, FRAME(1));
	wait_ns(10);
	native.task = &job.task;
	op__run(2, 4, FRAME(2));
	native.task = &job.thread;
	op__exit(FRAME(1));
	native.task = &job.task;
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(0), 0, 2, 28, 24);
	expect_op(SPAN_OP, OP_ID(2), 0, 1, 4, 4);
	expect_counters(CNT__COUNT);
}

/* ---- among landmarks ---- */

static void test_actions(void **state)
{
	u64 outer = action__new("outer"), inner = action__new("inner");

	op__run(0, 1, FRAME(9));
	action__next(outer, FRAME(1));
	op__run(0, 2, FRAME(9));
	label__enter("label", 0x5000, FRAME(2));
	op__run(0, 4, FRAME(9));
	action__next(inner, FRAME(3));
	op__run(0, 8, FRAME(9));
	action__next(inner, FRAME(3));
	label__exit(0x5000, FRAME(2));
	fn__enter(FN_BACKWARD, FRAME(4));
	op__run(0, 16, FRAME(9));
	action__next(inner, FRAME(5));
	fakepy__set_created(&job.py, inner, true);
	action__next(inner, FRAME(5));
	op__run(0, 32, FRAME(9));
	action__next(inner, FRAME(5));
	fn__exit(FN_BACKWARD, FRAME(4));
	fn__enter(F, FRAME(4));
	op__run(0, 64, FRAME(9));
	fn__exit(F, FRAME(4));
	action__next(outer, FRAME(1));
	fn__enter(FN_BACKWARD, FRAME(4));
	op__run(0, 128, FRAME(9));
	fn__exit(FN_BACKWARD, FRAME(4));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 1, 1);
	expect_op(SPAN_OP, OP_ID(0), latin_id("outer"), 3, 22, 22);
	expect_op(SPAN_OP, OP_ID(0), latin_id("inner"), 2, 40, 40);
	expect_op(SPAN_OP, OP_ID(0), FN_ID(F), 1, 64, 64);
	expect_op(SPAN_OP, OP_ID(0), FIXED_ID(BACKWARD), 1, 128, 128);
	expect_op(SPAN_LABEL, utf8_id("label"), latin_id("outer"), 1, 12, 0);
	expect_row(SPAN_LABEL, utf8_id("label"), latin_id("outer"), 1, 12, 4); /* no operators there */
}

/* Nodes on the engine's threads are done for what called the engine. */
static void test_engine_threads(void **state)
{
	u64 gen = action__new("step");

	for (int i = 0; i < 2; i++) {
		native.task = &job.task;
		if (i)
			action__next(gen, FRAME(1));
		fn__enter(FN_BACKWARD, FRAME(2));
		native.task = &job.thread;
		node__enter(OP_EVALUATE, 0, FRAME(1));
		op__run(0, 7, FRAME(2));
		op__exit(FRAME(1));
		op__run(2, 1, FRAME(1)); /* no node's: for nobody */
		native.task = &job.task;
		fn__exit(FN_BACKWARD, FRAME(2));
	}
	expect_op(SPAN_EVALUATE, NODE_ID(0), FIXED_ID(BACKWARD), 1, 7, 0);
	expect_op(SPAN_EVALUATE, NODE_ID(0), latin_id("step"), 1, 7, 0);
	expect_op(SPAN_OP, OP_ID(0), latin_id("step"), 1, 7, 7);
	expect_op(SPAN_OP, OP_ID(2), 0, 2, 2, 2);
}

/* A step, with operators around everything or with none. */
static void landmarks(bool with)
{
#define OP_ENTER(n) (with ? op__enter(n, FRAME(n)) : (void)0)
#define OP_EXIT(n)  (with ? op__exit(FRAME(n)) : (void)0)
	OP_ENTER(1);
	label__run(DATA_LABEL, 3, FRAME(2)); /* forward begins in an operator */
	OP_EXIT(1);
	OP_ENTER(1);
	label__run("in forward", 10, FRAME(2));
	fn__enter(F, FRAME(3));
	OP_ENTER(4);
	fn__enter(F + 1, FRAME(5));
	wait_ns(5);
	fn__exit(F + 1, FRAME(5));
	OP_EXIT(4);
	wait_ns(1);
	fn__exit(F, FRAME(3));
	OP_EXIT(1);
	OP_ENTER(1);
	label__enter("around", 0x5000, FRAME(2));
	wait_ns(20);
	OP_ENTER(3);
	backward(100, FRAME(4));
	OP_EXIT(3);
	label__exit(0x5000, FRAME(2));
	OP_EXIT(1);
}

struct agg_copy {
	struct agg_key key;
	struct agg_val val;
};

static bool copy_agg(const void *key, void *value, void *arg)
{
	struct agg_copy **next = arg;

	memcpy(&(*next)->key, key, sizeof(struct agg_key));
	memcpy(&(*next)->val, value, sizeof(struct agg_val));
	(*next)++;
	return true;
}

/* The landmarks' own rows are the same with operators among them. */
static void test_landmarks_same(void **state)
{
	struct agg_copy copies[16], *end = copies;

	landmarks(false);
	assert_in_range(native_map__cnt(&aggs), 6, 16);
	native_map__each(&aggs, copy_agg, &end);
	teardown(NULL);
	ops__start();
	landmarks(true);
	assert_int_equal(native_map__cnt(&aggs), end - copies);
	for (struct agg_copy *c = copies; c < end; c++)
		assert_memory_equal(row(c->key.kind, c->key.name, c->key.parent), &c->val, sizeof(c->val));
	assert_true(row(SPAN_FORWARD, FIXED_ID(FORWARD), 0)->total_ns > 0);
	expect_counters(CNT__COUNT);
}

/* ---- ends ---- */

/* The stack pointer of an entry above what an exception has left. */
static void test_unwound_by_entry(void **state)
{
	op__enter(0, FRAME(1));
	op__enter(2, FRAME(3));
	op__enter(4, FRAME(4));
	wait_ns(9);
	op__run(6, 5, FRAME(2));
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 14, 9);
	expect_op(SPAN_OP, OP_ID(6), 0, 1, 5, 5);
	assert_int_equal(op_row_cnt(), 2);
	op__enter(0, FRAME(1));
	op__run(0, 5, FRAME(1)); /* called again, from the very frame */
	expect_counters(CNT_UNWOUND, 3, CNT__COUNT);
	assert_int_equal(depth(), 0);
}

static void test_unwound_by_exit(void **state)
{
	u64 gen = action__new("inside");

	op__enter(0, FRAME(1));
	op__enter(2, FRAME(2));
	op__enter(4, FRAME(3));
	label__enter("inside", 0x5000, FRAME(4));
	wait_ns(9);
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 9, 9);
	assert_int_equal(depth(), 0);
	expect_counters(CNT_UNWOUND, 3, CNT__COUNT);
	/* what lives in no native frame is dropped by the end around it */
	op__enter(0, FRAME(1));
	action__next(gen, FRAME(2));
	op__exit(FRAME(1));
	assert_int_equal(depth(), 0);
	expect_counters(CNT_UNWOUND, 3, CNT_DROPPED_INNER, 1, CNT__COUNT);
	assert_int_equal(op_row_cnt(), 1);
}

/* Functions with a place where they end by an exception: such a call is one, with its time. */
static void test_left_by_exception(void **state)
{
	op__enter(0, FRAME(1));
	op__enter(2, FRAME(2));
	op__enter(4, FRAME(5));
	wait_ns(5);
	op__leave(2, FRAME(3)); /* and what is inside has no such place */
	wait_ns(1);
	op__leave(2, FRAME(2) - 8); /* it has no call: one that began before us */
	op__leave(0, FRAME(2));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 6, 1);
	expect_op(SPAN_OP, OP_ID(2), 0, 1, 5, 5);
	assert_int_equal(op_row_cnt(), 2);
	expect_counters(CNT_UNWOUND, 1, CNT_OPEN_AT_START, 1, CNT__COUNT);
}

/* Armed while the program is inside of operators. */
static void test_exit_without_entry(void **state)
{
	op__exit(FRAME(3));
	op__enter(0, FRAME(3));
	wait_ns(2);
	op__exit(FRAME(2));
	assert_int_equal(depth(), 0); /* an exception must have left the inner one */
	fn__enter(F, FRAME(1));
	op__exit(FRAME(1)); /* a function's frame is not an operator's */
	assert_int_equal(depth(), 1);
	op_proc->open = 0;
	op__exit(FRAME(2));
	expect_counters(CNT_OPEN_AT_START, 3, CNT_UNWOUND, 1, CNT__COUNT);
	assert_int_equal(op_row_cnt(), 0);
}

static void test_stack_full(void **state)
{
	for (u64 n = 1; n <= SPAN_DEPTH + 10; n++) {
		op__enter(n % 2 * 2, FRAME(n));
		wait_ns(1);
	}
	assert_int_equal(depth(), SPAN_DEPTH);
	for (u64 n = SPAN_DEPTH + 10; n >= 1; n--)
		op__exit(FRAME(n));
	assert_int_equal(depth(), 0);
	expect_counters(CNT_STACK_FULL, 10, CNT__COUNT);
	assert_int_equal(op_val(SPAN_OP, OP_ID(0), 0)->calls, SPAN_DEPTH / 2);
	assert_int_equal(op_val(SPAN_OP, OP_ID(2), 0)->calls, SPAN_DEPTH / 2);
	assert_int_equal(op_val(SPAN_OP, OP_ID(0), 0)->self_ns + op_val(SPAN_OP, OP_ID(2), 0)->self_ns,
			 SPAN_DEPTH + 10);
}

static void test_no_storage(void **state)
{
	native.storage_failures = 2;
	op__enter(0, FRAME(1));
	expect_counters(CNT_NO_STORAGE, 1, CNT__COUNT);
	native.storage_failures = 1; /* the second try is good */
	op__run(0, 1, FRAME(1));
	expect_counters(CNT_NO_STORAGE, 1, CNT__COUNT);
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 1, 1);
}

/* ---- the table ---- */

static u32 first_place(u64 name)
{
	struct op_key key = {.pid = JOB_PID, .kind = SPAN_OP, .name = name};

	return (op_key__hash(&key) >> 40) % OP_ROWS;
}

/* The neighbours of a row's place are taken one by one, over the end of the table. */
static void test_neighbours(void **state)
{
	u64 name = 1;

	while (first_place(name) != OP_ROWS - 2)
		name++;
	ops__set_def(0, &(struct op_def){.name = name, .merged = name});
	for (u32 taken = 0; taken < OP_ROW_TRIES; taken++) {
		op__run(0, 1, FRAME(1));
		op__run(0, 1, FRAME(1)); /* found again */
		assert_int_equal(op_row__at((OP_ROWS - 2 + taken) % OP_ROWS)->val.calls, 2);
		op_row__at((OP_ROWS - 2 + taken) % OP_ROWS)->head.hash ^= 2; /* now another's */
	}
	expect_counters(CNT__COUNT);
	op__enter(2, FRAME(1));
	op__run(0, 5, FRAME(2));
	op__exit(FRAME(1));
	expect_counters(CNT_OP_ROWS_FULL, 1, CNT__COUNT);
	expect_op(SPAN_OP, OP_ID(2), 0, 1, 5, 0);
}

static void test_table_full(void **state)
{
	for (u32 i = 0; i < OP_ROWS; i++)
		op_row__at(i)->head.hash = 2;
	op__enter(0, FRAME(1));
	op__run(0, 5, FRAME(2)); /* one with it, and neither has a row */
	op__exit(FRAME(1));
	assert_int_equal(op_row_cnt(), 0);
	expect_counters(CNT_OP_ROWS_FULL, 2, CNT__COUNT);
}

/* ---- memory ---- */

static void test_memory(void **state)
{
	memory__allocate(0x1000, 100);
	op__enter(0, FRAME(1));
	memory__allocate(0x2000, 10);
	op__enter(2, FRAME(2));
	memory__allocate(0x3000, 1);
	memory__allocate(0x4000, 0);
	op__exit(FRAME(2));
	memory__free(0x3000);
	memory__free(0x3000); /* not known any more */
	memory__free(0x9999);
	memory__report(1000, 1);
	memory__report(-400, 1);
	memory__report(7, 0); /* the CPU's, which its allocator has reported */
	op__exit(FRAME(1));
	memory__free(0x2000);
	op_proc->open = 0;
	memory__allocate(0x5000, 5);
	memory__free(0x1000);
	op_proc->open = 1;
	op_proc->index++; /* in this window the same address may be another's */
	memory__free(0x1000);
	memory__free(0x5000);
	expect_bytes(OP_ID(2), OP_MEMORY_CPU, 1, 1);
	expect_bytes(OP_ID(0), OP_MEMORY_CPU, 9, 10);
	expect_bytes(OP_ID(0), OP_MEMORY_DEVICE, 600, 600);
	expect_bytes(MEMORY_ID, OP_MEMORY_CPU, 90, 90);
	expect_op(SPAN_OP, MEMORY_ID, 0, 2, 0, 0);
	expect_counters(CNT__COUNT);
}

/* Freed by Python after an exception: by no operator. */
static void test_memory_unwound(void **state)
{
	label__enter("label", 0x5000, FRAME(1));
	op__enter(0, FRAME(5));
	memory__allocate(0x1000, 100);
	native.cookie = op_cookie(OP_FREE, 8, 0);
	op_memory(&(struct pt_regs){.sp = FRAME(3), .si = 0x1000});
	label__exit(0x5000, FRAME(1));
	assert_int_equal(op_val(SPAN_LABEL, utf8_id("label"), 0)->self_bytes[OP_MEMORY_CPU], -100);
	assert_int_equal(op_val(SPAN_LABEL, utf8_id("label"), 0)->total_bytes[OP_MEMORY_CPU], 0);
	expect_counters(CNT_UNWOUND, 1, CNT__COUNT);
}

static void test_memory_many(void **state)
{
	for (u64 i = 0; i < ALLOCATIONS_MAX + 100; i++)
		memory__allocate(0x1000 + i, 1);
	for (u64 i = 0; i < ALLOCATIONS_MAX + 100; i++)
		memory__free(0x1000 + i);
	expect_bytes(MEMORY_ID, OP_MEMORY_CPU, 100, 100); /* those are forgotten */
	expect_counters(CNT__COUNT);
}

/* ---- the timeline ---- */

static void test_timeline(void **state)
{
	static const struct {
		u32 kind;
		u64 name;
		u64 start_ns, duration_ns;
		u32 depth;
	} expected[] = {
		{SPAN_OP, OP_ID(0), 14, 4, 3},
		{SPAN_OP, OP_ID(0), 12, 6, 2},
		{SPAN_LABEL, 0, 11, 7, 1},
		{SPAN_NODE, NODE_ID(0), 18, 1, 1},
		{SPAN_BACKWARD, FIXED_ID(BACKWARD), 10, 9, 0},
	};

	native__set_knob(&want_timeline, 1);
	native.now_ns = 10;
	fn__enter(FN_BACKWARD, FRAME(1));
	wait_ns(1);
	label__enter("label", 0x5000, FRAME(2));
	wait_ns(1);
	op__enter(0, FRAME(3));
	wait_ns(2);
	op__run(0, 4, FRAME(4)); /* one with it in the table, not here */
	op__exit(FRAME(3));
	label__exit(0x5000, FRAME(2));
	node__enter(OP_NODE, 0, FRAME(2));
	wait_ns(1);
	op__exit(FRAME(2));
	fn__exit(FN_BACKWARD, FRAME(1));
	for (u32 i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		const struct rec_span *rec = record(REC_SPAN, i);

		assert_non_null(rec);
		assert_int_equal(rec->kind, expected[i].kind);
		assert_int_equal(rec->name, expected[i].name ?: utf8_id("label"));
		assert_int_equal(rec->start_ns, expected[i].start_ns);
		assert_int_equal(rec->duration_ns, expected[i].duration_ns);
		assert_int_equal(rec->depth, expected[i].depth);
		assert_int_equal(rec->pid, JOB_PID);
		assert_int_equal(rec->tid, job.task.pid);
		assert_int_equal(rec->sequence, -1);
	}
	assert_null(record(REC_SPAN, sizeof(expected) / sizeof(expected[0])));
	native.ring_full = true;
	op__run(0, 4, FRAME(1));
	expect_counters(CNT_SPANS_CUT, 1, CNT__COUNT);
	assert_int_equal(op_proc->cut, 1);
	assert_int_equal(op_val(SPAN_OP, OP_ID(0), 0)->calls, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, ops_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(nested),
		TEST(left_by_exception),
		TEST(dup),
		TEST(dup_chain),
		TEST(dup_bytes),
		TEST(dup_between),
		TEST(threads),
		TEST(actions),
		TEST(engine_threads),
		TEST(landmarks_same),
		TEST(unwound_by_entry),
		TEST(unwound_by_exit),
		TEST(exit_without_entry),
		TEST(stack_full),
		TEST(no_storage),
		TEST(neighbours),
		TEST(table_full),
		TEST(memory),
		TEST(memory_unwound),
		TEST(memory_many),
		TEST(timeline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
