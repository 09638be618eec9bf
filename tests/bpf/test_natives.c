/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Collections of garbage (bpf/gc.h), and calls of native functions that are part of another of their kind
 * (bpf/functions.h).
 */
#include "tests/bpf/native/job.h"

#define START 0x5555aaaa1c07ULL /* the texts, at some addresses with the bits 0-11 that the file gives them */
#define STOP  0x5555aaab429eULL

enum { ALL_REDUCE = FN_FIRST, BARRIER, USER };

/* invoke_gc_callback, called from `sp`; `flags` as user space found its arguments. */
static void gc__callback(u64 phase, u64 generation, u64 sp, u32 flags)
{
	struct pt_regs regs = {.sp = sp, .di = 0x1111, .si = phase, .dx = generation};

	if (flags & COOKIE_PHASE_FIRST)
		regs = (struct pt_regs){.sp = sp, .di = phase, .si = generation, .dx = 0x1111};
	native.cookie = COOKIE(PROBE_GC, flags, 0, START & 0xfff);
	probe(&regs);
}

static void test_gc(void **state)
{
	for (u32 flags = 0; flags <= COOKIE_PHASE_FIRST; flags += COOKIE_PHASE_FIRST) {
		for (u64 generation = 0; generation < 3; generation++) {
			gc__callback(START, generation, FRAME(2), flags);
			wait_ns(10 * (generation + 1));
			/* a finalizer, whose calls are deeper and shallower than invoke_gc_callback was */
			label__run("finalizer", 5, FRAME(3));
			label__run("finalizer", 5, FRAME(1));
			gc__callback(STOP, generation, FRAME(2), flags);
		}
	}
	expect_row(SPAN_GC, FIXED_ID(GC_0), 0, 2, 40, 20);
	expect_row(SPAN_GC, FIXED_ID(GC_1), 0, 2, 60, 40);
	expect_row(SPAN_GC, FIXED_ID(GC_2), 0, 2, 80, 60);
	expect_row(SPAN_LABEL, utf8_id("finalizer"), FIXED_ID(GC_2), 4, 20, 20);
	expect_counters(CNT__COUNT);
}

/* Armed in the middle of one, taken away in the middle of another, and a generation that is none. */
static void test_gc_losses(void **state)
{
	gc__callback(STOP, 2, FRAME(2), 0);
	expect_counters(CNT_OPEN_AT_START, 1, CNT__COUNT);
	gc__callback(START, 1, FRAME(2), 0);
	wait_ns(1000);
	gc__callback(START, 0, FRAME(2), 0);
	wait_ns(7);
	gc__callback(STOP, 0, FRAME(2), 0);
	gc__callback(START, 1ULL << 31, FRAME(2), 0);
	expect_row(SPAN_GC, FIXED_ID(GC_0), 0, 1, 7, 7);
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT_OPEN_AT_START, 1, CNT_SPAN_REUSED, 1, CNT__COUNT);
}

static void test_part_of_another(void **state)
{
	job__set_fn(ALL_REDUCE, FN_ID(ALL_REDUCE), SPAN_COMM);
	job__set_fn(BARRIER, FN_ID(BARRIER), SPAN_COMM);
	fn__enter(BARRIER, FRAME(1));
	wait_ns(5);
	fn__enter(ALL_REDUCE, FRAME(2));
	wait_ns(20);
	fn__enter(USER, FRAME(3));
	fn__enter(USER, FRAME(4));
	wait_ns(2);
	fn__exit(USER, FRAME(4));
	fn__exit(USER, FRAME(3));
	fn__exit(ALL_REDUCE, FRAME(2));
	wait_ns(3);
	fn__exit(BARRIER, FRAME(1));
	fn__enter(ALL_REDUCE, FRAME(1));
	wait_ns(4);
	fn__exit(ALL_REDUCE, FRAME(1));
	expect_row(SPAN_COMM, FN_ID(BARRIER), 0, 1, 30, 28);
	expect_row(SPAN_COMM, FN_ID(ALL_REDUCE), 0, 1, 4, 4);
	expect_row(SPAN_USER, FN_ID(USER), FN_ID(BARRIER), 1, 2, 0);
	expect_row(SPAN_USER, FN_ID(USER), FN_ID(USER), 1, 2, 2);
	expect_counters(CNT__COUNT);
	fn__exit(BARRIER, FRAME(1));
	expect_counters(CNT_OPEN_AT_START, 1, CNT__COUNT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_gc, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gc_losses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_part_of_another, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
