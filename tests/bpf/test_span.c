/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Spans (bpf/span.h) and their sources: nesting, times, rows, names, labels, and every loss with its counter. */
#include "tests/bpf/native/job.h"

enum { F = FN_FIRST, G, H };

static void expect_extremes(const struct agg_val *val, u64 min_ns, u64 max_ns, u64 first_ns)
{
	assert_non_null(val);
	assert_int_equal(val->min_ns, min_ns);
	assert_int_equal(val->max_ns, max_ns);
	assert_int_equal(val->first_ns, first_ns);
}

/* ---- times ---- */

static void test_nesting(void **state)
{
	for (int i = 0; i < 2; i++) {
		fn__enter(F, FRAME(1));
		wait_ns(10);
		fn__enter(G, FRAME(2));
		wait_ns(30 + i);
		fn__enter(H, FRAME(3));
		wait_ns(5);
		fn__exit(H, FRAME(3));
		fn__exit(G, FRAME(2));
		wait_ns(20);
		fn__enter(H, FRAME(2));
		wait_ns(7);
		fn__exit(H, FRAME(2));
		wait_ns(1);
		fn__exit(F, FRAME(1));
	}
	expect_row(SPAN_USER, FN_ID(F), 0, 2, 147, 62);
	expect_row(SPAN_USER, FN_ID(G), FN_ID(F), 2, 71, 61);
	expect_row(SPAN_USER, FN_ID(H), FN_ID(G), 2, 10, 10);
	expect_row(SPAN_USER, FN_ID(H), FN_ID(F), 2, 14, 14);
	expect_extremes(row(SPAN_USER, FN_ID(F), 0), 73, 74, 1000);
	expect_extremes(row(SPAN_USER, FN_ID(G), FN_ID(F)), 35, 36, 1010);
	expect_extremes(row(SPAN_USER, FN_ID(H), FN_ID(F)), 7, 7, 1065);
	assert_int_equal(native_map__cnt(&aggs), 4);
	assert_int_equal(self_sum(), 147);
	expect_counters(CNT__COUNT);
	assert_int_equal(job.proc->cost.hits, 16);
}

/* A program's own time is in no span: the start is taken at its end, and the end at its start. */
static void test_own_time(void **state)
{
	hit(PROBE_NONE, 0, FRAME(1), 0, 0, 0); /* the first is timed */
	job.proc->cost.sampled_ns = 0;
	native.tick_ns = 3;
	fn__enter(F, FRAME(1));
	wait_ns(100);
	fn__exit(F, FRAME(1));
	expect_row(SPAN_USER, FN_ID(F), 0, 1, 103, 103);
	/* Lightning takes the start of a fetch before the trap. */
	job.tstate_word = fakepy__tstate(
		&job.py,
		fakepy__frame(&job.py,
			      fakepy__code(&job.py, "/lightning/pytorch/loops/training_epoch_loop.py", "advance"), 0));
	loader__next(fakepy__object(&job.py, "CombinedLoader"), FRAME(1));
	wait_ns(100);
	loader__exit(FRAME(1));
	/* with the second look at the clock of the entry, and the first of the exit */
	expect_row(SPAN_ACTION, FIXED_ID(TRAIN_NEXT), 0, 1, 106, 106);
	assert_int_equal(job.proc->cost.hits, 5);
	assert_int_equal(job.proc->cost.sampled, 1);
	for (int i = 0; i < 2 * HITS_PER_SAMPLE && job.proc->cost.sampled == 1; i++)
		fn__enter(F, FRAME(1));
	assert_int_equal(job.proc->cost.sampled, 2);
	assert_int_equal(job.proc->cost.sampled_ns, 9);
}

/* One program in 64 is timed, at each place of a step alike, with the time since the hit before. */
static void test_sampled_hits(void **state)
{
	u32 timed_begins = 0, timed_ends = 0;

	wait_ns(HIT_AWAY_NS);
	for (int i = 0; i < 64 * 50; i++) {
		u64 before = job.proc->cost.sampled;

		fn__enter(F, FRAME(1));
		timed_begins += job.proc->cost.sampled - before;
		before = job.proc->cost.sampled;
		wait_ns(1000);
		fn__exit(F, FRAME(1));
		timed_ends += job.proc->cost.sampled - before;
		wait_ns(2 * HIT_AWAY_NS);
	}
	assert_in_range(timed_begins, 49, 51);
	assert_in_range(timed_ends, 49, 51);
	assert_int_equal(job.proc->cost.sampled_away_ns, timed_begins * (u64)HIT_AWAY_NS + timed_ends * 1000);
}

static void test_histogram(void **state)
{
	static const struct {
		u64 ns;
		u32 bucket;
	} cases[] = {
		{0, 0},           {1, 0},
		{2, 1},           {3, 1},
		{4, 2},           {7, 2},
		{8, 3},           {255, 7},
		{256, 8},         {0xffff, 15},
		{0x10000, 16},    {0xffffffff, 31},
		{1ULL << 32, 32}, {(1ULL << 39) - 1, 38},
		{1ULL << 39, 39}, {(1ULL << 40) - 1, 39},
		{1ULL << 40, 39}, {1ULL << 63, 39},
	};
	u32 expected[AGG_BUCKETS] = {0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		native.now_ns = 1 + i;
		fn__enter(F, FRAME(1));
		wait_ns(cases[i].ns);
		fn__exit(F, FRAME(1));
		expected[cases[i].bucket]++;
	}
	assert_memory_equal(row(SPAN_USER, FN_ID(F), 0)->hist, expected, sizeof(expected));
	expect_extremes(row(SPAN_USER, FN_ID(F), 0), 0, 1ULL << 63, 1);
}

static void test_recursion(void **state)
{
	for (u64 n = 1; n <= 5; n++) {
		fn__enter(F, FRAME(n));
		wait_ns(10);
	}
	for (u64 n = 5; n >= 1; n--) {
		fn__exit(F, FRAME(n));
		wait_ns(1);
	}
	/* the outermost has another parent than the four inside */
	expect_row(SPAN_USER, FN_ID(F), 0, 1, 54, 11);
	expect_row(SPAN_USER, FN_ID(F), FN_ID(F), 4, 10 + 21 + 32 + 43, 43);
	expect_counters(CNT__COUNT);
}

static void test_threads(void **state)
{
	native.task = &job.thread;
	fn__enter(F, FRAME(1));
	wait_ns(10);
	native.task = &job.task;
	fn__enter(F, FRAME(1));
	wait_ns(10);
	fn__exit(F, FRAME(1));
	native.task = &job.thread;
	fn__exit(F, FRAME(1));
	expect_row(SPAN_USER, FN_ID(F), 0, 2, 30, 30);
	expect_counters(CNT__COUNT);
}

/* ---- actions ---- */

static void test_action(void **state)
{
	u64 outer = action__new("[Strategy]Single.training_step"), inner = action__new("inner");

	action__next(outer, FRAME(1));
	wait_ns(10);
	action__next(inner, FRAME(9));
	wait_ns(5);
	action__throw(inner, FRAME(8));
	wait_ns(1);
	action__next(outer, FRAME(1));
	expect_row(SPAN_ACTION, latin_id("[Strategy]Single.training_step"), 0, 1, 16, 11);
	expect_row(SPAN_ACTION, latin_id("inner"), latin_id("[Strategy]Single.training_step"), 1, 5, 5);
	expect_counters(CNT__COUNT);
	assert_int_equal(job.proc->landmarks.profile_code, job.profile_code);
}

static void test_action_open_at_start(void **state)
{
	u64 gen = action__new("begun before us");

	fakepy__set_created(&job.py, gen, false);
	action__next(gen, FRAME(1));
	action__throw(gen, FRAME(1));
	expect_counters(CNT_OPEN_AT_START, 2, CNT__COUNT);
	assert_int_equal(native_map__cnt(&aggs), 0);
}

/* The generator was dropped with no end; its memory has a new one. What was begun inside the old one is gone, too. */
static void test_action_reused(void **state)
{
	u64 gen = action__new("again"), inner = action__new("inner");

	action__next(gen, FRAME(1));
	wait_ns(50);
	action__next(inner, FRAME(2));
	fakepy__set_created(&job.py, gen, true);
	action__next(gen, FRAME(1));
	assert_int_equal(depth(), 1);
	wait_ns(7);
	action__next(gen, FRAME(1));
	expect_row(SPAN_ACTION, latin_id("again"), 0, 1, 7, 7);
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT_SPAN_REUSED, 1, CNT_DROPPED_INNER, 1, CNT__COUNT);
}

static void test_dropped_inner(void **state)
{
	u64 outer = action__new("outer"), gens[3] = {action__new("a"), action__new("b"), action__new("c")};

	action__next(outer, FRAME(1));
	for (int i = 0; i < 3; i++)
		action__next(gens[i], FRAME(2));
	wait_ns(9);
	action__next(outer, FRAME(1));
	assert_int_equal(depth(), 0);
	expect_row(SPAN_ACTION, latin_id("outer"), 0, 1, 9, 9);
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT_DROPPED_INNER, 3, CNT__COUNT);
	action__next(gens[1], FRAME(2));
	expect_counters(CNT_DROPPED_INNER, 3, CNT_OPEN_AT_START, 1, CNT__COUNT);
}

/* ---- exceptions ---- */

static void test_unwound(void **state)
{
	u64 inside = action__new("inside");

	fn__enter(F, FRAME(1));
	wait_ns(10);
	fn__enter(G, FRAME(2));
	action__next(inside, FRAME(3));
	fn__enter(H, FRAME(4));
	wait_ns(100);
	/* a C++ exception unwinds G and all in it; F catches it */
	fn__exit(F, FRAME(1));
	expect_row(SPAN_USER, FN_ID(F), 0, 1, 110, 110);
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT_UNWOUND, 3, CNT__COUNT);
}

/* A call from the very frame in which a dead one was. */
static void test_unwound_same_frame(void **state)
{
	fn__enter(F, FRAME(1));
	fn__enter(G, FRAME(2));
	wait_ns(50);
	fn__enter(G, FRAME(2));
	wait_ns(5);
	fn__exit(G, FRAME(2));
	fn__exit(F, FRAME(1));
	expect_row(SPAN_USER, FN_ID(G), FN_ID(F), 1, 5, 5);
	expect_row(SPAN_USER, FN_ID(F), 0, 1, 55, 50);
	expect_counters(CNT_UNWOUND, 1, CNT__COUNT);
}

static void test_fn_open_at_start(void **state)
{
	fn__exit(F, FRAME(1));
	expect_counters(CNT_OPEN_AT_START, 1, CNT__COUNT);
	/* the exit of an outer call, begun before us, while an inner one runs: its frame is not the inner one's */
	fn__enter(F, FRAME(2));
	hit(PROBE_FN_EXIT, F, FRAME(3), FRAME(1), 0, 0);
	assert_int_equal(depth(), 1);
	assert_int_equal(native_map__cnt(&aggs), 0);
}

/* ---- room ---- */

static void test_stack_full(void **state)
{
	for (u64 n = 1; n <= SPAN_DEPTH + 10; n++) {
		fn__enter(F, FRAME(n));
		wait_ns(1);
	}
	assert_int_equal(depth(), SPAN_DEPTH);
	expect_counters(CNT_STACK_FULL, 10, CNT__COUNT);
	for (u64 n = SPAN_DEPTH + 10; n >= 1; n--)
		fn__exit(F, FRAME(n));
	assert_int_equal(depth(), 0);
	expect_row(SPAN_USER, FN_ID(F), 0, 1, SPAN_DEPTH + 10, 1);
	assert_int_equal(row(SPAN_USER, FN_ID(F), FN_ID(F))->calls, SPAN_DEPTH - 1);
	expect_counters(CNT_STACK_FULL, 10, CNT__COUNT);
}

static void test_map_full(void **state)
{
	struct agg_val val = {0};

	for (u32 i = 0; i < AGG_ROWS; i++) {
		struct agg_key key = {.pid = i + JOB_PID + 1};

		assert_int_equal(bpf_map_update_elem(&aggs, &key, &val, BPF_NOEXIST), 0);
	}
	fn__enter(F, FRAME(1));
	fn__exit(F, FRAME(1));
	expect_counters(CNT_MAP_FULL, 1, CNT__COUNT);
}

static void test_no_storage(void **state)
{
	hit(PROBE_NONE, 0, FRAME(1), 0, 0, 0); /* is timed, and looks for the thread */
	native.storage_failures = 2;
	fn__enter(F, FRAME(1));
	expect_counters(CNT_NO_STORAGE, 1, CNT__COUNT);
	native.storage_failures = 1; /* the second try is good */
	fn__enter(F, FRAME(1));
	fn__exit(F, FRAME(1));
	expect_counters(CNT_NO_STORAGE, 1, CNT__COUNT);
	assert_int_equal(row(SPAN_USER, FN_ID(F), 0)->calls, 1);
}

static void label__once(const char *text)
{
	label__enter(text, 0x5000, FRAME(1));
	label__exit(0x5000, FRAME(1));
}

static void test_names(void **state)
{
	char text[REC_NAME_MAX + 100];
	u64 id;

	native.ring_full = true;
	label__once("a name");
	expect_counters(CNT_RING_FULL, 1, CNT__COUNT);
	native.ring_full = false;
	label__once("a name");
	label__once("a name");
	expect_row(SPAN_LABEL, utf8_id("a name"), 0, 3, 0, 0);
	label__once("");
	expect_row(SPAN_LABEL, utf8_id(""), 0, 1, 0, 0);
	expect_counters(CNT_RING_FULL, 1, CNT__COUNT);

	memset(text, 'x', sizeof(text));
	for (size_t bytes = 1; bytes < sizeof(text); bytes++) {
		text[bytes] = 0;
		native__empty_ring();
		label__once(text);
		text[bytes] = 'x';
		assert_int_equal(names_sent(NAME_UTF8, text, bytes < REC_NAME_MAX ? bytes : REC_NAME_MAX, &id), 1);
		assert_int_equal(((struct rec_name *)native.ring)->cut, bytes > REC_NAME_MAX);
		assert_int_equal(((struct rec_name *)native.ring)->whole_bytes, bytes);
		/*
		 * the cut ones have all bytes kept in common with the longest whole one, and yet are names of their own
		 */
		assert_int_equal(row(SPAN_LABEL, id, 0)->calls, 1);
	}
	assert_int_equal(counter(CNT_NAME_CUT), 99);
	text[0] = 'y';
	text[sizeof(text) - 1] = 0;
	label__once(text);
	assert_int_equal(names_sent(NAME_UTF8, text, REC_NAME_MAX, &id), 1);
	assert_int_equal(((struct rec_name *)native.ring)->cut, 1);
}

static void test_names_full(void **state)
{
	u8 one = 1;

	for (u64 i = 0; i < NAMES_MAX; i++)
		assert_int_equal(bpf_map_update_elem(&names, &i, &one, BPF_NOEXIST), 0);
	label__once("no room for this one");
	expect_counters(CNT_NAME_LOST, 1, CNT__COUNT);
}

/* ---- labels ---- */

static void test_label(void **state)
{
	label__enter("outer", 0x5000, FRAME(1));
	wait_ns(10);
	label__enter("inner", 0x6000, FRAME(2));
	wait_ns(5);
	label__exit(0x6000, FRAME(2));
	label__exit(0x7000, FRAME(3)); /* an op's, on the native stack */
	label__exit(0x6000, FRAME(2)); /* ended again by its destructor */
	wait_ns(1);
	label__exit(0x5000, FRAME(1));
	expect_row(SPAN_LABEL, utf8_id("outer"), 0, 1, 16, 11);
	expect_row(SPAN_LABEL, utf8_id("inner"), utf8_id("outer"), 1, 5, 5);
	expect_counters(CNT__COUNT);
	assert_int_equal(native_map__cnt(&aggs), 2);
}

/*
 * Once it has its handle it is bound to no native frame: it outlives the call that made it, and what is above on the
 * stack.
 */
static void test_label_frame(void **state)
{
	label__enter("a", 0x5000, FRAME(5));
	fn__enter(F, FRAME(1));
	fn__exit(F, FRAME(1));
	assert_int_equal(depth(), 1);
	label__exit(0x5000, FRAME(1));
	/* and before that it dies with an exception of the constructor's */
	hit(PROBE_LABEL, 0, FRAME(6), FRAME(5), 0, (u64)(u64[]){(u64) "b", 1});
	assert_int_equal(depth(), 1);
	fn__enter(F, FRAME(1));
	assert_int_equal(depth(), 1);
	fn__exit(F, FRAME(1));
	expect_counters(CNT_UNWOUND, 1, CNT__COUNT);
	assert_null(row(SPAN_LABEL, utf8_id("b"), 0));
}

/* One probe, where the handle is known and a register still holds the name, does what two do. */
static void test_label_in_register(void **state)
{
	struct {
		const char *data;
		u64 size;
	} string[7] = {{"rsi", 3}, {"rbx", 3}, {"rbp", 3}, {"r12", 3}, {"r13", 3}, {"r14", 3}, {"r15", 3}};
	struct pt_regs regs = {.sp = FRAME(2), .di = 0x5000, .si = (u64)&string[0]};

	regs.bx = (u64)&string[SAVED_RBX];
	regs.bp = (u64)&string[SAVED_RBP];
	regs.r12 = (u64)&string[SAVED_R12];
	regs.r13 = (u64)&string[SAVED_R13];
	regs.r14 = (u64)&string[SAVED_R14];
	regs.r15 = (u64)&string[SAVED_R15];
	for (u32 saved = SAVED_RBX; saved <= SAVED_R15; saved++) {
		native.cookie = COOKIE(PROBE_LABEL, COOKIE_NAME_IN(saved), FRAME(1) - FRAME(2), 0);
		probe(&regs);
		fn__enter(F, FRAME(1)); /* the call that made it has returned */
		fn__exit(F, FRAME(1));
		wait_ns(saved);
		label__exit(0x5000, FRAME(1));
		expect_row(SPAN_LABEL, utf8_id(string[saved].data), 0, 1, saved, saved);
	}
	assert_int_equal(depth(), 0);
	expect_counters(CNT__COUNT);
}

/* A handle is taken only by the label that the same call began. */
static void test_label_handle_of_other(void **state)
{
	hit(PROBE_LABEL_HANDLE, 0, FRAME(2), FRAME(1), 0x5000, 0);
	assert_int_equal(depth(), 0);
	fn__enter(F, FRAME(1));
	hit(PROBE_LABEL_HANDLE, 0, FRAME(2), FRAME(1), 0x5000, 0);
	label__exit(0x5000, FRAME(3));
	assert_int_equal(depth(), 1);
	label__enter("a", 0x6000, FRAME(3));
	hit(PROBE_LABEL_HANDLE, 0, FRAME(6), FRAME(5), 0x5000, 0);
	label__exit(0x5000, FRAME(3));
	assert_int_equal(depth(), 2);
	label__exit(0x6000, FRAME(3));
	assert_int_equal(depth(), 1);
	expect_counters(CNT__COUNT);
}

/* Labels of generators and coroutines end in any order. */
static void test_label_order(void **state)
{
	label__enter("a", 0x5000, FRAME(1));
	wait_ns(2);
	label__enter("b", 0x6000, FRAME(1));
	wait_ns(4);
	label__exit(0x5000, FRAME(1)); /* before the inner one */
	wait_ns(8);
	label__exit(0x6000, FRAME(1));
	assert_int_equal(depth(), 0);
	expect_row(SPAN_LABEL, utf8_id("a"), 0, 1, 6, 2);
	expect_row(SPAN_LABEL, utf8_id("b"), 0, 1, 12, 12);
	expect_counters(CNT__COUNT);
}

/* Labels that never end leave the stack with a label outside of them. */
static void test_labels_without_end(void **state)
{
	char name[] = "inner 0";

	label__enter("a", 0x5000, FRAME(1));
	for (int i = 0; i <= FREE_MAX; i++) {
		name[6] = '0' + i;
		label__enter(name, 0x6000 + i, FRAME(1));
	}
	label__exit(0x5000, FRAME(1));
	assert_int_equal(depth(), 0);
	expect_counters(CNT_DROPPED_INNER, FREE_MAX + 1, CNT__COUNT);
}

/* A label that goes on keeps its phase. */
static void test_label_keeps_phase(void **state)
{
	label__enter("a", 0x5000, FRAME(1));
	label__enter(DATA_LABEL, 0x6000, FRAME(1));
	label__exit(0x5000, FRAME(1));
	assert_int_equal(job__thread()->phase, PHASE_DATA);
	label__exit(0x6000, FRAME(1));
	assert_int_equal(job__thread()->phase, PHASE_OTHER);
}

/* std::string before the C++11 ABI: a pointer, the size 24 bytes before the text. */
/* Lightning's profiler for torch: the label of an action is ended inside the next() that ends the action. */
static void test_label_outlives_action(void **state)
{
	u64 outer = action__new("outer"), inner = action__new("inner");

	for (int i = 0; i < 3; i++) {
		action__next(outer, FRAME(1));
		label__enter("of outer", 0x5000, FRAME(2));
		wait_ns(10);
		action__next(inner, FRAME(3));
		label__enter("of inner", 0x6000, FRAME(4));
		wait_ns(5);
		action__next(inner, FRAME(3));
		wait_ns(1);
		label__exit(0x6000, FRAME(4));
		assert_int_equal(depth(), 2);
		action__next(outer, FRAME(1));
		wait_ns(1);
		label__exit(0x5000, FRAME(2));
		assert_int_equal(depth(), 0);
		fakepy__set_created(&job.py, outer, true);
		fakepy__set_created(&job.py, inner, true);
	}
	assert_int_equal(row(SPAN_ACTION, latin_id("outer"), 0)->total_ns, 3 * 16);
	assert_int_equal(row(SPAN_ACTION, latin_id("inner"), utf8_id("of outer"))->total_ns, 3 * 5);
	assert_int_equal(row(SPAN_LABEL, utf8_id("of outer"), latin_id("outer"))->total_ns, 3 * 17);
	assert_int_equal(row(SPAN_LABEL, utf8_id("of inner"), latin_id("inner"))->total_ns, 3 * 6);
	expect_counters(CNT__COUNT);
}

static void test_label_old_string(void **state)
{
	struct {
		u64 size, capacity, refs;
		char text[16];
	} rep = {3, 16, 0, "old, and more"};
	char *string = rep.text;
	struct pt_regs regs = {.sp = FRAME(1), .si = (u64)&string};

	native.cookie = COOKIE(PROBE_LABEL, COOKIE_OLD_STRING, 8, 0);
	probe(&regs);
	assert_int_equal(job__thread()->spans[0].name, utf8_id("old"));
}

static void test_label_unreadable(void **state)
{
	u64 string[2] = {FAKEPY_NO_ADDRESS, 5};

	hit(PROBE_LABEL, 0, FRAME(1), FRAME(1) + 8, 0, FAKEPY_NO_ADDRESS);
	hit(PROBE_LABEL, 0, FRAME(1), FRAME(1) + 8, 0, (u64)string);
	assert_int_equal(counter(CNT_NAME_LOST) + (depth() ? 1 : 0), 2);
}

/* ---- who is listened to, and when ---- */

static void test_windows(void **state)
{
	fn__enter(F, FRAME(1)); /* begins outside of the window */
	wait_ns(10);
	job.proc->window_start_ns = native.now_ns;
	fn__enter(G, FRAME(2));
	wait_ns(10);
	fn__exit(G, FRAME(2));
	fn__exit(F, FRAME(1));
	expect_row(SPAN_USER, FN_ID(G), FN_ID(F), 1, 10, 10);
	assert_null(row(SPAN_USER, FN_ID(F), 0));
	for (u32 window = WINDOW_CLOSED; window <= WINDOW_DONE; window++) {
		if (window == WINDOW_OPEN || window == WINDOW_WAITING)
			continue;
		job.proc->window = window;
		fn__enter(F, FRAME(1));
		assert_int_equal(depth(), 0);
	}
	/* while it waits, spans are followed and not counted */
	job.proc->window = WINDOW_WAITING;
	fn__enter(F, FRAME(1));
	assert_int_equal(depth(), 1);
	fn__exit(F, FRAME(1));
	assert_null(row(SPAN_USER, FN_ID(F), 0));
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT__COUNT);
	assert_int_equal(job.proc->cost.hits, 8);
}

static void test_other_process(void **state)
{
	u64 hits = test_hits;

	job.task.tgid++;
	fn__enter(F, FRAME(1));
	assert_int_equal(depth(), 0);
	assert_int_equal(job.proc->cost.hits, 0);
	/* as a pid namespace at level 2 numbers it */
	job.pid = (struct pid){.level = 2, .numbers = {{7}, {8}, {JOB_PID}}};
	job.task.thread_pid = &job.pid;
	pid_level = 2;
	fn__enter(F, FRAME(1));
	assert_int_equal(depth(), 1);
	pid_level = 3; /* it is not visible there */
	fn__enter(F, FRAME(2));
	assert_int_equal(depth(), 1);
	assert_int_equal(job.proc->cost.hits, 1);
	hit(PROBE_TEST, 0, FRAME(1), 0, 0, 0);
	assert_int_equal(test_hits, hits + 1);
	assert_int_equal(test_level, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(nesting),
		TEST(own_time),
		TEST(sampled_hits),
		TEST(histogram),
		TEST(recursion),
		TEST(threads),
		TEST(action),
		TEST(action_open_at_start),
		TEST(action_reused),
		TEST(dropped_inner),
		TEST(unwound),
		TEST(unwound_same_frame),
		TEST(fn_open_at_start),
		TEST(stack_full),
		TEST(map_full),
		TEST(no_storage),
		TEST(names),
		TEST(names_full),
		TEST(label),
		TEST(label_frame),
		TEST(label_in_register),
		TEST(label_handle_of_other),
		TEST(label_order),
		TEST(labels_without_end),
		TEST(label_keeps_phase),
		TEST(label_outlives_action),
		TEST(label_old_string),
		TEST(label_unreadable),
		TEST(windows),
		TEST(other_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
