/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls of the Python functions that the user names (bpf/calls.h), in images of the CPythons that show them: 3.8 to
 * 3.10.
 */
#include "tests/bpf/native/job.h"

#include "include/name_hash.h"

#define FN     (FN_FIRST + 1) /* not the first: the one before it is a native function */
#define CALLER 0x1000         /* a frame's address, never read */

static u64 hash_wide(const char *text, u32 width)
{
	char bytes[REC_NAME_MAX] = {0};
	u64 chars = strlen(text), hash = name_hash__seed(width, (u32)chars * width);

	if (chars * width > sizeof(bytes))
		return 0;
	for (u64 i = 0; i < chars; i++)
		bytes[i * width] = text[i];
	for (u64 i = 0; i < chars * width; i += 8)
		hash = name_hash__add(hash, *(u64 *)(bytes + i));
	return name_hash__end(hash);
}

static void want(const char *file, const char *name)
{
	struct py_call call = {.name = hash_wide(name, 1), .file_chars = strlen(file), .fn = FN};
	u32 at = 1; /* not the first */

	for (u32 width = 1; width <= 4; width *= 2)
		call.file[width >> 1] = hash_wide(file, width);
	bpf_map_update_elem(&py_calls, &at, &call, BPF_ANY);
	native__set_knob(&py_call_cnt, 2);
	native__set_knob(&py_call_lengths, 1ULL << strlen(name) % 64);
}

static int setup_minor(void **state)
{
	job__start(*(const int *)*state);
	job.tstate_word = fakepy__tstate(&job.py, CALLER);
	want("pkg/train.py", "step");
	return 0;
}

static void call__enter(u64 py_frame, u64 frame)
{
	bool first = job.py.py->minor == 8;

	hit(PROBE_PY_CALL, 0, frame, frame, first ? py_frame : 1, first ? 0 : py_frame);
}

static void call__exit(u64 frame)
{
	hit(PROBE_PY_CALL_EXIT, 0, frame - 80, frame, 0, 0);
}

static u64 frame_of(u64 file, const char *name)
{
	return fakepy__frame(&job.py, fakepy__code_of(&job.py, file, fakepy__text(&job.py, name)), CALLER);
}

/* Is a function of that file and name the one wanted? Its row then has one call more. */
static bool is_wanted(u64 file, const char *name)
{
	bool begun;

	call__enter(frame_of(file, name), FRAME(1));
	begun = depth() == 1;
	wait_ns(7);
	call__exit(FRAME(1));
	assert_int_equal(depth(), 0);
	return begun;
}

static bool is_wanted_text(const char *file, const char *name)
{
	return is_wanted(fakepy__text(&job.py, file), name);
}

static void test_match(void **state)
{
	(void)state;
	assert_true(is_wanted_text("/home/me/pkg/train.py", "step"));
	assert_true(is_wanted_text("pkg/train.py", "step"));
	assert_true(is_wanted_text("/pkg/train.py", "step"));
	assert_true(is_wanted(fakepy__wide_text(&job.py, 2, 0x4e2d, "/pkg/train.py"), "step"));
	assert_true(is_wanted(fakepy__wide_text(&job.py, 4, 0x1f525, "/pkg/train.py"), "step"));
	assert_true(is_wanted(fakepy__str(&job.py, 1, false, "\xe9/pkg/train.py", 14), "step"));
	expect_row(SPAN_USER, FN_ID(FN), 0, 6, 42, 42);

	assert_false(is_wanted_text("/home/me/xpkg/train.py", "step"));
	assert_false(is_wanted(fakepy__wide_text(&job.py, 2, 0x4e2d, "pkg/train.py"), "step"));
	assert_false(is_wanted(fakepy__wide_text(&job.py, 4, 0x2f00002f, "pkg/train.py"), "step"));
	assert_false(is_wanted_text("/home/me/pkg/train.pyc", "step"));
	assert_false(is_wanted_text("train.py", "step"));
	assert_false(is_wanted_text("", "step"));
	assert_false(is_wanted_text("/home/me/pkg/train.py", "stop"));
	assert_false(is_wanted_text("/home/me/pkg/train.py", "steps"));
	assert_false(is_wanted_text("/home/me/pkg/train.py", ""));
	expect_row(SPAN_USER, FN_ID(FN), 0, 6, 42, 42);
	expect_counters(CNT__COUNT);
}

static void test_long(void **state)
{
	char name[REC_NAME_MAX + 65], file[REC_NAME_MAX + 1];

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	memset(file, '/', sizeof(file) - 1);
	file[sizeof(file) - 1] = 0;
	name[REC_NAME_MAX] = 0;
	want("f.py", name);
	assert_true(is_wanted_text("/f.py", name));
	assert_false(is_wanted_text("/f.py", "")); /* as long, modulo 64 */
	name[REC_NAME_MAX] = 'n';
	assert_false(is_wanted_text("/f.py", name)); /* and a name that does not fit in the buffer */
	want(file, "step");
	assert_true(is_wanted_text(file, "step"));
	expect_counters(CNT__COUNT);
}

static void test_nested(void **state)
{
	u64 py_frame = frame_of(fakepy__text(&job.py, "/pkg/train.py"), "step");
	u64 other = frame_of(fakepy__text(&job.py, "/pkg/train.py"), "other");

	(void)state;
	for (u64 i = 1; i <= 3; i++) {
		fakepy__set_frame(&job.py, job.tstate_word, CALLER + i);
		call__enter(py_frame, FRAME(2 * i));
		fakepy__set_frame(&job.py, job.tstate_word, py_frame);
		call__enter(other, FRAME(2 * i + 1));
		call__exit(FRAME(2 * i + 1));
		wait_ns(10);
	}
	assert_int_equal(depth(), 3);
	for (u64 i = 3; i; i--) {
		fakepy__set_frame(&job.py, job.tstate_word, CALLER + i);
		call__exit(FRAME(2 * i));
	}
	expect_row(SPAN_USER, FN_ID(FN), 0, 1, 30, 10);
	expect_row(SPAN_USER, FN_ID(FN), FN_ID(FN), 2, 30, 20);
	expect_counters(CNT__COUNT);
}

/* Two stacks in turn (greenlets): the second's call lies where the first's did, and the first returns first. */
static void test_stacks(void **state)
{
	u64 py_frame = frame_of(fakepy__text(&job.py, "/pkg/train.py"), "step");

	(void)state;
	call__enter(py_frame, FRAME(1));
	wait_ns(10);
	fakepy__set_frame(&job.py, job.tstate_word, CALLER + 1);
	call__enter(py_frame, FRAME(1));
	assert_int_equal(depth(), 1);
	wait_ns(10);
	fakepy__set_frame(&job.py, job.tstate_word, CALLER);
	call__exit(FRAME(1)); /* the first's, whose span is lost */
	wait_ns(10);
	fakepy__set_frame(&job.py, job.tstate_word, CALLER + 1);
	call__exit(FRAME(1));
	expect_row(SPAN_USER, FN_ID(FN), 0, 1, 20, 20);
	expect_counters(CNT_UNWOUND, 1, CNT__COUNT);
}

static void test_bad_pointers(void **state)
{
	const struct py_layout *py = job.py.py;
	static const u64 bad[] = {0, 1, FAKEPY_NO_ADDRESS, ~0ULL};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		u64 file = fakepy__text(&job.py, "/pkg/train.py"), name = fakepy__text(&job.py, "step");

		call__enter(bad[i], FRAME(1));
		call__enter(fakepy__frame(&job.py, bad[i], 0), FRAME(1));
		call__enter(fakepy__frame(&job.py, fakepy__code_of(&job.py, file, bad[i]), 0), FRAME(1));
		call__enter(fakepy__frame(&job.py, fakepy__code_of(&job.py, bad[i], name), 0), FRAME(1));
		fakepy__put(file + py->str_length, bad[i], 8);
		call__enter(fakepy__frame(&job.py, fakepy__code_of(&job.py, file, name), 0), FRAME(1));
	}
	assert_int_equal(depth(), 0);
	assert_int_equal(native_map__cnt(&aggs), 0);
	job.tstate_word = FAKEPY_NO_ADDRESS;
	assert_true(is_wanted_text("/pkg/train.py", "step"));
}

int main(void)
{
	static const int minors[] = {8, 9, 10};
	struct CMUnitTest tests[] = {
#define TEST(f, i) {#f, f, setup_minor, teardown, (void *)&minors[i]}
#define TESTS(f)   TEST(f, 0), TEST(f, 1), TEST(f, 2)
		TESTS(test_match), TESTS(test_long), TESTS(test_nested), TESTS(test_stacks), TESTS(test_bad_pointers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
