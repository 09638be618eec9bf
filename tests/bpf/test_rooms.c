/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a process may fill of the tables of names and rows (bpf/name.h, bpf/span.h): sums stay right, and what matters keeps its place. */
#include "tests/bpf/native/job.h"

enum { F = FN_FIRST, G };

#define OTHER FIXED_ID(OTHER)

static const char *numbered(const char *text, int number)
{
	static char name[64];

	snprintf(name, sizeof(name), "%s %d", text, number);
	return name;
}

static void run_labels(const char *text, int cnt)
{
	for (int i = 0; i < cnt; i++) {
		label__run(numbered(text, i), 3, FRAME(1));
		native__empty_ring();
	}
}

static void run_action(const char *name, u64 ns)
{
	u64 action = action__new(name);

	action__next(action, FRAME(1));
	wait_ns(ns);
	action__next(action, FRAME(1));
}

static void test_labels(void **state)
{
	(void)state;
	run_labels("item", NAMES_OWN + 30);
	expect_row(SPAN_LABEL, OTHER, 0, 30, 90, 90);
	assert_int_equal(native_map__cnt(&aggs), NAMES_OWN + 1);
	expect_counters(CNT_NAMES_FOLDED, 30, CNT__COUNT);
	/* a name that has a row keeps it; what torch, Lightning and NVTX set has room of its own */
	label__run("item 7", 5, FRAME(1));
	label__run(OPTIMIZER_LABEL, 100, FRAME(1));
	run_action("[Strategy]S.training_step", 50);
	run_action("the user's", 7);
	expect_row(SPAN_LABEL, utf8_id(OPTIMIZER_LABEL), 0, 1, 100, 100);
	expect_row(SPAN_ACTION, latin_id("[Strategy]S.training_step"), 0, 1, 50, 50);
	expect_row(SPAN_ACTION, latin_id("the user's"), 0, 1, 7, 7);
	expect_counters(CNT_NAMES_FOLDED, 30, CNT__COUNT);
}

static void test_actions(void **state)
{
	(void)state;
	for (int i = 0; i < NAMES_OWN + 5; i++) {
		run_action(numbered("action", i), 2);
		native__empty_ring();
	}
	expect_row(SPAN_ACTION, OTHER, 0, 5, 10, 10);
	run_action("run_training_batch", 9);
	expect_row(SPAN_ACTION, latin_id("run_training_batch"), 0, 1, 9, 9);
	expect_counters(CNT_NAMES_FOLDED, 5, CNT__COUNT);
}

/* The table of names is shared: a part of it is for landmarks alone. */
static void test_all_names(void **state)
{
	(void)state;
	name_cnt = NAMES_SHARED;
	label__run("mine", 3, FRAME(1));
	label__run(OPTIMIZER_LABEL, 100, FRAME(1));
	expect_row(SPAN_LABEL, OTHER, 0, 1, 3, 3);
	expect_row(SPAN_LABEL, utf8_id(OPTIMIZER_LABEL), 0, 1, 100, 100);
	expect_counters(CNT_NAMES_FOLDED, 1, CNT__COUNT);
}

/* A name that did not fit into the ring is emitted by a later call, also if another thread met it in between. */
static void test_full_ring(void **state)
{
	u8 pending = 0;
	u64 id;

	(void)state;
	label__run("late", 1, FRAME(1));
	id = utf8_id("late");
	bpf_map_delete_elem(&names, &id);
	native__forget(&names_close);
	native__empty_ring();
	bpf_map_update_elem(&names, &id, &pending, BPF_NOEXIST); /* another thread is about to emit it */
	label__run("late", 2, FRAME(1));
	bpf_map_delete_elem(&names, &id); /* and had no room */
	native.ring_full = true;
	label__run("late", 3, FRAME(1));
	native.ring_full = false;
	assert_int_equal(native.ring_bytes, 0);
	label__run("late", 4, FRAME(1));
	label__run("late", 5, FRAME(1));
	assert_int_equal(utf8_id("late"), id);
	expect_row(SPAN_LABEL, id, 0, 5, 15, 15);
	expect_counters(CNT_RING_FULL, 1, CNT__COUNT);
}

/* --step-at needs its name. */
static void test_step_at(void **state)
{
	u64 id;

	(void)state;
	label__run("epoch", 3, FRAME(1));
	id = utf8_id("epoch");
	bpf_map_delete_elem(&names, &id);
	native__forget(&names_close);
	job.proc->room.names[NAMES_LABELS] = NAMES_OWN;
	native__set_knob(&step_at[1], id);
	label__run("epoch", 4, FRAME(1));
	native__set_knob(&step_at[1], 0);
	expect_row(SPAN_LABEL, id, 0, 2, 7, 7);
	expect_counters(CNT__COUNT);
}

/* Many names around many others: rows of one name become one, whatever is around them. */
static void test_rows(void **state)
{
	(void)state;
	job.proc->room.rows = AGG_ROWS_OWN - 1;
	for (int i = 0; i < 5; i++) {
		fn__enter(F + i, FRAME(1));
		wait_ns(10);
		fn__enter(G + 5, FRAME(2));
		wait_ns(2);
		fn__exit(G + 5, FRAME(2));
		fn__exit(F + i, FRAME(1));
	}
	expect_row(SPAN_USER, FN_ID(G + 5), FN_ID(F), 1, 2, 2);
	expect_row(SPAN_USER, FN_ID(G + 5), OTHER, 4, 8, 8);
	expect_row(SPAN_USER, FN_ID(F + 4), 0, 1, 12, 10);
	assert_int_equal(self_sum(), 60);
	expect_counters(CNT_ROWS_FOLDED, 4, CNT__COUNT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_labels),    TEST(test_actions), TEST(test_all_names),
		TEST(test_full_ring), TEST(test_step_at), TEST(test_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
