/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every call of a Python function (bpf/exact.bpf.c), in images of each CPython: begun, ended, unwound, too deep, of
 * many threads.
 */
#include "tests/bpf/native/job.h"

#define LICENSE LICENSE_OF_EXACT /* job.h has included a program with one of its own */
#include "bpf/exact.bpf.c"
#undef LICENSE

#define CODE_TYPE 0x1111 /* an address, never read */
#define GENERATES 0x20

static int minor;

static int setup_minor(void **state)
{
	minor = *(const int *)*state;
	job__start(minor);
	job.proc->py.code_type = CODE_TYPE;
	for (u32 i = 0; i < 3; i++)
		bpf_map_push_elem(&exact_free, &i, 0);
	return 0;
}

static u64 code_of(const char *name, u32 line)
{
	u64 code = fakepy__code(&job.py, "/job.py", name), text = fakepy__text(&job.py, name);

	fakepy__put(code + OBJECT_TYPE, CODE_TYPE, 8);
	fakepy__put(code + job.py.py->code_firstlineno, line, 4);
	fakepy__put(code + job.py.py->code_linetable, 0, 8);
	fakepy__put(code + job.py.py->code_flags, 3, 4);
	if (job.py.py->code_qualname)
		fakepy__put(code + job.py.py->code_qualname, text, 8);
	return code;
}

static u64 frame_of(u64 code)
{
	return fakepy__frame(&job.py, code, 0);
}

static void exact_hit(enum probe_event event, u64 sp, u64 frame, u64 py_frame)
{
	struct pt_regs regs = {.sp = sp, .di = minor == 8 ? py_frame : 1, .si = minor == 8 ? 1 : py_frame};

	native.cookie = COOKIE(event, minor == 8 ? 0 : COOKIE_FRAME_SECOND, frame - sp, 0);
	exact(&regs);
}

static void call(u64 py_frame, u64 frame)
{
	exact_hit(PROBE_EXACT_CALL, frame - 100, frame, py_frame);
}

/* The end of a call: in the function up to 3.10, behind its call in 3.11, where its frame is cleared later. */
static void end(u64 py_frame, u64 frame)
{
	if (minor >= PY_MINOR_CLEARS)
		exact_hit(PROBE_EXACT_CLEAR, frame - 200, frame, py_frame);
	else
		exact_hit(PROBE_EXACT_RETURN, minor < 11 ? frame - 100 : frame + 8, frame, 0);
}

/* The row of a function, by its line; there is one in each test. */
static const struct call_val *calls_of(u32 line, u64 path)
{
	struct call_key key = {.pid = JOB_PID, .path = path};

	for (size_t at = 0; at < native.ring_bytes;) {
		const struct rec_code *rec = (const struct rec_code *)(native.ring + at);

		at += rec->hdr.size;
		if (rec->hdr.type == REC_CODE && rec->first_line == line)
			key.code = rec->id;
	}
	return bpf_map_lookup_elem(&call_rows, &key);
}

static void expect_calls(u32 line, u64 calls, u64 primitive, u64 total_ns, u64 self_ns)
{
	const struct call_val *val = calls_of(line, 0);

	assert_non_null(val);
	assert_int_equal(val->calls, calls);
	assert_int_equal(val->primitive_calls, primitive);
	assert_int_equal(val->total_ns, total_ns);
	assert_int_equal(val->self_ns, self_ns);
}

static u32 open_calls(void)
{
	const struct exact_thread *x = exact__thread(native.task);

	return x ? x->depth : 0;
}

static void test_nested(void **state)
{
	u64 outer = frame_of(code_of("outer", 1)), inner = frame_of(code_of("inner", 2));

	(void)state;
	call(outer, FRAME(1));
	wait_ns(10);
	for (int i = 0; i < 3; i++) {
		call(inner, FRAME(2));
		wait_ns(100);
		end(inner, FRAME(2));
		wait_ns(4);
	}
	end(outer, FRAME(1));
	expect_calls(1, 1, 1, 322, 22);
	expect_calls(2, 3, 3, 300, 300);
	expect_counters(CNT__COUNT);
}

static void test_recursion(void **state)
{
	u64 even = code_of("even", 1), odd = code_of("odd", 2);
	u64 frames[] = {frame_of(even), frame_of(odd), frame_of(even), frame_of(odd), frame_of(even)};

	(void)state;
	for (int n = 0; n < 2; n++) {
		for (u64 i = 0; i < 5; i++) {
			call(frames[i], FRAME(i + 1));
			wait_ns(10);
		}
		for (u64 i = 5; i--;)
			end(frames[i], FRAME(i + 1));
	}
	expect_calls(1, 6, 2, 100, 60);
	expect_calls(2, 4, 2, 80, 40);
	expect_counters(CNT__COUNT);
}

/* As bpf/name.h makes it. */
static u64 id_of(const char *text)
{
	u64 hash = name_hash__seed(NAME_LATIN1, strlen(text)), words[4] = {0};

	memcpy(words, text, strlen(text));
	for (size_t i = 0; i * 8 < strlen(text); i++)
		hash = name_hash__add(hash, words[i]);
	return name_hash__end(hash);
}

/* As bpf/pystack.h makes the id of a function. */
static u32 bucket_of(const char *name, u32 line)
{
	u64 id = name_hash__add(name_hash__add(id_of("/job.py"), id_of(name)), line);

	return BOUND_INDEX(name_hash__end(id), CALL_BUCKETS);
}

/* That a function is on the stack is looked up by the low bits of its id, which it may share with another one. */
static void test_same_bucket(void **state)
{
	u64 outer = frame_of(code_of("outer", 1)), inner;
	u32 line = 2;

	(void)state;
	while (bucket_of("inner", line) != bucket_of("outer", 1))
		line++;
	inner = frame_of(code_of("inner", line));
	for (int i = 0; i < 2; i++) {
		call(outer, FRAME(1));
		wait_ns(10);
		call(inner, FRAME(2));
		wait_ns(100);
		call(inner, FRAME(3));
		wait_ns(1000);
		end(inner, FRAME(3));
		end(inner, FRAME(2));
		end(outer, FRAME(1));
	}
	expect_calls(1, 2, 2, 2220, 20);
	expect_calls(line, 4, 2, 2200, 2200);
	expect_counters(CNT__COUNT);
}

/* An exception has passed two calls unseen; and one whose place is taken by the next. */
static void test_unwound(void **state)
{
	u64 outer = frame_of(code_of("outer", 1)), inner = frame_of(code_of("inner", 2)),
	    third = frame_of(code_of("third", 3));

	(void)state;
	call(outer, FRAME(1));
	call(inner, FRAME(2));
	call(third, FRAME(3));
	wait_ns(10);
	call(third, FRAME(2));
	assert_int_equal(open_calls(), 2);
	wait_ns(10);
	end(outer, FRAME(1));
	assert_int_equal(open_calls(), 0);
	expect_calls(1, 1, 1, 20, 20);
	assert_null(calls_of(2, 0));
	assert_null(calls_of(3, 0));
	expect_counters(CNT_UNWOUND, 3, CNT__COUNT);
}

static void test_unseen(void **state)
{
	u64 frame = frame_of(code_of("f", 1)), other = frame_of(code_of("g", 2));

	(void)state;
	end(frame, FRAME(1));
	call(other, FRAME(3));
	end(frame, FRAME(5)); /* of another: is no end of this one */
	assert_int_equal(open_calls(), 1);
	end(other, FRAME(3));
	expect_calls(2, 1, 1, 0, 0);
	expect_counters(CNT_CALL_UNSEEN, 1, CNT__COUNT);
}

static void test_window(void **state)
{
	u64 outer = frame_of(code_of("outer", 1)), inner = frame_of(code_of("inner", 2));

	(void)state;
	job.proc->window = WINDOW_WAITING;
	call(outer, FRAME(1));
	wait_ns(10);
	job.proc->window = WINDOW_OPEN;
	job.proc->window_start_ns = native.now_ns;
	wait_ns(10);
	call(inner, FRAME(2));
	end(inner, FRAME(2));
	end(outer, FRAME(1));
	assert_null(calls_of(1, 0));
	expect_calls(2, 1, 1, 0, 0);
	job.proc->window = WINDOW_DONE;
	call(inner, FRAME(2));
	end(inner, FRAME(2));
	expect_calls(2, 1, 1, 0, 0);
	expect_counters(CNT__COUNT);
}

static void test_too_deep(void **state)
{
	u64 code = code_of("deep", 1), kept = frame_of(code), lost = frame_of(code);

	(void)state;
	for (u64 i = 1; i <= CALL_DEPTH + 3; i++)
		call(i <= CALL_DEPTH ? kept : lost, FRAME(i));
	assert_int_equal(open_calls(), CALL_DEPTH);
	for (u64 i = CALL_DEPTH + 3; i; i--)
		end(i <= CALL_DEPTH ? kept : lost, FRAME(i));
	assert_int_equal(open_calls(), 0);
	expect_calls(1, CALL_DEPTH, 1, 0, 0);
	expect_counters(CNT_STACK_FULL, 3, CNT__COUNT);
}

/* Calls are told apart by the spans around them, which come and go in between. */
static void test_paths(void **state)
{
	u64 frame = frame_of(code_of("f", 1)), found = 0;
	const struct rec_path *path;

	(void)state;
	call(frame, FRAME(5));
	end(frame, FRAME(5));
	fn__enter(FN_FIRST, FRAME(1));
	call(frame, FRAME(5));
	end(frame, FRAME(5));
	fn__enter(FN_FIRST + 1, FRAME(2));
	call(frame, FRAME(5));
	end(frame, FRAME(5));
	fn__exit(FN_FIRST + 1, FRAME(2));
	call(frame, FRAME(5));
	end(frame, FRAME(5));
	fn__exit(FN_FIRST, FRAME(1));
	expect_calls(1, 1, 1, 0, 0);
	for (size_t at = 0; at < native.ring_bytes; at += path->hdr.size) {
		path = (const void *)(native.ring + at);
		if (path->hdr.type != REC_PATH)
			continue;
		found++;
		assert_int_equal(path->spans[path->span_cnt - 1].name, FN_ID(FN_FIRST + found - 1));
		assert_int_equal(calls_of(1, path->id)->calls, found == 1 ? 2 : 1);
	}
	assert_int_equal(found, 2);
	expect_counters(CNT__COUNT);
}

/*
 * What only makes a generator is no call; its resumptions are, which end behind the call of the loop in all versions.
 */
static void test_generator(void **state)
{
	u64 code = code_of("gen", 1), frame = frame_of(code);

	(void)state;
	if (minor < 11)
		return; /* there generators are made without the loop */
	fakepy__put(code + job.py.py->code_flags, GENERATES | 3, 4);
	call(frame, FRAME(1));
	assert_int_equal(open_calls(), 0);
	fakepy__put(frame + job.py.py->frame_owner, 1, 1);
	for (int i = 0; i < 3; i++) {
		call(frame, FRAME(2));
		wait_ns(5);
		exact_hit(PROBE_EXACT_RETURN, FRAME(2) + 8, FRAME(2), 0);
	}
	call(frame, FRAME(2));
	if (minor >= PY_MINOR_CLEARS)
		end(frame, FRAME(2));
	exact_hit(PROBE_EXACT_RETURN, FRAME(2) + 8, FRAME(2), 0);
	if (minor >= PY_MINOR_CLEARS)
		end(frame, FRAME(2)); /* thrown away */
	expect_calls(1, 4, 4, 15, 15);
	expect_counters(CNT__COUNT);
}

/* 3.13 enters __init__ without leaving the loop, from a frame of its own. */
static void test_init(void **state)
{
	u64 shim = code_of("__init__", 9), init = code_of("__init__", 1), shim_frame, frame;

	(void)state;
	if (minor < PY_MINOR_CLEARS)
		return;
	fakepy__put(shim + job.py.py->code_filename, *(u64 *)(shim + job.py.py->code_name), 8);
	shim_frame = frame_of(shim);
	frame = fakepy__frame(&job.py, init, shim_frame);
	end(frame, FRAME(1));
	end(shim_frame, FRAME(1));
	expect_calls(1, 1, 1, 0, 0);
	assert_null(calls_of(9, 0));
	expect_counters(CNT__COUNT);
}

/* Each has a stack of its own; there are three, and that of one that ended is used again. */
static void test_threads(void **state)
{
	u64 frame = frame_of(code_of("f", 1));
	struct task_struct tasks[5];

	(void)state;
	for (int i = 0; i < 5; i++) {
		tasks[i] = job.thread;
		tasks[i].pid += i;
	}
	for (int i = 0; i < 4; i++) {
		native.task = &tasks[i];
		call(frame, FRAME(1));
		assert_int_equal(open_calls(), i < 3);
		call(frame, FRAME(2));
	}
	expect_counters(CNT_NO_STORAGE, 1, CNT__COUNT);
	exact_exit(&tasks[1]);
	exact_exit(&tasks[3]);
	native.task = &tasks[4];
	call(frame, FRAME(3));
	assert_int_equal(open_calls(), 1);
	end(frame, FRAME(3));
	expect_calls(1, 1, 1, 0, 0);
	expect_counters(CNT_NO_STORAGE, 1, CNT__COUNT);
}

/* The program that a thread becomes has none of the calls that it was in. */
static void test_exec(void **state)
{
	u64 frame = frame_of(code_of("f", 1));

	(void)state;
	call(frame, FRAME(1));
	call(frame, FRAME(2));
	assert_int_equal(open_calls(), 2);
	exact_exec(native.task);
	call(frame, FRAME(3));
	assert_int_equal(open_calls(), 1);
}

static void test_bad_pointers(void **state)
{
	static const u64 bad[] = {0, 1, FAKEPY_NO_ADDRESS, ~0ULL};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		u64 frame = frame_of(bad[i]);

		call(bad[i], FRAME(1));
		end(bad[i], FRAME(1));
		call(frame, FRAME(1));
		end(frame, FRAME(1));
		assert_int_equal(open_calls(), 0);
	}
	assert_int_equal(native_map__cnt(&call_rows), 0);
}

int main(void)
{
	static const int minors[] = {8, 9, 10, 11, 12, 13, 14, 15};
	struct CMUnitTest tests[] = {
#define TEST(f, i) {#f, f, setup_minor, teardown, (void *)&minors[i]}
#define TESTS(f)   TEST(f, 0), TEST(f, 1), TEST(f, 2), TEST(f, 3), TEST(f, 4), TEST(f, 5), TEST(f, 6)
		TESTS(test_nested), TESTS(test_recursion), TESTS(test_unwound),      TESTS(test_unseen),
		TESTS(test_window), TESTS(test_too_deep),  TESTS(test_paths),        TESTS(test_generator),
		TESTS(test_init),   TESTS(test_threads),   TESTS(test_bad_pointers), TESTS(test_same_bucket),
		TESTS(test_exec),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
