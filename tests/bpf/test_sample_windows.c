/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sampler (bpf/samples.bpf.c) where windows open and close: what is sampled then of threads that run, and that wait. */
#include "tests/bpf/native/sampler.h"

static void test_windows(void **state)
{
	static const u32 others[] = {WINDOW_CLOSED, WINDOW_WAITING, WINDOW_DONE};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		job.proc->window = others[i];
		timer(USER_CS, USER_IP);
		wait_for(2 * THRESHOLD, 2 * THRESHOLD);
	}
	job.proc->window = WINDOW_OPEN;
	native.task = &cpu.other;
	timer(USER_CS, USER_IP);
	switch_to(&cpu.other, SLEEPS);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

static void test_open(void **state)
{
	(void)state;
	native.task = &cpu.other;
	job.thread.on_cpu = 1;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	job.proc->window_start_ns = native.now_ns;
	visit(VISIT_OPEN);
	wait_ns(THRESHOLD);
	sample_waking(&job.task);
	back();
	assert_int_equal(expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1)->stack, 0);
	/* one that ran then has not waited */
	switch_to(&job.thread, SLEEPS);
	assert_null(bpf_task_storage_get(&waits, &job.thread, NULL, 0));
	/* visited again, a wait that is known goes on */
	wait_ns(THRESHOLD);
	visit(VISIT_OPEN);
	wait_ns(THRESHOLD);
	sample_waking(&job.task);
	back();
	assert_true(expect_wait(CAUSE_CHILD_WAIT, 2 * THRESHOLD, 1)->stack != 0);
	expect_no_more();
}

static void test_close(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	away();
	wait_ns(THRESHOLD);
	visit(VISIT_CLOSE);
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	/* once, whatever comes */
	visit(VISIT_CLOSE);
	wait_ns(THRESHOLD);
	back();
	visit(VISIT_CLOSE);
	expect_no_more();
	/* waiting for a CPU at the end */
	away();
	wait_ns(2 * THRESHOLD);
	sample_waking(&job.task);
	wait_ns(3 * THRESHOLD);
	visit(VISIT_CLOSE);
	expect_wait(CAUSE_CHILD_WAIT, 2 * THRESHOLD, 1);
	expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD, 1);
	expect_no_more();
}

/* A wait so far, of one that goes on: in parts, it is as long as it was. */
static void test_cut(void **state)
{
	(void)state;
	job.thread.on_cpu = 1;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	away();
	for (int i = 2; i < 5; i++) {
		wait_ns(i * THRESHOLD);
		visit(VISIT_CUT);
		assert_true(expect_wait(CAUSE_CHILD_WAIT, i * THRESHOLD, 1)->stack != 0);
	}
	wait_ns(THRESHOLD);
	sample_waking(&job.task);
	wait_ns(2 * THRESHOLD);
	visit(VISIT_CUT); /* it waits for a CPU */
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1);
	wait_ns(3 * THRESHOLD);
	back();
	expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD, 1);
	visit(VISIT_CUT); /* it runs */
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* The steps asked for have been seen while a thread waited: it waits until then. */
static void test_done(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	away();
	wait_ns(THRESHOLD);
	job.proc->window = WINDOW_DONE;
	job.proc->window_end_ns = native.now_ns;
	wait_ns(THRESHOLD);
	back();
	wait_for(THRESHOLD, THRESHOLD);
	expect_no_more();
	visit(VISIT_CLOSE);
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	visit(VISIT_CLOSE);
	expect_no_more();
}

/* A wait that began before the window, at a step's boundary, opened (--steps), or before user space came to a forked child. */
static void test_open_later(void **state)
{
	(void)state;
	job.thread.on_cpu = 1;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	for (u32 window = WINDOW_CLOSED; window <= WINDOW_WAITING; window += WINDOW_WAITING) {
		job.proc->window = window;
		away();
		wait_ns(THRESHOLD);
		job.proc->window = WINDOW_OPEN;
		job.proc->window_start_ns = native.now_ns;
		wait_ns(2 * THRESHOLD);
		sample_waking(&job.task);
		back();
		assert_int_equal(!expect_wait(CAUSE_CHILD_WAIT, 2 * THRESHOLD, 1)->stack, window == WINDOW_CLOSED);
		/* woken before it, it only waits for a CPU */
		job.proc->window = window;
		away();
		sample_waking(&job.task);
		wait_ns(THRESHOLD);
		job.proc->window = WINDOW_OPEN;
		job.proc->window_start_ns = native.now_ns;
		wait_ns(2 * THRESHOLD);
		back();
		expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1);
		/* one that was over by then is none, nor is one whose thread runs since */
		job.proc->window = window;
		wait_for(THRESHOLD, THRESHOLD);
		job.proc->window = WINDOW_OPEN;
		job.proc->window_start_ns = native.now_ns;
		job.task.on_cpu = 1;
		wait_ns(THRESHOLD);
		visit(VISIT_CLOSE);
		visit(VISIT_OPEN);
		job.task.on_cpu = 0;
		expect_no_more();
	}
	expect_counters(CNT__COUNT);
}

/* A wait in progress ends with the window of its process, and begins again with the next; nothing is seen in between. */
static void test_rest(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	away();
	wait_ns(THRESHOLD);
	visit(VISIT_REST); /* of another process */
	expect_no_more();
	job__rest();
	wait_ns(THRESHOLD / 2);
	visit(VISIT_REST);
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	visit(VISIT_REST);
	timer(USER_CS, USER_IP);
	wait_ns(THRESHOLD);
	back();
	wait_for(2 * THRESHOLD, 2 * THRESHOLD);
	away();
	assert_int_equal(((struct wait *)bpf_task_storage_get(&waits, &job.task, NULL, 0))->since_ns, 0);
	wait_ns(THRESHOLD);
	visit(VISIT_CLOSE);
	expect_no_more();
	job__wake();
	visit(VISIT_OPEN);
	wait_ns(THRESHOLD);
	sample_waking(&job.task);
	back();
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* The spans of before a rest are around nothing after it. */
static void test_stale_spans(void **state)
{
	const struct rec_sample *rec;

	(void)state;
	label__enter("before the rest", STACK, STACK);
	job__rest();
	job__wake();
	timer(USER_CS, USER_IP);
	rec = record(REC_SAMPLE, 0);
	assert_non_null(rec);
	assert_int_equal(rec->path, 0);
	label__enter("after it", STACK + 8, STACK);
	timer(USER_CS, USER_IP);
	assert_true(((const struct rec_sample *)record(REC_SAMPLE, 1))->path != 0);
	assert_int_equal(((struct thread *)bpf_task_storage_get(&threads, &job.task, NULL, 0))->depth, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, samples_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_windows), TEST(test_open),       TEST(test_close), TEST(test_cut),
		TEST(test_done),    TEST(test_open_later), TEST(test_rest),  TEST(test_stale_spans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
