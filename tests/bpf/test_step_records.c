/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is told of step boundaries, thread by thread (REC_STEP): by which rule, which one it is, and what its time was spent in. */
#include "tests/bpf/native/steps.h"

static const struct rec_step *told(u32 n)
{
	const struct rec_step *rec = record(REC_STEP, n);

	if (rec) {
		assert_int_equal(rec->hdr.size, sizeof(*rec));
		assert_int_equal(rec->pid, JOB_PID);
	}
	return rec;
}

/* The n-th is by that rule, and the thread's that many-th; its phases add up to the time since the thread's last. */
static void expect_told(u32 n, const struct task_struct *task, u32 rule, u64 index, u32 serial)
{
	const struct rec_step *rec = told(n), *before = NULL;
	u64 sum = 0;

	assert_non_null(rec);
	assert_int_equal(rec->tid, task->pid);
	assert_int_equal(rec->rule, rule);
	assert_int_equal(rec->index, index);
	assert_int_equal(rec->serial, serial);
	for (u32 i = 0; i < n; i++)
		if (told(i)->tid == rec->tid)
			before = told(i);
	for (u32 p = 0; p < PHASE__COUNT; p++)
		sum += rec->phase_ns[p];
	assert_int_equal(sum, before ? rec->time_ns - before->time_ns : 0);
	assert_true(rec->forward_ns <= rec->phase_ns[PHASE_OTHER]);
}

/* Each boundary, where that is wanted: from the first on by each rule than which no better one was seen. */
static void test_step_times(void **state)
{
	u32 n = 0;

	native__set_knob(&want_step_times, 1);
	for (int i = 0; i < 5; i++) {
		data();
		backward(5, SP);
		optimizer(OPTIMIZER_LABEL);
	}
	expect_told(n++, &job.task, STEP_LOADER, 1, 1);
	expect_told(n++, &job.task, STEP_BACKWARD, 1, 2);
	for (u32 i = 1; i <= 5; i++)
		expect_told(n++, &job.task, STEP_LOADER_OPTIMIZER, i, 2 + i);
	assert_null(told(n));
}

/* Gradient accumulation before the first optimizer's step: both rules' boundaries, of which all phases are told. */
static void test_accumulation_is_told(void **state)
{
	u32 n = 0;

	native__set_knob(&want_step_times, 1);
	for (int step = 0; step < 2; step++) {
		for (int i = 0; i < 20; i++) {
			data();
			backward(5, SP);
		}
		optimizer(OPTIMIZER_LABEL);
	}
	expect_told(n++, &job.task, STEP_LOADER, 1, 1);
	for (u32 i = 1; i <= 20; i++)
		expect_told(n++, &job.task, STEP_BACKWARD, i, 1 + i);
	expect_told(n++, &job.task, STEP_LOADER_OPTIMIZER, 1, 22);
	expect_told(n++, &job.task, STEP_LOADER_OPTIMIZER, 2, 23);
	assert_null(told(n));
}

/* By a rule that comes to hold, steps go on: 31 are no less than those behind them. */
static void test_patience_is_not_seen(void **state)
{
	native__set_knob(&want_step_times, 1);
	for (u32 i = 1; i <= 2 * STEP_PATIENCE; i++) {
		wait_ns(3);
		backward(5, SP);
		expect_told(i - 1, &job.task, STEP_BACKWARD, i, i);
	}
	assert_null(told(2 * STEP_PATIENCE));
}

/* One that trains by hand and then infers: what was fetched is told again when nothing was trained for long. */
static void test_inference_behind(void **state)
{
	u32 n = 0;

	native__set_knob(&want_step_times, 1);
	for (u32 i = 0; i < 3; i++) {
		data();
		backward(5, SP);
	}
	for (int i = 0; i < STEP_PATIENCE + 4; i++)
		data();
	expect_told(n++, &job.task, STEP_LOADER, 1, 1);
	for (u32 i = 1; i <= 3; i++)
		expect_told(n++, &job.task, STEP_BACKWARD, i, 1 + i);
	for (u32 i = 2; i <= 6; i++)
		expect_told(n++, &job.task, STEP_LOADER, i, 3 + i);
	assert_null(told(n));
	/* and trains again */
	data();
	backward(5, SP);
	expect_told(n++, &job.task, STEP_LOADER, 7, 10);
	expect_told(n++, &job.task, STEP_BACKWARD, 4, 11);
}

/* Threads that each train: each with its own batches, its own boundaries and phases. */
static void test_threads(void **state)
{
	struct task_struct *const tasks[] = {&job.task, &job.thread};
	u32 n = 0;

	native__set_knob(&want_step_times, 1);
	for (u32 i = 1; i <= 4; i++) {
		for (u32 k = 0; k < 2; k++) {
			native.task = tasks[k];
			data();
			wait_ns(10);
		}
		for (u32 k = 0; k < 2; k++) {
			native.task = tasks[k];
			optimizer(OPTIMIZER_LABEL);
			optimizer("Optimizer.step#Adam.step"); /* with the same batch */
		}
		assert_int_equal(job.proc->steps.cnt, i);
	}
	expect_told(n++, &job.task, STEP_LOADER, 1, 1);
	expect_told(n++, &job.thread, STEP_LOADER, 1, 1);
	for (u32 i = 1; i <= 4; i++) {
		expect_told(n++, &job.task, STEP_LOADER_OPTIMIZER, i, 1 + i);
		expect_told(n++, &job.thread, STEP_LOADER_OPTIMIZER, i, 1 + i);
	}
	assert_null(told(n));
	native.task = &job.task;
}

/* Likewise by hand. */
static void test_threads_by_hand(void **state)
{
	struct task_struct *const tasks[] = {&job.task, &job.thread};
	u32 n = 0, cnt[2] = {0};

	native__set_knob(&want_step_times, 1);
	for (u32 i = 1; i <= 4; i++) {
		for (u32 k = 0; k < 2; k++) {
			native.task = tasks[k];
			data();
		}
		for (u32 k = 0; k < 4; k++) { /* two for each batch */
			native.task = tasks[k % 2];
			backward(5, SP);
		}
	}
	for (; told(n); n++)
		if (told(n)->rule == STEP_BACKWARD)
			assert_int_equal(told(n)->index, ++cnt[told(n)->tid == (u32)job.thread.pid]);
	assert_int_equal(cnt[0], 4);
	assert_int_equal(cnt[1], 4);
	native.task = &job.task;
}

/* One thread fetches for another, which also has a loader of its own. */
static void test_fetched_for_another(void **state)
{
	for (u64 i = 1; i <= 4; i++) {
		native.task = &job.thread;
		data();
		native.task = &job.task;
		backward(5, SP);
		optimizer(OPTIMIZER_LABEL);
		expect_steps(STEP_LOADER_OPTIMIZER, i);
		optimizer("Optimizer.step#Adam.step");
		expect_steps(STEP_LOADER_OPTIMIZER, i);
		if (i % 2)
			data();
	}
}

/* What is lost is seen: numbers go on. */
static void test_lost_is_seen(void **state)
{
	native__set_knob(&want_step_times, 1);
	for (u32 i = 1; i <= 5; i++) {
		native.ring_full = i == 3;
		optimizer(OPTIMIZER_LABEL);
	}
	assert_int_equal(told(1)->index, 2);
	assert_int_equal(told(2)->index, 4);
	assert_int_equal(told(2)->serial, told(1)->serial + 2);
	assert_int_equal(counter(CNT_RING_FULL), 1);
}

/* A window that waits tells of nothing; each thread's first boundary in it ends no step. */
static void test_window_is_told(void **state)
{
	u32 n = 0;

	native__set_knob(&want_step_times, 1);
	native__set_knob(&step_limit, 2);
	job.proc->window = WINDOW_WAITING;
	for (int i = 0; i < 5; i++)
		backward(5, SP);
	optimizer(OPTIMIZER_LABEL);
	assert_null(told(0));
	backward(5, SP);
	optimizer(OPTIMIZER_LABEL);
	native.task = &job.thread;
	optimizer(OPTIMIZER_LABEL);
	native.task = &job.task;
	backward(5, SP);
	optimizer(OPTIMIZER_LABEL);
	assert_int_equal(job.proc->window, WINDOW_OPEN);
	backward(5, SP);
	optimizer(OPTIMIZER_LABEL);
	assert_int_equal(job.proc->window, WINDOW_DONE);
	expect_told(n++, &job.task, STEP_OPTIMIZER, 0, 1);
	expect_told(n++, &job.thread, STEP_OPTIMIZER, 0, 1);
	expect_told(n++, &job.task, STEP_OPTIMIZER, 1, 2);
	expect_told(n++, &job.task, STEP_OPTIMIZER, 2, 3);
	assert_null(told(n));
	native__set_knob(&step_limit, 0);
}

/* Another program in the same process, or a new window: its boundaries are others. */
static void test_counted_anew(void **state)
{
	native__set_knob(&want_step_times, 1);
	optimizer(OPTIMIZER_LABEL);
	optimizer(OPTIMIZER_LABEL);
	job.proc->step_epoch++;
	optimizer(OPTIMIZER_LABEL);
	assert_int_equal(told(2)->index, 1);
	assert_int_equal(told(2)->serial, 3);
	for (u32 p = 0; p < PHASE__COUNT; p++)
		assert_int_equal(told(2)->phase_ns[p], 0);
}

/* A rest in the middle of a step: that one has no end, and the first boundary after it says so; numbers go on. */
static void test_rest(void **state)
{
	u32 n = 0;

	native__set_knob(&want_step_times, 1);
	for (int i = 0; i < 3; i++) {
		data();
		backward(5, SP);
		optimizer(OPTIMIZER_LABEL);
	}
	n = 5; /* two by worse rules */
	assert_null(told(n));
	data();
	label__enter(OPTIMIZER_LABEL, SP, SP);
	job__rest();
	wait_ns(1000);
	optimizer(OPTIMIZER_LABEL); /* no probe sees it, but a hit that was on its way */
	assert_null(told(n));
	job__wake();
	wait_ns(20);
	optimizer(OPTIMIZER_LABEL); /* of a batch before the rest */
	assert_null(told(n));
	for (int i = 0; i < 2; i++) {
		data();
		backward(5, SP);
		optimizer(OPTIMIZER_LABEL);
	}
	for (u32 i = 0; i < n; i++)
		assert_int_equal(told(i)->hdr.flags, 0);
	assert_int_equal(told(n)->hdr.flags, REC_RESTED);
	assert_int_equal(told(n)->index, told(n - 1)->index + 1);
	assert_int_equal(told(n)->serial, told(n - 1)->serial + 1);
	for (u32 p = 0; p < PHASE__COUNT; p++)
		assert_int_equal(told(n)->phase_ns[p], 0);
	assert_int_equal(told(n + 1)->hdr.flags, 0);
	expect_told(n + 1, &job.task, STEP_LOADER_OPTIMIZER, 5, told(n)->serial + 1);
	assert_null(told(n + 2));
	assert_int_equal(job.proc->steps.cnt, 5);
	assert_int_equal(counter(CNT_DROPPED_INNER), 0); /* it is not lost, but not seen */
	assert_int_equal(counter(CNT_SPAN_REUSED), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(step_times),
		TEST(accumulation_is_told),
		TEST(patience_is_not_seen),
		TEST(inference_behind),
		TEST(threads),
		TEST(threads_by_hand),
		TEST(fetched_for_another),
		TEST(lost_is_seen),
		TEST(window_is_told),
		TEST(counted_anew),
		TEST(rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
