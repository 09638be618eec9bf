/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NVTX ranges (bpf/nvtx.h): where their arguments are, their names, and beginnings and ends in any order. */
#include <wchar.h>

#include "tests/bpf/native/job.h"

enum { F = FN_FIRST };
enum { RDI = 7, RSI = 6, R12 = 12 };
#define IP   0x400000ULL
#define INIT 0x1234

static u64 stack_pointer; /* of calls of NVTX's */

static void set_site(u32 id, struct nvtx_site site)
{
	bpf_map_update_elem(&nvtx_sites, &id, &site, BPF_ANY);
}

/* A site for each call, by its number, where the arguments are in the registers that functions have them in. */
static int nvtx_setup(void **state)
{
	setup(state);
	nvtx_epoch = 0;
	stack_pointer = FRAME(9);
	for (u32 call = 0; call < NVTX__COUNT; call++)
		set_site(call, (struct nvtx_site){.call = call,
						  .pointer = NVTX_BASE_NONE,
						  .argument = {{.base = RDI}, {.base = RSI}}});
	return 0;
}

static void call(enum nvtx_call which, u64 di, u64 si)
{
	struct pt_regs regs = {.sp = stack_pointer, .di = di, .si = si, .ip = IP};

	native.cookie = COOKIE(PROBE_NVTX, 0, COOKIE_DEPTH_UNKNOWN, which);
	probe(&regs);
}

static void push(const char *name)
{
	call(NVTX_PUSH_A, (u64)name, 0);
}

static void pop(void)
{
	call(NVTX_POP, 0, 0);
}

static void push_in(u64 domain, const char *name)
{
	struct nvtx_attributes a = {.version = 3, .size = sizeof(a), .message_type = 1, .message = (u64)name};

	call(NVTX_DOMAIN_PUSH_EX, domain, (u64)&a);
}

static void pop_in(u64 domain)
{
	call(NVTX_DOMAIN_POP, domain, 0);
}

static bool add_calls(const void *key, void *value, void *sum)
{
	(void)key;
	*(u64 *)sum += ((struct agg_val *)value)->calls;
	return true;
}

static u64 call_sum(void)
{
	u64 sum = 0;

	native_map__each(&aggs, add_calls, &sum);
	return sum;
}

static void test_nesting(void **state)
{
	for (int i = 0; i < 2; i++) {
		push("outer");
		wait_ns(10);
		push("inner");
		wait_ns(5);
		push("inner"); /* in itself */
		wait_ns(2);
		pop();
		pop();
		wait_ns(1);
		pop();
	}
	expect_row(SPAN_LABEL, utf8_id("outer"), 0, 2, 36, 22);
	expect_row(SPAN_LABEL, utf8_id("inner"), utf8_id("outer"), 2, 14, 10);
	expect_row(SPAN_LABEL, utf8_id("inner"), utf8_id("inner"), 2, 4, 4);
	assert_int_equal(self_sum(), 36);
	assert_int_equal(depth(), 0);
	expect_counters(CNT__COUNT);
	assert_int_equal(job.proc->nvtx.hits, 12);
}

/* The site says where a value is: a register and a number, the word there, by the probe's own address, or a number. */
static void test_values(void **state)
{
	static const char text[] = "at the place";
	const char *word = text;
	struct pt_regs regs = {.sp = FRAME(9), .r12 = (u64)&word - 24, .ip = (u64)text - 4096};
	static const struct nvtx_value value[] = {
		{.base = R12, .loads = 1, .disp = 24},
		{.base = NVTX_BASE_SITE, .disp = 4096},
	};

	for (size_t i = 0; i < 2; i++) {
		set_site(0, (struct nvtx_site){.call = NVTX_PUSH_A, .pointer = NVTX_BASE_NONE, .argument = {value[i]}});
		native.cookie = COOKIE(PROBE_NVTX, 0, COOKIE_DEPTH_UNKNOWN, 0);
		probe(&regs);
		pop();
	}
	expect_row(SPAN_LABEL, utf8_id(text), 0, 2, 0, 0);
	/* a number: NULL */
	set_site(0, (struct nvtx_site){
			    .call = NVTX_PUSH_A, .pointer = NVTX_BASE_NONE, .argument = {{.base = NVTX_BASE_NONE}}});
	native.cookie = COOKIE(PROBE_NVTX, 0, COOKIE_DEPTH_UNKNOWN, 0);
	probe(&regs);
	expect_counters(CNT_NVTX_UNNAMED, 1, CNT__COUNT);
	/* each register */
	for (u32 reg = 0; reg < 16; reg++) {
		struct pt_regs all = {.ax = 0,
				      .cx = 1,
				      .dx = 2,
				      .bx = 3,
				      .sp = 4,
				      .bp = 5,
				      .si = 6,
				      .di = 7,
				      .r8 = 8,
				      .r9 = 9,
				      .r10 = 10,
				      .r11 = 11,
				      .r12 = 12,
				      .r13 = 13,
				      .r14 = 14,
				      .r15 = 15};

		assert_int_equal(nvtx__register(&all, reg), reg);
	}
}

/* The first call leads to what looks for a tool, and comes to the same place again. */
static void test_first_call(void **state)
{
	struct pt_regs regs = {.sp = FRAME(9), .ax = IP + INIT, .di = (u64) "first", .ip = IP};

	set_site(0, (struct nvtx_site){.call = NVTX_PUSH_A, .init = INIT, .argument = {{.base = RDI}}});
	native.cookie = COOKIE(PROBE_NVTX, 0, COOKIE_DEPTH_UNKNOWN, 0);
	probe(&regs);
	assert_int_equal(depth(), 0);
	regs.ax = 0; /* there is none */
	probe(&regs);
	regs.ax = 0x7f0000001000; /* there is one */
	probe(&regs);
	assert_int_equal(depth(), 2);
	expect_counters(CNT__COUNT);
}

static void expect_name(u32 encoding, const void *text, u64 bytes)
{
	u64 id;

	assert_int_equal(names_sent(encoding, text, bytes, &id), 1);
	assert_int_equal(row(SPAN_LABEL, id, 0)->calls, 1);
}

static void test_wide_names(void **state)
{
	static const wchar_t *const text[] = {L"plain", L"\xe9t\xe9", L"\u4e2d\u6587", L"\U0001f525 hot"};
	static wchar_t many[600];

	for (size_t i = 0; i < 4; i++) {
		call(NVTX_PUSH_W, (u64)text[i], 0);
		pop();
	}
	expect_name(NAME_UTF8, "plain", 5);
	expect_name(NAME_LATIN1, "\xe9t\xe9", 3);
	expect_name(NAME_UCS2, u"\u4e2d\u6587", 4);
	expect_name(NAME_UCS4, text[3], 20);
	expect_counters(CNT__COUNT);
	/* the same as in UTF-8 */
	push("plain");
	pop();
	assert_int_equal(row(SPAN_LABEL, utf8_id("plain"), 0)->calls, 2);
	wmemset(many, 0x4e2d, 599);
	call(NVTX_PUSH_W, (u64)many, 0);
	pop();
	expect_counters(CNT_NAME_CUT, 1, CNT__COUNT);
	call(NVTX_PUSH_W, FAKEPY_NO_ADDRESS, 0);
	pop();
	expect_counters(CNT_NAME_CUT, 1, CNT_NAME_LOST, 1, CNT__COUNT);
}

static void push_message(u16 version, u16 size, u32 type, u64 message)
{
	struct nvtx_attributes a = {.version = version, .size = size, .message_type = type, .message = message};

	call(NVTX_PUSH_EX, (u64)&a, 0);
	wait_ns(1);
	pop();
}

static void test_attributes(void **state)
{
	const u16 size = sizeof(struct nvtx_attributes);

	assert_int_equal(size, 48);
	push_message(3, size, NVTX_MESSAGE_ASCII, (u64) "ascii");
	push_message(2, 64, NVTX_MESSAGE_UNICODE, (u64)L"wide");
	expect_row(SPAN_LABEL, utf8_id("ascii"), 0, 1, 1, 1);
	expect_row(SPAN_LABEL, utf8_id("wide"), 0, 1, 1, 1);
	expect_counters(CNT__COUNT);
	/* registered, unknown, none, of another form */
	push_message(3, size, 3, 77);
	push_message(3, size, 9, (u64) "x");
	push_message(3, size, NVTX_MESSAGE_ASCII, 0);
	push_message(4, size, NVTX_MESSAGE_ASCII, (u64) "x");
	push_message(3, 40, NVTX_MESSAGE_ASCII, (u64) "x");
	expect_counters(CNT_NVTX_UNNAMED, 5, CNT__COUNT);
	push_message(3, size, NVTX_MESSAGE_ASCII, FAKEPY_NO_ADDRESS);
	call(NVTX_PUSH_EX, FAKEPY_NO_ADDRESS, 0);
	pop();
	expect_counters(CNT_NVTX_UNNAMED, 5, CNT_NAME_LOST, 2, CNT__COUNT);
	assert_int_equal(native_map__cnt(&aggs), 2);
	assert_int_equal(depth(), 0);
}

/* Ranges without a name are nobody's parents, and their pops are theirs. */
static void test_unnamed(void **state)
{
	push("outer");
	wait_ns(1);
	push(NULL);
	wait_ns(2);
	push("inner");
	wait_ns(4);
	pop();
	wait_ns(8);
	pop();
	wait_ns(16);
	pop();
	expect_row(SPAN_LABEL, utf8_id("outer"), 0, 1, 31, 27);
	expect_row(SPAN_LABEL, utf8_id("inner"), utf8_id("outer"), 1, 4, 4);
	expect_counters(CNT_NVTX_UNNAMED, 1, CNT__COUNT);
}

static void test_domains(void **state)
{
	push_in(0x1000, "a");
	wait_ns(1);
	push_in(0x2000, "b");
	wait_ns(2);
	pop_in(0x1000); /* the other goes on */
	wait_ns(4);
	push("c");
	wait_ns(8);
	pop_in(0x2000);
	wait_ns(16);
	pop_in(0x2000); /* none is open */
	pop();
	/* what b did in a is none of a's own; nothing is wholly inside of another */
	expect_row(SPAN_LABEL, utf8_id("a"), 0, 1, 3, 1);
	expect_row(SPAN_LABEL, utf8_id("b"), 0, 1, 14, 6);
	expect_row(SPAN_LABEL, utf8_id("c"), 0, 1, 24, 24);
	expect_counters(CNT_NVTX_NOT_PUSHED, 1, CNT__COUNT);
	assert_int_equal(depth(), 0);
}

/* As callbacks of Lightning's use them: pushed in a hook, and popped in another. */
static void test_over_actions(void **state)
{
	u64 begin = action__new("on_train_batch_start"), end = action__new("on_train_batch_end");
	u64 step = action__new("step"), outer = action__new("epoch");

	action__next(outer, FRAME(1));
	for (int i = 0; i < 3; i++) {
		action__next(begin, FRAME(1));
		wait_ns(1);
		push("batch");
		push("more");
		wait_ns(2);
		action__next(begin, FRAME(1));
		assert_int_equal(depth(), 3);
		wait_ns(4);
		action__next(step, FRAME(1));
		wait_ns(8);
		action__next(step, FRAME(1));
		action__next(end, FRAME(1));
		wait_ns(16);
		pop();
		pop();
		wait_ns(32);
		action__next(end, FRAME(1));
		assert_int_equal(depth(), 1);
		fakepy__set_created(&job.py, begin, true);
		fakepy__set_created(&job.py, step, true);
		fakepy__set_created(&job.py, end, true);
	}
	action__next(outer, FRAME(1));
	expect_row(SPAN_ACTION, latin_id("on_train_batch_start"), latin_id("epoch"), 3, 3 * 3, 3 * 1);
	expect_row(SPAN_LABEL, utf8_id("batch"), latin_id("epoch"), 3, 3 * 30, 0);
	expect_row(SPAN_LABEL, utf8_id("more"), utf8_id("batch"), 3, 3 * 30, 3 * (2 + 4));
	expect_row(SPAN_ACTION, latin_id("step"), utf8_id("more"), 3, 3 * 8, 3 * 8);
	/* it went on when they were over: then it was the epoch's */
	expect_row(SPAN_ACTION, latin_id("on_train_batch_end"), latin_id("epoch"), 3, 3 * 48, 3 * 48);
	expect_row(SPAN_ACTION, latin_id("epoch"), 0, 1, 3 * 63, 0);
	expect_counters(CNT__COUNT);
}

/* Pushed in a native function, and popped when that has returned; but not when an exception has left it. */
static void test_over_functions(void **state)
{
	fn__enter(F, FRAME(5));
	push("survives");
	fn__exit(F, FRAME(5));
	assert_int_equal(depth(), 1);
	assert_int_equal(job__thread()->framed, 0);
	wait_ns(3);
	pop();
	expect_row(SPAN_LABEL, utf8_id("survives"), 0, 1, 3, 3);
	push("around");
	fn__enter(F, FRAME(12));
	stack_pointer = FRAME(13);
	push("inside"); /* not popped */
	hit(PROBE_FN, F, FRAME(10), FRAME(9), 0, 0);
	assert_int_equal(depth(), 2);
	fn__exit(F, FRAME(9));
	pop();
	expect_counters(CNT_UNWOUND, 2, CNT__COUNT);
}

/* Ranges that are never popped leave room for the others. */
static void test_never_popped(void **state)
{
	u64 action = action__new("action");

	for (int i = 0; i < 100; i++)
		push("leaks");
	assert_int_equal(depth(), NVTX_OPEN_MAX);
	action__next(action, FRAME(1));
	for (int i = 0; i < 100; i++) {
		wait_ns(1);
		push("again");
	}
	assert_int_equal(depth(), NVTX_OPEN_MAX + 1);
	for (int i = 0; i < NVTX_OPEN_MAX; i++)
		pop();
	action__next(action, FRAME(1));
	assert_int_equal(row(SPAN_ACTION, latin_id("action"), 0)->total_ns, 100);
	expect_counters(CNT_NVTX_NOT_POPPED, 200 - NVTX_OPEN_MAX, CNT__COUNT);
	assert_int_equal(depth(), 0);
}

static void test_many_names(void **state)
{
	char text[32];

	for (int i = 0; i < NAMES_OWN + 100; i++) {
		snprintf(text, sizeof(text), "op %d", i);
		push(text);
		wait_ns(1);
		pop();
	}
	assert_int_equal(native_map__cnt(&aggs), NAMES_OWN + 1);
	assert_int_equal(row(SPAN_LABEL, fixed_names[NAME_OTHER], 0)->calls, 100);
	assert_int_equal(row(SPAN_LABEL, fixed_names[NAME_OTHER], 0)->total_ns, 100);
	expect_counters(CNT_NAMES_FOLDED, 100, CNT__COUNT);
	/* those that are known are counted on */
	push("op 0");
	pop();
	assert_int_equal(row(SPAN_LABEL, utf8_id("op 0"), 0)->calls, 2);
	expect_counters(CNT_NAMES_FOLDED, 100, CNT__COUNT);
}

static void test_long_name(void **state)
{
	static char text[100001];

	memset(text, 'x', sizeof(text) - 1);
	push(text);
	pop();
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT_NAME_CUT, 1, CNT__COUNT);
}

/* The probes are taken away: what is open has lost its end. */
static void test_epoch(void **state)
{
	fn__enter(F, FRAME(5));
	push("a");
	push("b");
	wait_ns(10);
	nvtx_epoch++;
	fn__exit(F, FRAME(5));
	expect_row(SPAN_USER, FN_ID(F), 0, 1, 10, 10);
	assert_int_equal(depth(), 0);
	expect_counters(CNT_NVTX_NOT_POPPED, 2, CNT__COUNT);
	push("c");
	pop();
	expect_counters(CNT_NVTX_NOT_POPPED, 2, CNT__COUNT);
}

static void test_threads(void **state)
{
	push("main");
	native.task = &job.thread;
	pop(); /* NVTX's ranges are a thread's own */
	push("other");
	native.task = &job.task;
	wait_ns(1);
	pop();
	expect_row(SPAN_LABEL, utf8_id("main"), 0, 1, 1, 1);
	expect_counters(CNT_NVTX_NOT_PUSHED, 1, CNT__COUNT);
}

/*
 * In any order: each instant in which something is open is the own time of one of them. Three domains, whose ranges end as
 * they like, and actions, which end as they began.
 */
static void test_random(void **state)
{
	static const char *const names[] = {"a", "b", "c"};
	u64 gen[3] = {action__new("x"), action__new("y"), action__new("z")}, covered = 0, ended = 0;
	u32 open[3] = {0}, actions = 0, seed = 7;

	for (int i = 0; i < 20000; i++) {
		u32 dice = (seed = seed * 1103515245 + 12345) >> 16, which = dice % 3, what = dice / 3 % 5;

		if (what < 2 && open[which] < 4) {
			push_in(which * 0x1000, names[dice / 15 % 3]);
			open[which]++;
		} else if (what < 3 && open[which]) {
			pop_in(which * 0x1000);
			open[which]--;
			ended++;
		} else if (what == 3 && actions < 3) {
			fakepy__set_created(&job.py, gen[actions], true);
			action__next(gen[actions++], FRAME(1));
		} else if (what == 4 && actions) {
			action__next(gen[--actions], FRAME(1));
			ended++;
		}
		assert_int_equal(depth(), open[0] + open[1] + open[2] + actions);
		wait_ns(dice / 45 % 10);
		covered += depth() ? dice / 45 % 10 : 0;
	}
	for (; actions; ended++)
		action__next(gen[--actions], FRAME(1));
	for (u32 which = 0; which < 3; which++)
		for (; open[which]; open[which]--, ended++)
			pop_in(which * 0x1000);
	assert_int_equal(depth(), 0);
	assert_int_equal(self_sum(), covered);
	assert_int_equal(call_sum(), ended);
	expect_counters(CNT__COUNT);
}

/* A range named as torch's labels are is none of them. */
static void test_no_landmark(void **state)
{
	push(OPTIMIZER_LABEL);
	pop();
	push(DATA_LABEL);
	pop();
	assert_int_equal(job.proc->steps.cnt, 0);
	assert_int_equal(job__thread()->gap_ns, 0);
	assert_int_equal(job.proc->steps.data_seen, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, nvtx_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(nesting),        TEST(values),       TEST(first_call),  TEST(wide_names),
		TEST(attributes),     TEST(unnamed),      TEST(domains),     TEST(over_actions),
		TEST(over_functions), TEST(never_popped), TEST(many_names),  TEST(long_name),
		TEST(epoch),          TEST(threads),      TEST(no_landmark), TEST(random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
