/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Autograd's sequence numbers in the timeline (bpf/sequence.h): where a thread's are, which operators keep one, those
 * of nodes.
 */
#include "tests/bpf/native/ops.h"

#define MODULE  3
#define ENTRIES 4
#define UNUSED  (~0ULL)

/* A thread of glibc's: the thread pointer {itself, dtv}, the dtv behind its number of entries, and a module's block. */
struct fake_tls {
	u64 pointer[2];
	u64 dtv[2 + 2 * (ENTRIES + 1)];
	u64 block[4];
};

#define NUMBER(tls) ((tls)->block[2])
#define DTV(tls)    (&(tls)->dtv[2])

static struct fake_tls main_tls, other_tls;

static void tls__start(struct fake_tls *tls, struct task_struct *task)
{
	*tls = (struct fake_tls){.pointer = {(u64)tls->pointer, (u64)DTV(tls)}, .dtv = {ENTRIES}};
	DTV(tls)[2 * MODULE] = (u64)tls->block;
	task->thread.fsbase = (u64)tls->pointer;
}

static int sequence_setup(void **state)
{
	ops__start();
	native__set_knob(&want_timeline, 1);
	tls__start(&main_tls, &job.task);
	tls__start(&other_tls, &job.thread);
	op_proc->sequence_module = MODULE;
	op_proc->sequence_offset = 2 * sizeof(u64);
	op_proc->node_sequence = 8;
	return 0;
}

/* The sequence numbers of the spans, in the order in which they ended. */
#define EXPECT_NUMBERS(...)                                               \
	do {                                                              \
		const s64 expected[] = {__VA_ARGS__};                     \
		u32 cnt = sizeof(expected) / sizeof(expected[0]);         \
		for (u32 i = 0; i < cnt; i++) {                           \
			const struct rec_span *rec = record(REC_SPAN, i); \
			assert_non_null(rec);                             \
			assert_int_equal(rec->sequence, expected[i]);     \
		}                                                         \
		assert_null(record(REC_SPAN, cnt));                       \
	} while (0)

/* An operator that takes a number for its node, before it calls another one. */
static void make_node(struct fake_tls *tls, u64 frame)
{
	op__enter(0, FRAME(frame));
	NUMBER(tls)++;
	op__run(2, 1, FRAME(frame + 1));
	op__exit(FRAME(frame));
}

static void test_makers(void **state)
{
	NUMBER(&main_tls) = 40;
	op__enter(4, FRAME(1)); /* made of operators, the first and the last of which make nodes */
	make_node(&main_tls, 2);
	op__run(6, 1, FRAME(2));
	make_node(&main_tls, 2);
	op__exit(FRAME(1));
	op__run(6, 1, FRAME(1));
	EXPECT_NUMBERS(-1, 40, -1, -1, 41, 40, -1);
	expect_counters(CNT__COUNT);
}

static void test_threads(void **state)
{
	NUMBER(&main_tls) = 7;
	NUMBER(&other_tls) = 1000;
	make_node(&main_tls, 1);
	native.task = &job.thread;
	make_node(&other_tls, 1);
	native.task = &job.task;
	make_node(&main_tls, 1);
	EXPECT_NUMBERS(-1, 7, -1, 1000, -1, 8);
}

/* A thread gets a module's block when it first uses it. Numbers begin at 0. */
static void test_first_use(void **state)
{
	DTV(&main_tls)[2 * MODULE] = UNUSED;
	op__run(2, 1, FRAME(1));
	op__enter(0, FRAME(1));
	DTV(&main_tls)[2 * MODULE] = (u64)main_tls.block;
	NUMBER(&main_tls)++;
	op__exit(FRAME(1));
	make_node(&main_tls, 1);
	EXPECT_NUMBERS(-1, 0, -1, 1);
}

/* In the executable's own block, or one that was there at its start, at a fixed distance from the thread pointer. */
static void test_static(void **state)
{
	op_proc->sequence_module = 0;
	op_proc->sequence_offset = (u64)&NUMBER(&main_tls) - (u64)main_tls.pointer;
	NUMBER(&main_tls) = 3;
	make_node(&main_tls, 1);
	EXPECT_NUMBERS(-1, 3);
}

static void test_not_known(void **state)
{
	op_proc->sequence_module = ENTRIES + 1; /* the dtv was not grown yet */
	make_node(&main_tls, 1);
	op_proc->sequence_module = MODULE;
	job.task.thread.fsbase = 0;
	make_node(&main_tls, 1);
	op_proc->sequence_module = op_proc->sequence_offset = op_proc->node_sequence = 0;
	make_node(&main_tls, 1);
	node__enter(OP_NODE, 0, FRAME(1));
	op__exit(FRAME(1));
	EXPECT_NUMBERS(-1, -1, -1, -1, -1, -1, -1);
	expect_counters(CNT__COUNT);
}

/* Nobody reads memory for a timeline that nobody wants. */
static void test_not_wanted(void **state)
{
	u64 reads = native.reads;

	native__set_knob(&want_timeline, 0);
	make_node(&main_tls, 1);
	native__set_knob(&want_timeline, 1);
	op_proc->open = 0;
	make_node(&main_tls, 1);
	assert_int_equal(native.reads, reads);
	assert_null(record(REC_SPAN, 0));
}

static void test_nodes(void **state)
{
	NUMBER(&main_tls) = 9;
	nodes[0][1] = 5;
	nodes[1][1] = UNUSED; /* AccumulateGrad */
	node__enter(OP_EVALUATE, 0, FRAME(1));
	node__enter(OP_NODE, 0, FRAME(2));
	make_node(&main_tls, 3); /* its backward is to be differentiated, too */
	op__exit(FRAME(2));
	op__exit(FRAME(1));
	node__enter(OP_NODE, 1, FRAME(1));
	op__exit(FRAME(1));
	EXPECT_NUMBERS(-1, 9, 5, 5, -1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, sequence_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(makers),    TEST(threads),    TEST(first_use), TEST(static),
		TEST(not_known), TEST(not_wanted), TEST(nodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
