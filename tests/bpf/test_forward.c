/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Forward, which is derived: what lies between the end of a landmark and backward (gap__begin, gap__end in bpf/span.h);
 * and backward.
 */
#include "tests/bpf/native/job.h"

enum { F = FN_FIRST, G };

/* A plain loop inside one action, with a label inside forward: its self times are the wall time. */
static void test_forward(void **state)
{
	u64 epoch = action__new("epoch");

	action__next(epoch, FRAME(1));
	for (int i = 0; i < 3; i++) {
		label__run(DATA_LABEL, 10, FRAME(2));
		wait_ns(3);
		label__run("layer", 7, FRAME(2));
		wait_ns(5);
		backward(20, FRAME(3));
		wait_ns(1);
		label__run(OPTIMIZER_LABEL, 4, FRAME(2));
		label__run(ZERO_LABEL, 2, FRAME(2));
	}
	action__next(epoch, FRAME(1));
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), latin_id("epoch"), 3, 45, 24);
	expect_row(SPAN_BACKWARD, FIXED_ID(BACKWARD), latin_id("epoch"), 3, 60, 60);
	expect_row(SPAN_ACTION, latin_id("epoch"), 0, 1, 156, 3);
	assert_int_equal(self_sum(), 156);
	expect_counters(CNT__COUNT);
}

/*
 * zero_grad behind the loss, as in PyTorch's tutorial, and in front of the model, by itself and in a label: what is around
 * it is forward, it is not, and phases and the interval that samples are seen against say the same.
 */
static void test_forward_around_zero_grad(void **state)
{
	u64 expected[PHASE__COUNT] = {0};
	const struct rec_interval *interval;

	native__set_knob(&want_step_times, 1);
	native__set_knob(&sample_period_ns, 1);
	for (int i = 0; i < 3; i++) {
		label__run(DATA_LABEL, 10, FRAME(2));
		wait_ns(3);
		label__run(i == 1 ? ZERO_LABEL : "layer", 2, FRAME(2));
		wait_ns(8);
		if (i == 2)
			label__enter("prepare", 0x7000, FRAME(1));
		label__run(i == 1 ? "layer" : ZERO_LABEL, 2, FRAME(2));
		wait_ns(1);
		if (i == 2)
			label__exit(0x7000, FRAME(1));
		job__thread()->gap_sampled = 1;
		backward(20, FRAME(3));
		label__run(OPTIMIZER_LABEL, 4, FRAME(2));
	}
	/* 12 and the layer's 2 each time */
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), 0, 3, 42, 35);
	interval = record(REC_INTERVAL, 2);
	assert_non_null(interval);
	assert_int_equal(interval->duration_ns, 16);
	expected[PHASE_DATA] = 10;
	expected[PHASE_FORWARD] = 14;
	expected[PHASE_BACKWARD] = 20;
	expected[PHASE_OPTIMIZER] = 6;
	assert_memory_equal(((const struct rec_step *)record(REC_STEP, 4))->phase_ns, expected, sizeof(expected));
	expect_counters(CNT__COUNT);
}

/* Labels around each part: the landmark that forward begins after is inside of one, backward inside of another. */
static void test_forward_across_labels(void **state)
{
	u64 epoch = action__new("epoch");

	action__next(epoch, FRAME(1));
	for (int i = 0; i < 3; i++) {
		label__enter("fetch", 0x7000, FRAME(1));
		label__run(DATA_LABEL, 10, FRAME(2));
		wait_ns(2);
		label__exit(0x7000, FRAME(1));
		wait_ns(3);
		label__enter("model", 0x7000, FRAME(1));
		wait_ns(9);
		label__exit(0x7000, FRAME(1));
		wait_ns(1);
		label__enter("learn", 0x7000, FRAME(1));
		wait_ns(4);
		backward(20, FRAME(3));
		wait_ns(1);
		label__run(OPTIMIZER_LABEL, 4, FRAME(2));
		label__exit(0x7000, FRAME(1));
	}
	action__next(epoch, FRAME(1));
	/* from the end of `fetch` to backward; what of `learn` came before is learn's own, too */
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), latin_id("epoch"), 3, 51, 12);
	expect_row(SPAN_LABEL, utf8_id("learn"), latin_id("epoch"), 3, 87, 15);
	expect_row(SPAN_LABEL, utf8_id("model"), latin_id("epoch"), 3, 27, 27);
	expect_row(SPAN_ACTION, latin_id("epoch"), 0, 1, 162, 0);
	assert_int_equal(self_sum(), 162);
	expect_counters(CNT__COUNT);
}

/* The whole step in a span that began after the last landmark. */
static void test_forward_in_new_span(void **state)
{
	u64 epoch = action__new("epoch"), step = action__new("step");

	action__next(epoch, FRAME(1));
	label__run(DATA_LABEL, 10, FRAME(2));
	wait_ns(2);
	action__next(step, FRAME(1));
	wait_ns(30);
	label__run("layer", 5, FRAME(2));
	backward(20, FRAME(3));
	action__next(step, FRAME(1));
	action__next(epoch, FRAME(1));
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), latin_id("epoch"), 1, 37, 2);
	expect_row(SPAN_ACTION, latin_id("step"), latin_id("epoch"), 1, 55, 30);
	assert_int_equal(self_sum(), 67);
}

/* What was open around the landmark went with an exception: where forward begins is not known. */
static void test_forward_unknown(void **state)
{
	fn__enter(F, FRAME(1));
	label__run(DATA_LABEL, 10, FRAME(4));
	wait_ns(3);
	fn__enter(G, FRAME(0)); /* F is gone */
	wait_ns(5);
	backward(20, FRAME(2));
	fn__exit(G, FRAME(0));
	assert_null(row(SPAN_FORWARD, FIXED_ID(FORWARD), 0));
	assert_null(row(SPAN_FORWARD, FIXED_ID(FORWARD), FN_ID(G)));
	expect_row(SPAN_USER, FN_ID(G), 0, 1, 25, 5);
	assert_int_equal(self_sum(), 10 + 25);
	expect_counters(CNT_UNWOUND, 1, CNT__COUNT);
}

/* After a backward, another one: forward lies between, or gradients of gradients. */
static void test_backward_again(void **state)
{
	label__run(DATA_LABEL, 10, FRAME(2));
	wait_ns(3);
	backward(20, FRAME(2));
	wait_ns(4);
	backward(30, FRAME(2));
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), 0, 2, 7, 7);
	expect_row(SPAN_BACKWARD, FIXED_ID(BACKWARD), 0, 2, 50, 50);
}

static void test_backward_reentrant(void **state)
{
	label__run(DATA_LABEL, 10, FRAME(2));
	wait_ns(3);
	fn__enter(FN_BACKWARD, FRAME(2));
	wait_ns(5);
	label__run("recompute", 6, FRAME(5));
	backward(7, FRAME(6)); /* checkpointing */
	wait_ns(1);
	fn__exit(FN_BACKWARD, FRAME(2));
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), 0, 1, 3, 3);
	expect_row(SPAN_BACKWARD, FIXED_ID(BACKWARD), 0, 1, 19, 13);
	expect_counters(CNT__COUNT);
}

/* Checkpoints that are re-entrant, on a GPU: the engine's thread calls the engine, inside of the backward of another thread. */
static void test_backward_of_engine(void **state)
{
	strcpy(job.thread.comm, "pt_autograd_0");
	for (int i = 0; i < 3; i++) {
		label__run(DATA_LABEL, 10, FRAME(2));
		wait_ns(7);
		fn__enter(FN_BACKWARD, FRAME(3));
		native.task = &job.thread;
		for (int k = 0; k < 4; k++) {
			wait_ns(2);
			backward(3, FRAME(1));
		}
		native.task = &job.task;
		fn__exit(FN_BACKWARD, FRAME(3));
		label__run(OPTIMIZER_LABEL, 4, FRAME(2));
	}
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), 0, 3, 21, 21);
	expect_row(SPAN_BACKWARD, FIXED_ID(BACKWARD), 0, 3, 60, 60);
	expect_counters(CNT__COUNT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(forward),
		TEST(forward_across_labels),
		TEST(forward_in_new_span),
		TEST(forward_around_zero_grad),
		TEST(forward_unknown),
		TEST(backward_again),
		TEST(backward_reentrant),
		TEST(backward_of_engine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
