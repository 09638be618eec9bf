/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks over Python stacks (bpf/pystack.h) in images of every version of the table, and in broken ones, in which a stack may end early,
 * counted, but has no frame that is not there. Each test runs for each version. Real interpreters: test_pystack_live.c.
 */
#include "tests/bpf/native/seen.h"

#include "tests/bpf/native/random.h"

#define FILE_A  "/home/me/train.py"
#define FILE_B  "/opt/venv/lib/python3/site-packages/lib/loop.py"
#define CALLERS 8 /* functions of which deep stacks are made */
/* The way to the innermost frame; a read of a frame, one of its code object, one of its name; of one not met before: its line, and file and name with theirs, and the line table. */
#define READS_TO_BEGIN 4
#define READS_A_FRAME  3
#define READS_A_CODE   8

static struct {
	struct stack_scratch room;
	u64 thread_pointer[2]; /* the second word holds the thread state */
	u64 functions[CALLERS];
} walk;

static int setup_minor(void **state)
{
	char name[16];

	job__start(*(const int *)*state);
	memset(&walk, 0, sizeof(walk));
	seed = environment("STEPFLAME_SEED", 1);
	job.task.thread.fsbase = (u64)walk.thread_pointer;
	job.proc->py.tss_offset = 8;
	job.proc->py.code_type = job.py.code_type;
	walk.thread_pointer[1] = fakepy__tstate(&job.py, 0);
	for (int i = 0; i < CALLERS; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		walk.functions[i] = fakepy__function_of(&job.py, fakepy__text(&job.py, i % 2 ? FILE_B : FILE_A),
							fakepy__text(&job.py, name), 10 * i + 1);
	}
	return 0;
}

static bool has_c_frames(void)
{
	return job.py.py->frame_owner_c >= 0;
}

static u64 frame_at(u64 code, s64 offset, u64 previous)
{
	u64 frame = fakepy__frame(&job.py, code, previous);

	fakepy__set_instr(&job.py, frame, code, offset);
	return frame;
}

static u64 walk_from(u64 frame)
{
	fakepy__set_frame(&job.py, walk.thread_pointer[1], frame);
	return stack__of(&walk.room, job.proc, JOB_PID);
}

/* A stack of `cnt` frames, of walk.functions in turn; the n-th from outside is at 2 * n. With C's between, where the version has them. */
static u64 deep(u32 cnt, u32 c_frames)
{
	u64 frame = 0;

	for (u32 i = 0; i < cnt; i++) {
		for (u32 k = 0; has_c_frames() && k < c_frames; k++)
			frame = fakepy__c_frame(&job.py, frame);
		frame = frame_at(walk.functions[i % CALLERS], 2 * i, frame);
	}
	return frame;
}

/* Is that the innermost `shown` frames of deep(cnt)? */
static void expect_deep(u64 id, u32 cnt, u32 shown, bool cut)
{
	struct seen seen = seen__read();
	struct stack stack = seen__stack(&seen, id);
	char name[16];

	assert_int_equal(stack.cnt, shown);
	assert_int_equal(stack.cut, cut);
	for (u32 i = 0; i < shown; i++) {
		u32 at = cnt - 1 - i, function = at % CALLERS;
		struct code code = seen__code(&seen, &stack.frames[i]);

		snprintf(name, sizeof(name), "f%d", function);
		assert_int_equal(stack.frames[i].offset, 2 * at);
		assert_string_equal(seen__text(&seen, code.name), name);
		assert_string_equal(seen__text(&seen, code.file), function % 2 ? FILE_B : FILE_A);
		assert_int_equal(code.first_line, 10 * function + 1);
	}
	seen__free(&seen);
}

/* ---- stacks as they are ---- */

static void test_chain(void **state)
{
	u64 id, again;

	(void)state;
	assert_int_equal(walk_from(0), 0);
	id = walk_from(deep(5, 1));
	assert_true(id != 0);
	expect_deep(id, 5, 5, false);
	assert_int_equal(records(REC_CODE), 5);
	assert_int_equal(records(REC_STACK), 1);
	/* the same again is told no more */
	again = walk_from(deep(5, 1));
	assert_int_equal(again, id);
	assert_int_equal(records(REC_CODE), 5);
	assert_int_equal(records(REC_STACK), 1);
	/* C's frames are no part of it */
	assert_int_equal(walk_from(deep(5, 3)), id);
	assert_true(walk_from(deep(4, 1)) != id);
	expect_counters(CNT__COUNT);
}

/* Not begun, at the first instruction, and far in. */
static void test_instructions(void **state)
{
	static const s64 offsets[] = {-1, 0, 2, 254, 100000};
	u64 frame = 0, id;
	struct stack stack;
	struct seen seen;

	(void)state;
	for (int i = 0; i < 5; i++)
		frame = frame_at(walk.functions[0], offsets[i], frame);
	id = walk_from(frame);
	seen = seen__read();
	stack = seen__stack(&seen, id);
	assert_int_equal(stack.cnt, 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(stack.frames[4 - i].offset, offsets[i] < 0 ? 0 : offsets[i]);
	seen__free(&seen);
	assert_true(walk_from(frame_at(walk.functions[0], 2, 0)) != walk_from(frame_at(walk.functions[0], 4, 0)));
	expect_counters(CNT__COUNT);
}

/* A generator is resumed by a function: from 3.11 its frame lies in the object, not on the stack. */
static void test_generator(void **state)
{
	u64 gen = fakepy__generator(&job.py, walk.functions[2], job.py.gen_type),
	    frame = fakepy__gen_frame(&job.py, gen);

	(void)state;
	fakepy__put(frame + job.py.py->frame_previous, deep(2, 1), 8);
	fakepy__set_instr(&job.py, frame, walk.functions[2], 4);
	if (job.py.py->frame_owner)
		fakepy__put(frame + job.py.py->frame_owner, 1, 1);
	expect_deep(walk_from(frame), 3, 3, false);
	expect_counters(CNT__COUNT);
}

static void test_depth(void **state)
{
	(void)state;
	for (u32 c_frames = 0; c_frames < 2; c_frames++) {
		expect_deep(walk_from(deep(1, c_frames)), 1, 1, false);
		job.py.used = 16384;
		expect_deep(walk_from(deep(300, c_frames)), 300, 300, false);
		job.py.used = 16384;
		expect_deep(walk_from(deep(STACK_FRAMES_MAX, c_frames)), STACK_FRAMES_MAX, STACK_FRAMES_MAX, false);
		assert_int_equal(counter(CNT_STACK_CUT), 2 * c_frames);
		for (u32 more = 1; more < 3; more++) {
			u32 cnt = STACK_FRAMES_MAX + more;

			job.py.used = 16384;
			expect_deep(walk_from(deep(cnt, c_frames)), cnt, STACK_FRAMES_MAX, true);
			assert_int_equal(counter(CNT_STACK_CUT), 2 * c_frames + more);
		}
		job.py.used = 16384;
	}
	expect_counters(CNT_STACK_CUT, 4, CNT__COUNT);
}

/* So many of C's that the walk ends before the Python stack does: that is a cut, too. */
static void test_many_c_frames(void **state)
{
	u64 frame = deep(3, 0), id;

	(void)state;
	if (!has_c_frames())
		return;
	for (u32 i = 0; i < 2 * STACK_FRAMES_MAX - 1; i++)
		frame = fakepy__c_frame(&job.py, frame);
	frame = frame_at(walk.functions[3], 6, frame);
	id = walk_from(frame);
	expect_deep(id, 4, 1, true);
	expect_counters(CNT_STACK_CUT, 1, CNT__COUNT);
}

/* ---- names ---- */

static void expect_function(u64 code, const char *file, const char *name, u32 first_line)
{
	u64 id = walk_from(frame_at(code, 2, 0));
	struct seen seen = seen__read();
	struct stack stack = seen__stack(&seen, id);
	struct code found = seen__code(&seen, &stack.frames[0]);

	assert_int_equal(stack.cnt, 1);
	assert_string_equal(seen__text(&seen, found.file), file);
	assert_string_equal(seen__text(&seen, found.name), name);
	assert_int_equal(found.first_line, first_line);
	seen__free(&seen);
}

static u64 function(u64 file, u64 name, u32 first_line)
{
	return fakepy__function_of(&job.py, file, name, first_line);
}

static void test_names(void **state)
{
	static const u16 half[] = {'/', 0x4e2d, 0x6587, '/', 'a', '.', 'p', 'y'};
	static const u32 wide[] = {0x1f525, 'x'};
	char whole[REC_NAME_MAX + 100], cut[REC_NAME_MAX + 32];
	u64 latin = fakepy__str(&job.py, 1, false, "\xe9tape", 5), plain = fakepy__text(&job.py, FILE_A), code;

	(void)state;
	expect_function(function(fakepy__str(&job.py, 2, false, half, 8), latin, 7), "/\xe4\xb8\xad\xe6\x96\x87/a.py",
			"\xc3\xa9tape", 7);
	expect_function(function(plain, fakepy__str(&job.py, 4, false, wide, 2), 0), FILE_A, "\xf0\x9f\x94\xa5x", 0);
	expect_function(function(fakepy__text(&job.py, "<string>"), fakepy__text(&job.py, ""), 1), "<string>", "", 1);
	memset(whole, 'n', sizeof(whole));
	whole[sizeof(whole) - 1] = 0;
	memset(cut, 'n', REC_NAME_MAX);
	snprintf(cut + REC_NAME_MAX, 32, "... (%zu bytes)", strlen(whole));
	expect_counters(CNT__COUNT);
	expect_function(function(plain, fakepy__text(&job.py, whole), 9), FILE_A, cut, 9);
	expect_counters(CNT_NAME_CUT, 1, CNT__COUNT);
	/* qualified, where the code object knows it */
	if (!job.py.py->code_qualname)
		return;
	code = function(plain, fakepy__text(&job.py, "step"), 3);
	fakepy__put(code + job.py.py->code_qualname, fakepy__text(&job.py, "Model.step"), 8);
	expect_function(code, FILE_A, "Model.step", 3);
}

/* The interpreter's own between a class's call and its __init__, with one text for all. */
static void test_own(void **state)
{
	u64 text = fakepy__text(&job.py, "__init__"), id = walk_from(deep(3, 0)), frame = deep(2, 0);

	(void)state;
	frame = frame_at(function(text, text, 0), 0, frame);
	assert_int_equal(walk_from(frame_at(walk.functions[2], 4, frame)), id);
	expect_counters(CNT__COUNT);
}

/* A code object is freed, and another of another function comes to lie where it was. */
static void test_reused(void **state)
{
	u64 file = fakepy__text(&job.py, FILE_A), other_file = fakepy__text(&job.py, FILE_B),
	    f = fakepy__text(&job.py, "f"), g = fakepy__text(&job.py, "g"), code = function(file, f, 5);

	(void)state;
	expect_function(code, FILE_A, "f", 5);
	expect_function(fakepy__function_at(&job.py, code, file, g, 5), FILE_A, "g", 5);
	expect_function(fakepy__function_at(&job.py, code, other_file, g, 5), FILE_B, "g", 5);
	expect_function(fakepy__function_at(&job.py, code, other_file, g, 6), FILE_B, "g", 6);
	/* its texts, too, lie where those of the first did: its line table does not */
	fakepy__put(f + job.py.py->str_ascii_data, 'g', 1);
	expect_function(fakepy__function_at(&job.py, code, file, f, 5), FILE_A, "g", 5);
	expect_counters(CNT__COUNT);
}

/* What a fork of a process loads after it lies where another fork of it has something else. */
static void test_processes(void **state)
{
	u64 file = fakepy__text(&job.py, FILE_A), name = fakepy__text(&job.py, "f"), code = function(file, name, 5),
	    frame = frame_at(code, 2, 0), first, second;

	(void)state;
	first = walk_from(frame);
	fakepy__put(name + job.py.py->str_ascii_data, 'g', 1);
	second = stack__of(&walk.room, job.proc, JOB_PID + 1);
	assert_true(first != second);
	/* and the same function in two processes is one */
	fakepy__put(name + job.py.py->str_ascii_data, 'f', 1);
	assert_int_equal(stack__of(&walk.room, job.proc, JOB_PID + 2), first);
	expect_counters(CNT__COUNT);
}

/* ---- broken ones ---- */

/* deep(10) with something wrong in the frame or the function of the fourth from inside: three are left, counted. */
static void expect_broken(u64 id)
{
	expect_deep(id, 10, 3, true);
	expect_counters(CNT_STACK_LOST, 1, CNT__COUNT);
	bpf_map_delete_elem(&counters, &(u32){CNT_STACK_LOST});
}

static void test_broken_frame(void **state)
{
	const struct py_layout *py = job.py.py;
	u64 frame = deep(10, 0), third, fourth, code, at;

	(void)state;
	third = *(u64 *)(*(u64 *)(frame + py->frame_previous) + py->frame_previous);
	fourth = *(u64 *)(third + py->frame_previous);
	code = *(u64 *)(fourth + py->frame_code);
	at = third + py->frame_previous;
	for (u64 bad = 8; bad; bad = bad < FAKEPY_NO_ADDRESS ? FAKEPY_NO_ADDRESS : 0) {
		fakepy__put(at, bad, 8);
		expect_broken(walk_from(frame));
	}
	fakepy__put(at, (u64)job.py.base + FAKEPY_BYTES - 16, 8); /* a part of it is not there */
	expect_broken(walk_from(frame));
	fakepy__put(at, fourth, 8);
	expect_deep(walk_from(frame), 10, 10, false);
	/* a frame that is being made */
	fakepy__put(fourth + py->frame_code, 0, 8);
	expect_broken(walk_from(frame));
	fakepy__put(fourth + py->frame_code, FAKEPY_NO_ADDRESS, 8);
	expect_broken(walk_from(frame));
	fakepy__put(fourth + py->frame_code, job.py.gen_type, 8);
	expect_broken(walk_from(frame));
	fakepy__put(fourth + py->frame_code, code, 8);
	expect_deep(walk_from(frame), 10, 10, false);
}

/* A function met before is known by its pointers; then its code object is no more. */
static void test_wrong_type(void **state)
{
	u64 frame = deep(10, 1), code = walk.functions[(10 - 4) % CALLERS];

	(void)state;
	expect_deep(walk_from(frame), 10, 10, false);
	fakepy__put(code + job.py.py->object_type, job.py.gen_type, 8);
	expect_broken(walk_from(frame));
	fakepy__put(code + job.py.py->object_type, job.py.code_type, 8);
	expect_deep(walk_from(frame), 10, 10, false);
	expect_counters(CNT__COUNT);
}

/* No frame is known, which is not to say that there is none: user space is told of no stack of that id. */
static void expect_lost(u64 id, u32 id_of_counter)
{
	assert_true(id != 0);
	for (u32 i = 0; i < records(REC_STACK); i++)
		assert_true(((const struct rec_stack *)record(REC_STACK, i))->id != id);
	expect_counters(id_of_counter, 1, CNT__COUNT);
	bpf_map_delete_elem(&counters, &id_of_counter);
}

static void test_no_state(void **state)
{
	u64 frame = deep(2, 0), id = walk_from(frame), tstate = walk.thread_pointer[1], block[2] = {tstate, 0};

	(void)state;
	assert_true(id != 0);
	walk.thread_pointer[1] = 0; /* a thread of C's */
	assert_int_equal(stack__of(&walk.room, job.proc, JOB_PID), 0);
	walk.thread_pointer[1] = FAKEPY_NO_ADDRESS;
	expect_lost(stack__of(&walk.room, job.proc, JOB_PID), CNT_STACK_LOST);
	job.task.thread.fsbase = FAKEPY_NO_ADDRESS;
	expect_lost(stack__of(&walk.room, job.proc, JOB_PID), CNT_STACK_LOST);
	job.task.flags = 0x4; /* a thread that ends: PF_EXITING */
	assert_int_equal(stack__of(&walk.room, job.proc, JOB_PID), 0);
	job.task.flags = 0;
	/* where no thread-specific word is known: a global one may be another thread's, a thread-local one is not */
	job.proc->py.tss_offset = 0;
	job.proc->py.tstate_where = PY_TSTATE_GLOBAL;
	job.tstate_word = tstate;
	assert_int_equal(stack__of(&walk.room, job.proc, JOB_PID), 0);
	job.proc->py.tstate_where = PY_TSTATE_TLS;
	job.proc->py.tstate_address = -8;
	job.task.thread.fsbase = (u64)&block[1];
	assert_int_equal(stack__of(&walk.room, job.proc, JOB_PID), id);
	/* a process that has become another, and one whose functions cannot be told from anything else */
	job.proc->py.code_type = 0;
	assert_int_equal(stack__of(&walk.room, job.proc, JOB_PID), 0);
	job.proc->py.code_type = job.py.code_type;
	job.proc->py.layout.minor = 0;
	assert_int_equal(stack__of(&walk.room, job.proc, JOB_PID), 0);
	expect_counters(CNT__COUNT);
}

static void test_cycle(void **state)
{
	u64 inner = frame_at(walk.functions[0], 2, 0), outer = frame_at(walk.functions[1], 2, inner), id;
	struct stack stack;
	struct seen seen;

	(void)state;
	fakepy__put(inner + job.py.py->frame_previous, outer, 8);
	native.reads = 0;
	id = walk_from(inner);
	assert_true(native.reads <= READS_TO_BEGIN + READS_A_FRAME * (STACK_FRAMES_MAX + 2) + 2 * READS_A_CODE);
	seen = seen__read();
	stack = seen__stack(&seen, id);
	assert_int_equal(stack.cnt, STACK_FRAMES_MAX);
	assert_true(stack.cut);
	seen__free(&seen);
	expect_counters(CNT_STACK_CUT, 1, CNT__COUNT);
	if (!has_c_frames())
		return;
	inner = fakepy__c_frame(&job.py, 0);
	fakepy__put(inner + job.py.py->frame_previous, inner, 8);
	native.reads = 0;
	bpf_map_delete_elem(&counters, &(u32){CNT_STACK_CUT});
	expect_lost(walk_from(inner), CNT_STACK_CUT);
	assert_true(native.reads <= READS_TO_BEGIN + 2 * STACK_FRAMES_MAX);
}

/* Nothing that did not get through is taken for told. */
static void test_ring_full(void **state)
{
	u64 frame = deep(6, 1), id;

	(void)state;
	native.ring_full = true;
	assert_true(walk_from(frame) != 0);
	assert_true(counter(CNT_RING_FULL) > 0);
	assert_int_equal(native.ring_bytes, 0);
	native.ring_full = false;
	id = walk_from(frame);
	expect_deep(id, 6, 6, false);
	/* names fit, functions did not; functions, but not the stack */
	native.ring_full = true;
	assert_true(walk_from(deep(5, 1)) != 0);
	native.ring_full = false;
	expect_deep(walk_from(deep(5, 1)), 5, 5, false);
}

/* ---- code objects whose end is told ---- */

/* Another function comes to the address of a code object. */
static void replace_function(u64 code, u64 by)
{
	memcpy((void *)code, (const void *)by, job.py.py->code_linetable + 8);
}

static void expect_innermost(u64 id, u32 cnt, const char *name)
{
	struct seen seen = seen__read();
	struct stack stack = seen__stack(&seen, id);

	assert_int_equal(stack.cnt, cnt);
	assert_string_equal(seen__text(&seen, seen__code(&seen, &stack.frames[0]).name), name);
	seen__free(&seen);
}

static void test_code_ends(void **state)
{
	u64 other = fakepy__function_of(&job.py, fakepy__text(&job.py, FILE_A), fakepy__text(&job.py, "other"), 7);
	u64 frame = deep(5, 1), id, again;

	(void)state;
	/* they end unseen, and tell of no end: nothing is kept by their address */
	hit(PROBE_CODE_END, 0, FRAME(1), 0, walk.functions[4], 0);
	assert_int_equal(job.proc->codes.told_since_ns, 0);
	expect_deep(walk_from(frame), 5, 5, false);
	job.proc->codes.told_since_ns = 1000;
	id = walk_from(frame);
	expect_deep(id, 5, 5, false);
	assert_int_equal(records(REC_CODE), 10); /* what was known when they ended unseen may not be true any more */
	assert_int_equal(records(REC_STACK), 1);
	/* no code object is read */
	native.reads = 0;
	assert_int_equal(walk_from(frame), id);
	assert_true(native.reads <= READS_TO_BEGIN + 5 * 2);
	assert_true(walk_from(frame_at(walk.functions[4], 10, frame)) != id);
	/* one ends, and another one takes its place */
	hit(PROBE_CODE_END, 0, FRAME(1), 0, walk.functions[4], 0);
	assert_int_equal(job.proc->codes.ended, 2);
	replace_function(walk.functions[4], other);
	again = walk_from(frame);
	assert_true(again != id);
	expect_innermost(again, 5, "other");
	assert_int_equal(records(REC_CODE), 11);
	/* their end is unseen from now on */
	job.proc->codes.told_since_ns = 0;
	replace_function(walk.functions[4], walk.functions[5]);
	expect_innermost(walk_from(frame), 5, "f5");
	expect_counters(CNT__COUNT);
}

/* Two processes, of which one is a fork of the other, may have different functions at the same address. */
static void test_code_of_another(void **state)
{
	u64 frame = deep(3, 1), id;

	(void)state;
	job.proc->codes.told_since_ns = 1000;
	id = walk_from(frame);
	replace_function(walk.functions[2], walk.functions[3]);
	assert_int_equal(walk_from(frame), id);
	expect_innermost(stack__of(&walk.room, job.proc, JOB_PID + 1), 3, "f3");
}

/* What did not get through is not taken for told, and what user space has forgotten is told again. */
static void test_told_again(void **state)
{
	u64 frame = deep(6, 1), id;

	(void)state;
	job.proc->codes.told_since_ns = 1000;
	native.ring_full = true;
	assert_true(walk_from(frame) != 0);
	native.ring_full = false;
	id = walk_from(frame);
	expect_deep(id, 6, 6, false);
	native__forget(&stacks);
	stacks_again++;
	assert_int_equal(walk_from(frame), id);
	assert_int_equal(records(REC_STACK), 2);
	/* a deep one is cut, and counted, each time */
	frame = deep(STACK_FRAMES_MAX + 3, 0);
	id = walk_from(frame);
	assert_int_equal(walk_from(frame), id);
	assert_int_equal(counter(CNT_STACK_CUT), 2);
}

/* ---- images with anything in them ---- */

static struct {
	u64 frame;
	size_t used;
	u8 *image;
} good;

static void good__start(void)
{
	good.frame = deep(12, 1);
	fakepy__set_frame(&job.py, walk.thread_pointer[1], good.frame);
	good.used = job.py.used;
	good.image = malloc(good.used);
	memcpy(good.image, job.py.base, good.used);
}

static void good__restore(void)
{
	memcpy(job.py.base, good.image, good.used);
	native__forget(&codes);
	native__forget(&codes_close);
}

/* Each pointer in turn leads nowhere: the whole stack, or its inner part, and that is counted. */
static void test_bad_pointers(void **state)
{
	static const u64 nowhere[] = {0, FAKEPY_NO_ADDRESS, ~0ULL, 1ULL << 63, 16};
	const struct py_layout *py = job.py.py;
	u64 base = (u64)job.py.base, whole, id, changed = 0;

	(void)state;
	good__start();
	whole = stack__of(&walk.room, job.proc, JOB_PID);
	for (u64 at = 0; at < good.used; at += 8) {
		u64 word = *(u64 *)(good.image + at) & ~7ULL;

		if (word < base || word >= base + FAKEPY_BYTES)
			continue;
		for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
			u64 lost = counter(CNT_STACK_LOST);
			bool ends, at_instr = false;

			good__restore();
			fakepy__put(base + at, nowhere[i], 8);
			id = stack__of(&walk.room, job.proc, JOB_PID);
			for (u64 frame = good.frame; frame;
			     frame = *(u64 *)(good.image + (frame - base) + py->frame_previous))
				at_instr |= base + at == frame + py->frame_instr;
			ends = !nowhere[i]; /* no frame is outside, or innermost */
			if (at_instr || id == whole)
				continue;
			changed++;
			assert_true(ends || counter(CNT_STACK_LOST) == lost + 1);
			if (id && walk.room.stack.frame_cnt)
				expect_deep(id, 12, walk.room.stack.frame_cnt, counter(CNT_STACK_LOST) > lost);
		}
	}
	assert_true(changed > 100);
	free(good.image);
}

/* Bytes at random, and pointers that lead to other objects, or back: what is sent makes sense, and not too much was read. */
static void test_bad_bytes(void **state)
{
	u64 base = (u64)job.py.base, rounds = environment("STEPFLAME_ROUNDS", getenv("STEPFLAME_LONG") ? 3000 : 300);

	(void)state;
	good__start();
	for (u64 i = 0; i < rounds; i++) {
		struct seen seen;
		u64 id;

		good__restore();
		native__empty_ring();
		native__forget(&names);
		native__forget(&stacks);
		native__forget(&names_close);
		for (u64 k = 0; k < 1 + i % 8; k++) {
			u64 at = random_below(good.used - 8);

			if (i % 2)
				job.py.base[at] ^= random_u64();
			else
				fakepy__put(base + (at & ~7ULL), base + random_below(good.used), 8);
		}
		native.reads = 0;
		id = stack__of(&walk.room, job.proc, JOB_PID);
		assert_true(native.reads <= READS_TO_BEGIN + 2 * STACK_FRAMES_MAX * (READS_A_FRAME + READS_A_CODE));
		seen = seen__read();
		for (u32 f = 0; id && f < walk.room.stack.frame_cnt; f++) {
			struct code code = seen__code(&seen, &seen__stack(&seen, id).frames[f]);

			seen__text(&seen, code.name);
			seen__text(&seen, code.file);
		}
		seen__free(&seen);
	}
	free(good.image);
}

int main(void)
{
	static const int minors[] = {8, 9, 10, 11, 12, 13, 14, 15};
	static const struct {
		const char *name;
		CMUnitTestFunction function;
	} all[] = {
		{"chain", test_chain},
		{"instructions", test_instructions},
		{"generator", test_generator},
		{"depth", test_depth},
		{"many_c_frames", test_many_c_frames},
		{"names", test_names},
		{"own", test_own},
		{"reused", test_reused},
		{"processes", test_processes},
		{"broken_frame", test_broken_frame},
		{"wrong_type", test_wrong_type},
		{"no_state", test_no_state},
		{"cycle", test_cycle},
		{"ring_full", test_ring_full},
		{"code_ends", test_code_ends},
		{"code_of_another", test_code_of_another},
		{"told_again", test_told_again},
		{"bad_pointers", test_bad_pointers},
		{"bad_bytes", test_bad_bytes},
	};
	enum { CNT = sizeof(all) / sizeof(all[0]), MINORS = sizeof(minors) / sizeof(minors[0]) };
	struct CMUnitTest tests[CNT * MINORS];
	char names_[CNT * MINORS][32];

	for (size_t i = 0; i < CNT * MINORS; i++) {
		snprintf(names_[i], sizeof(names_[i]), "%s 3.%d", all[i / MINORS].name, minors[i % MINORS]);
		tests[i] = (struct CMUnitTest){names_[i], all[i / MINORS].function, setup_minor, teardown,
					       (void *)&minors[i % MINORS]};
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
