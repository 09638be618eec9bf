/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* JAX's jitted calls and annotations (bpf/jax.h), and which jitted function's calls are steps (bpf/steps.h). */
#include "tests/bpf/native/job.h"

enum { JIT = FN_FIRST, COMPILE };

/* A type object, as far as it is read, and an object of a jitted function. */
static struct {
	u64 head[3], name, sizes[3], vectorcall_offset;
} type;

struct function {
	u64 head[2], dict, weakrefs, vectorcall;
	struct {
		u64 text, size;
	} name;
};

static struct function function_of(const char *name)
{
	type.vectorcall_offset = offsetof(struct function, vectorcall);
	return (struct function){.head = {1, (u64)&type}, .name = {(u64)name, strlen(name)}};
}

static void jit__enter(struct function *f, u64 frame)
{
	hit(PROBE_JIT, JIT, frame - 40, frame, (u64)f, 0);
}

static void jit__exit(u64 frame)
{
	hit(PROBE_JIT_EXIT, JIT, frame - 8, frame, 0, 0);
}

static void jit__call(const char *name, u64 ns, bool compiles)
{
	struct function f = function_of(name);

	jit__enter(&f, FRAME(1));
	if (compiles) {
		fn__enter(COMPILE, FRAME(2));
		wait_ns(1000000);
		fn__exit(COMPILE, FRAME(2));
	}
	wait_ns(ns);
	jit__exit(FRAME(1));
}

static int setup_jax(void **state)
{
	setup(state);
	job__set_fn(JIT, FN_ID(JIT), SPAN_JIT);
	job__set_fn(COMPILE, FN_ID(COMPILE), SPAN_COMPILE);
	return 0;
}

/* A call inside of another is traced for it. */
static void test_calls(void **state)
{
	struct function outer = function_of("train_step"), inner = function_of("relu");

	jit__enter(&outer, FRAME(1));
	wait_ns(5);
	jit__enter(&inner, FRAME(3));
	wait_ns(7);
	jit__exit(FRAME(3));
	jit__exit(FRAME(1));
	expect_row(SPAN_JIT, utf8_id("jit train_step"), 0, 1, 12, 12);
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT__COUNT);
	jit__exit(FRAME(1));
	expect_counters(CNT_OPEN_AT_START, 1, CNT__COUNT);
}

/* What is said of an object is not trusted. */
static void test_hostile(void **state)
{
	static const char text[] = "f";
	struct function f = function_of(text);
	u64 offsets[] = {0, 8, 256, ~0ULL}, sizes[] = {0, REC_NAME_MAX, ~0ULL};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
		type.vectorcall_offset = offsets[i];
		jit__enter(&f, FRAME(1));
		jit__exit(FRAME(1));
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		f = function_of(text);
		f.name.size = sizes[i];
		jit__enter(&f, FRAME(1));
		jit__exit(FRAME(1));
	}
	expect_row(SPAN_JIT, FN_ID(JIT), 0, 7, 0, 0);
	expect_counters(CNT_NAME_LOST, 7, CNT__COUNT);
}

/* The function in which most time is, but for that of compiles. */
static void test_steps(void **state)
{
	jit__call("init", 10, true);
	jit__call("train_step", 100, true);
	for (int i = 0; i < 20; i++) {
		jit__call("multiply", 3, false);
		jit__call("train_step", 100, false);
		jit__call("multiply", 3, false);
	}
	assert_int_equal(job.proc->steps.rule, STEP_JIT);
	assert_int_equal(job.proc->jit.name, utf8_id("jit train_step"));
	assert_int_equal(job.proc->steps.cnt, 20 - (JIT_CALLS - 1));
	expect_row(SPAN_COMPILE, FN_ID(COMPILE), utf8_id("jit train_step"), 1, 1000000, 1000000);
	/* it is called no more: another one is the step, and counts anew */
	for (int i = 0; i < JIT_AWAY + 10; i++)
		jit__call("other_step", 400, false);
	assert_int_equal(job.proc->jit.name, utf8_id("jit other_step"));
	/* multiply's last call was the first of JIT_AWAY, and the one that changed it ends a step */
	assert_int_equal(job.proc->steps.cnt, 10 + 2);
}

static void annotation(const char *class, const char *name, u64 ns)
{
	u64 object[2] = {1, (u64)&type}, args[3] = {(u64)object, fakepy__text(&job.py, name), 0};

	type.name = (u64) class;
	hit(PROBE_ANNOTATION, 0, FRAME(2), 0, 0, (u64)args);
	wait_ns(ns);
	hit(PROBE_ANNOTATION_END, 0, FRAME(3), 0, 0, (u64)args);
}

static void test_annotations(void **state)
{
	annotation("TraceAnnotation\0.......", "load", 5);
	assert_int_equal(job.proc->steps.rule, STEP_NONE);
	for (int i = 0; i < 8; i++)
		jit__call("train_step", 100, false);
	assert_int_equal(job.proc->steps.rule, STEP_JIT);
	for (int i = 0; i < 3; i++)
		annotation("StepTraceAnnotation", "train", 9);
	assert_int_equal(job.proc->steps.rule, STEP_ANNOTATION);
	assert_int_equal(job.proc->steps.cnt, 3);
	expect_counters(CNT__COUNT);
	hit(PROBE_ANNOTATION_END, 0, FRAME(3), 0, 0, (u64)&job.proc);
	expect_counters(CNT_OPEN_AT_START, 1, CNT__COUNT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_calls, setup_jax, teardown),
		cmocka_unit_test_setup_teardown(test_hostile, setup_jax, teardown),
		cmocka_unit_test_setup_teardown(test_steps, setup_jax, teardown),
		cmocka_unit_test_setup_teardown(test_annotations, setup_jax, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
