/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What has its name read from the target: nodes, operators of the boxed dispatcher, classes of Python (bpf/ops.bpf.c).
 */
#include "tests/bpf/native/ops.h"

static void test_nodes(void **state)
{
	node__enter(OP_EVALUATE, 1, FRAME(1));
	wait_ns(2);
	node__enter(OP_NODE, 1, FRAME(2));
	wait_ns(3);
	op__run(0, 5, FRAME(3));
	op__exit(FRAME(2));
	op__exit(FRAME(1));
	expect_op(SPAN_EVALUATE, NODE_ID(1), 0, 1, 10, 2); /* its only child, with another name: "autograd::..." */
	expect_op(SPAN_NODE, NODE_ID(1), 0, 1, 8, 3);
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 5, 5);
	expect_counters(CNT__COUNT);
}

/* c10::OperatorName, at the head of what an OperatorHandle points to. */
struct operator_name {
	const char *text;
	u64 size, inside[2];
};

#define NAME(text)                      \
	{                               \
		text, sizeof(text) - 1, \
		{                       \
			0               \
		}                       \
	}

static void boxed__enter(const struct operator_name *name, u64 frame)
{
	native.cookie = op_cookie(OP_BOXED, 16, 1);
	boxed_enter(&(struct pt_regs){.sp = frame - 16, .si = (u64)&name});
}

static void boxed__exit(u64 frame)
{
	native.cookie = op_cookie(OP_BOXED, 8, 0);
	op_exit(&(struct pt_regs){.sp = frame - 8});
}

static void test_boxed(void **state)
{
	const struct operator_name names[2][2] = {{NAME("aten::add"), NAME("Tensor")}, {NAME("aten::relu"), NAME("")}};

	for (int i = 0; i < 3; i++) {
		boxed__enter(names[i % 2], FRAME(1));
		wait_ns(5);
		boxed__exit(FRAME(1));
	}
	expect_op(SPAN_OP, utf8_id("aten::add.Tensor"), 0, 2, 10, 10);
	expect_op(SPAN_OP, utf8_id("aten::relu"), 0, 1, 5, 5);
	expect_counters(CNT__COUNT);
	boxed__enter(NULL, FRAME(1));
	boxed__exit(FRAME(1));
	expect_counters(CNT_NAME_LOST, 1, CNT__COUNT);
}

/* The operators that begin and end a label are no calls. */
static void test_boxed_labels(void **state)
{
	const struct operator_name enter[2] = {NAME("profiler::_record_function_enter_new"), NAME("")},
				   leave[2] = {NAME("profiler::_record_function_exit"), NAME("_RecordFunction")};

	for (int i = 0; i < 2; i++) {
		boxed__enter(enter, FRAME(1));
		label__enter("label", 0x5000, FRAME(2));
		boxed__exit(FRAME(1));
		op__run(0, 5, FRAME(1));
		boxed__enter(leave, FRAME(1));
		label__exit(0x5000, FRAME(2));
		boxed__exit(FRAME(1));
	}
	expect_op(SPAN_LABEL, utf8_id("label"), 0, 2, 10, 0);
	expect_op(SPAN_OP, OP_ID(0), 0, 2, 10, 10);
	assert_int_equal(op_row_cnt(), 2);
	expect_counters(CNT__COUNT);
}

/* A class that Python defines: a PyNode's, or that of a function's apply. */
static void test_python_class(void **state)
{
	struct node_class class = {OP_SLOT_USED, 0x1234};
	struct node_val val = {.object = 24};
	u64 type[8] = {[3] = (u64) "MyFunctionBackward"}, object[2] = {1, (u64)type},
	    node[4] = {class.vtable, 0, 0, (u64)object};
	struct pt_regs regs = {.sp = FRAME(1) - 16, .di = (u64)node, .si = (u64)type};

	bpf_map_update_elem(&node_classes, &class, &val, BPF_ANY);
	native.cookie = op_cookie(OP_NODE, 16, 0);
	node_enter(&regs);
	wait_ns(3);
	op__exit(FRAME(1));
	expect_op(SPAN_NODE, utf8_id("MyFunctionBackward"), 0, 1, 3, 3);
	native.cookie = op_cookie(OP_PYTHON, 16, 1);
	node_enter(&regs);
	op__exit(FRAME(1));
	expect_op(SPAN_OP, utf8_id("MyFunctionBackward"), 0, 1, 0, 0);
	expect_counters(CNT__COUNT);
	type[3] = FAKEPY_NO_ADDRESS;
	node_enter(&regs);
	expect_counters(CNT_NAME_LOST, 1, CNT__COUNT);
}

/* A text is named as a string of its length is. */
static void test_long_text(void **state)
{
	static const u32 lengths[] = {510, 511, 512, 513, 519, 520, 600, 1022, 2000};
	static char text[2001];
	struct pt_regs regs = {.sp = FRAME(1) - 16, .di = (u64)text};

	op__run(0, 1, FRAME(1));
	for (u32 i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		u64 id;

		memset(text, 'x', lengths[i]);
		id = name__read(&job__thread()->names, (u64)text, lengths[i], NAME_UTF8);
		native.cookie = op_cookie(OP_TEXT, 16, 0);
		node_enter(&regs);
		op__exit(FRAME(1));
		expect_op(SPAN_OP, id, 0, 1, 0, 0);
	}
	expect_counters(CNT_NAME_CUT, 2 * 6, CNT__COUNT);
}

static void test_unknown_node(void **state)
{
	nodes[2][0]++;
	node__enter(OP_NODE, 2, FRAME(1));
	assert_int_equal(depth(), 0);
	expect_counters(CNT_NAME_LOST, 1, CNT__COUNT);
	native.cookie = op_cookie(OP_NODE, 8, 0);
	node_enter(&(struct pt_regs){.sp = FRAME(1), .di = FAKEPY_NO_ADDRESS});
	expect_counters(CNT_NAME_LOST, 2, CNT__COUNT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, ops_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(nodes), TEST(boxed), TEST(boxed_labels), TEST(python_class), TEST(long_text), TEST(unknown_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
