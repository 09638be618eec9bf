/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a step's time was spent in, of plain loops (bpf/phase.h, include/phases.h). */
#include "tests/bpf/native/phases.h"

static void plain_step(void)
{
	wait_ns(1);
	label(DATA_LABEL, 10);
	wait_ns(20); /* forward */
	label(ZERO_LABEL, 2);
	wait_ns(5); /* forward too: zero_grad may be anywhere before backward */
	backward(30, SP);
	wait_ns(3);
	label(OPTIMIZER_LABEL, 4);
}

static void test_plain(void **state)
{
	plain_step();
	expect_phases(PHASE_OTHER, 3, PHASE_OPTIMIZER, 4,
		      NOTHING); /* since its backward, which might have been the rule */
	for (int i = 0; i < 3; i++) {
		plain_step();
		expect_phases(PHASE_OTHER, 1 + 3, PHASE_DATA, 10, PHASE_FORWARD, 20 + 5, PHASE_OPTIMIZER, 2 + 4,
			      PHASE_BACKWARD, 30, NOTHING);
	}
	/* an evaluation has no backward: it is not forward, whatever else it is */
	wait_ns(100);
	label(DATA_LABEL, 7);
	wait_ns(50);
	plain_step();
	expect_phases(PHASE_OTHER, 100 + 50 + 1 + 3, PHASE_DATA, 7 + 10, PHASE_FORWARD, 20 + 5, PHASE_OPTIMIZER, 2 + 4,
		      PHASE_BACKWARD, 30, NOTHING);
	expect_counters(CNT__COUNT);
}

static void save(u32 flags, u64 frame)
{
	native.cookie = COOKIE(PROBE_SAVE, flags, 8, SAVE);
	probe(&(struct pt_regs){.sp = frame - 8});
}

static void save_begins(u64 frame)
{
	save(COOKIE_BEGINS, frame);
	save(COOKIE_LASTS, frame);
}

/* ---- evaluations of plain loops, told by the Python frames that fetch ---- */

static struct {
	u64 pointer[2]; /* what a thread finds its state by */
	u64 loop, next, exit, call;
} python;

static u64 frame_at(u64 code, u64 outer, u64 instr)
{
	u64 frame = fakepy__frame(&job.py, code, outer);

	fakepy__set_instr(&job.py, frame, code, (s64)instr);
	return frame;
}

static void start_python(int minor)
{
	job__stop();
	job__start(minor);
	native__set_knob(&want_step_times, 1);
	native__set_knob(&sample_period_ns, 1);
	python.loop = fakepy__code(&job.py, "/home/me/train.py", "main");
	python.next = fakepy__code(&job.py, "/opt/torch/utils/data/dataloader.py", "__next__");
	python.exit = fakepy__code(&job.py, "/opt/torch/autograd/profiler.py", "__exit__");
	python.call = fakepy__code(&job.py, "/opt/torch/_ops.py", "__call__");
	job.task.thread.fsbase = (u64)python.pointer;
	job.proc->py.tss_offset = 8;
}

/* By the loop at that line, so to say; `empty`: it raises StopIteration. */
static void fetch_at(u64 line, u64 ns, bool empty)
{
	size_t used = job.py.used;
	u64 next = frame_at(python.next, frame_at(python.loop, 0, line), 40), exit;

	python.pointer[1] = fakepy__tstate(&job.py, next);
	label__enter(DATA_LABEL, 77, SP);
	wait_ns(ns);
	exit = frame_at(python.exit, next, 60);
	for (u64 i = 0; i < 4; i++)
		fakepy__put(exit + job.py.py->frame_locals + 8 * i,
			    fakepy__ref(&job.py, python.loop + 16 * (empty ? i : !i)), 8);
	fakepy__set_frame(&job.py, python.pointer[1], frame_at(python.call, exit, 8));
	label__exit(77, SP);
	python.pointer[1] = 0;
	job.py.used = used;
}

static void train_at(u64 line)
{
	fetch_at(line, 10, false);
	wait_ns(20);
	backward(30, SP);
	label(OPTIMIZER_LABEL, 4);
}

#define TRAINED PHASE_FORWARD, 20, PHASE_BACKWARD, 30, PHASE_OPTIMIZER, 4

/* `cnt` batches, 7 ns to fetch and 50 to use, and the fetch that finds none. */
static void evaluate_at(u64 line, int cnt, bool to_the_end)
{
	for (int i = 0; i < cnt; i++) {
		fetch_at(line, 7, false);
		wait_ns(50);
	}
	if (to_the_end)
		fetch_at(line, 3, true);
}

static void test_evaluations(void **state)
{
	static const int minors[] = {8, 10, 11, 12, 13, 14, 15};
	u32 told = 0;

	for (size_t i = 0; i < sizeof(minors) / sizeof(*minors); i++) {
		start_python(minors[i]);
		train_at(100);
		/* what is around it is not known */
		wait_ns(1000);
		evaluate_at(200, 3, true);
		wait_ns(2000);
		train_at(100);
		expect_phases(PHASE_OTHER, 3000, PHASE_DATA, 10, PHASE_VALIDATION, 3 * 57 + 3, TRAINED, NOTHING);
		expect_row(SPAN_VALIDATION, FIXED_ID(VALIDATION), 0, 1, 3 * 57 + 3, 3 * 50);
		/* one batch; two loops, the first not to its end: that lasts to the second's */
		evaluate_at(200, 1, true);
		wait_ns(5);
		evaluate_at(300, 2, false);
		wait_ns(6);
		evaluate_at(400, 2, true);
		train_at(100);
		expect_phases(PHASE_OTHER, 5, PHASE_DATA, 10, PHASE_VALIDATION, 57 + 3 + 2 * 57 + 6 + 2 * 57 + 3,
			      TRAINED, NOTHING);
		/* before the first batch is used, and not to its end: to the fetch of the loop that trains */
		fetch_at(100, 10, false);
		evaluate_at(200, 2, true);
		wait_ns(20);
		backward(30, SP);
		label(OPTIMIZER_LABEL, 4);
		expect_phases(PHASE_DATA, 10, PHASE_VALIDATION, 2 * 57 + 3, TRAINED, NOTHING);
		evaluate_at(200, 2, false);
		train_at(100);
		expect_phases(PHASE_DATA, 10, PHASE_VALIDATION, 2 * 57, TRAINED, NOTHING);
		/* a checkpoint in it is one, a batch alone is not told */
		fetch_at(200, 7, false);
		save_begins(FRAME(1));
		wait_ns(9);
		save(0, FRAME(1));
		fetch_at(200, 3, true);
		fetch_at(500, 7, false);
		train_at(100);
		expect_phases(PHASE_DATA, 7 + 10, PHASE_VALIDATION, 7 + 3, PHASE_CHECKPOINT, 9, TRAINED, NOTHING);
		for (told = 0; record(REC_INTERVAL, told); told++)
			;
		assert_int_equal(told, 7);
		expect_counters(CNT__COUNT);
	}
}

/* The loop that trains skips batches, fetches ahead, has another loader's batch for each; and then evaluates. */
static void test_no_evaluations(void **state)
{
	start_python(12);
	train_at(100);
	train_at(100);
	for (int i = 0; i < 3; i++) {
		fetch_at(100, 10, false);
		wait_ns(50);
	}
	train_at(100);
	expect_phases(PHASE_OTHER, 150, PHASE_DATA, 40, TRAINED, NOTHING);
	for (int i = 0; i < 3; i++) {
		fetch_at(110, 6, false);
		wait_ns(1);
		train_at(100);
		expect_phases(PHASE_OTHER, 1, PHASE_DATA, 16, TRAINED, NOTHING);
	}
	/* another loop, that fetches all for a step first: not known yet to be one that trains */
	for (int i = 0; i < 3; i++)
		fetch_at(120, 10, false);
	train_at(120);
	expect_phases(PHASE_DATA, 40, TRAINED, NOTHING);
	/* it ends, and its lines evaluate */
	fetch_at(120, 2, true);
	evaluate_at(120, 2, true);
	train_at(120);
	expect_phases(PHASE_DATA, 2 + 10, PHASE_VALIDATION, 2 * 57 + 3, TRAINED, NOTHING);
	/* no frames: nothing is told */
	job.proc->py.tss_offset = 0;
	evaluate_at(200, 3, true);
	train_at(120);
	expect_phases(PHASE_OTHER, 150, PHASE_DATA, 3 * 7 + 3 + 10, TRAINED, NOTHING);
	expect_counters(CNT__COUNT);
}

/* A thread that only fetches, for one that trains: those are no evaluations. */
static void test_fetching_thread(void **state)
{
	start_python(12);
	train_at(100);
	native.task = &job.thread;
	job.thread.thread.fsbase = (u64)python.pointer;
	evaluate_at(200, 5, true);
	assert_null(row(SPAN_VALIDATION, FIXED_ID(VALIDATION), 0));
}

/* A step may end in it; its row has all of it. */
static void test_evaluation_of_steps(void **state)
{
	start_python(12);
	native__set_knob(&step_at[0], FN_ID(F));
	train_at(100);
	for (int i = 0; i < 3; i++) {
		fetch_at(200, 7, false);
		wait_ns(50);
		fetch_at(200, 7, false);
		fn__enter(F, FRAME(1));
		wait_ns(13);
		fn__exit(F, FRAME(1));
	}
	expect_phases(PHASE_VALIDATION, 7 + 50 + 7 + 13, NOTHING);
	fetch_at(200, 3, true);
	expect_row(SPAN_VALIDATION, FIXED_ID(VALIDATION), 0, 1, 3 * (7 + 50 + 7 + 13) + 3, 3 * 50);
	native__set_knob(&step_at[0], 0);
}

/* Nothing is trained: forward lies between the fetches, once that is the rule. */
static void expect_steps_by(u32 rule, u64 steps)
{
	assert_int_equal(job.proc->steps.rule, rule);
	assert_int_equal(job.proc->steps.cnt, steps);
}

/* Only evaluations have a DataLoader: what they fetched is for no optimizer, and each of its steps counts. */
static void test_evaluation_alone_fetches(void **state)
{
	u64 steps = 0;

	start_python(11);
	/* the window begins in an evaluation, of which nothing is known yet */
	evaluate_at(200, 3, true);
	for (int epoch = 0; epoch < 3; epoch++) {
		for (int i = 0; i < 5; i++) {
			backward(30, SP);
			label(OPTIMIZER_LABEL, 4);
			expect_steps_by(STEP_OPTIMIZER, ++steps);
		}
		evaluate_at(200, 3, true);
	}
	/* batches that are used, too: the first update of each ends a step, behind an evaluation, too */
	for (steps = 1; steps <= 3; steps++) {
		train_at(100);
		expect_steps_by(STEP_LOADER_OPTIMIZER, steps);
		label(OPTIMIZER_LABEL, 4);
		expect_steps_by(STEP_LOADER_OPTIMIZER, steps);
	}
	evaluate_at(200, 3, true);
	label(OPTIMIZER_LABEL, 4);
	expect_steps_by(STEP_LOADER_OPTIMIZER, 3);
}

/* Trains with the batch at hand, after the next one was fetched. */
static void train_ahead(u64 line, bool empty)
{
	fetch_at(line, 10, empty);
	wait_ns(20);
	backward(30, SP);
	label(OPTIMIZER_LABEL, 4);
}

/*
 * Loaders that fetch a batch ahead train with the last one when no other is left: the step of each
 * batch ends, of an epoch that was going on, too.
 */
static void test_fetches_ahead(void **state)
{
	u64 steps = 0;

	start_python(12);
	for (int epoch = 0; epoch < 4; epoch++) {
		if (epoch)
			fetch_at(90, 10, false);
		for (int i = 0; i < 5; i++) {
			train_ahead(100, i == 4);
			expect_steps_by(STEP_LOADER_OPTIMIZER, ++steps);
			label(OPTIMIZER_LABEL, 4); /* another one, for the same batch */
			expect_steps_by(STEP_LOADER_OPTIMIZER, steps);
			if (i == 2)
				evaluate_at(200, 3, true);
		}
		evaluate_at(200, 3, true);
	}
	/* three at a time, and another one with each step */
	for (int i = 0; i < 3; i++)
		fetch_at(100, 10, false);
	for (int i = 0; i < 5; i++) {
		if (i && i < 4)
			fetch_at(100, 10, i == 3);
		backward(30, SP);
		label(OPTIMIZER_LABEL, 4);
		expect_steps_by(STEP_LOADER_OPTIMIZER, ++steps);
	}
	/* a loader that fetches none ahead: what is trained behind it has no batch of its own */
	for (int epoch = 0; epoch < 3; epoch++) {
		for (int i = 0; i < 5; i++) {
			train_at(120);
			expect_steps_by(STEP_LOADER_OPTIMIZER, ++steps);
		}
		evaluate_at(200, 3, true);
		fetch_at(120, 3, true);
		backward(30, SP);
		label(OPTIMIZER_LABEL, 4);
		expect_steps_by(STEP_LOADER_OPTIMIZER, steps);
	}
}

/* Likewise, where updates are made by hand. */
static void test_fetches_ahead_by_hand(void **state)
{
	u64 steps = 0;

	start_python(12);
	for (int epoch = 0; epoch < 3; epoch++) {
		fetch_at(90, 10, false);
		for (int i = 0; i < STEP_PATIENCE; i++) {
			fetch_at(100, 10, i == STEP_PATIENCE - 1);
			backward(30, SP);
			assert_int_equal(job.proc->steps.cnt, ++steps);
		}
	}
	assert_int_equal(job.proc->steps.rule, STEP_BACKWARD);
}

/* Only evaluations have a DataLoader, and updates are made by hand. */
static void test_evaluation_beside_backwards(void **state)
{
	start_python(12);
	evaluate_at(200, 3, true);
	for (u64 i = 1; i <= 3 * STEP_PATIENCE; i++) {
		backward(30, SP);
		expect_steps_by(i < STEP_PATIENCE ? STEP_NONE : STEP_BACKWARD, i);
		if (i % 7 == 0)
			evaluate_at(200, 3, true);
	}
}

static void test_inference(void **state)
{
	start_python(12);
	for (int i = 0; i < 2 * STEP_PATIENCE; i++) {
		fetch_at(200, 10, false);
		wait_ns(20);
	}
	expect_phases(PHASE_DATA, 10, PHASE_FORWARD, 20, NOTHING);
	fetch_at(200, 3, true);
	wait_ns(40);
	fetch_at(200, 10, false);
	expect_phases(PHASE_OTHER, 40, PHASE_DATA, 3, NOTHING);
	assert_null(row(SPAN_VALIDATION, FIXED_ID(VALIDATION), 0));
}

/* Likewise before it is: told beside `other`, with the interval, for it may yet have been something else. */
static void test_perhaps_inference(void **state)
{
	const struct rec_interval *interval;
	const struct rec_step *step;

	start_python(12);
	for (u32 i = 0; i < 4; i++) {
		fetch_at(200, 10, false);
		job__thread()->gap_sampled = 1;
		wait_ns(20);
	}
	expect_phases(PHASE_OTHER, 20, PHASE_DATA, 10, NOTHING);
	for (u32 i = 1; i < 4; i++) {
		step = record(REC_STEP, i);
		assert_int_equal(step->rule, STEP_LOADER);
		assert_int_equal(step->forward_ns, 20);
		interval = record(REC_INTERVAL, i - 1);
		assert_int_equal(interval->kind, SPAN_FORWARD);
		assert_int_equal(interval->rule, STEP_LOADER);
		assert_int_equal(interval->name, FIXED_ID(FORWARD));
		assert_int_equal(interval->start_ns + interval->duration_ns, step->time_ns);
	}
	assert_null(row(SPAN_FORWARD, FIXED_ID(FORWARD), 0));
	/* behind a loop there is none; nor where something is trained */
	fetch_at(200, 3, true);
	wait_ns(40);
	fetch_at(200, 10, false);
	step = record(REC_STEP, 5);
	assert_int_equal(step->forward_ns, 0);
	backward(5, SP);
	assert_int_equal(((const struct rec_step *)record(REC_STEP, 6))->forward_ns, 0);
	fetch_at(200, 10, false);
	assert_null(record(REC_STEP, 7));
	assert_null(record(REC_INTERVAL, 4));
}

/* Two backwards a step, collectives inside of backward and of forward, a collective that is made of others. */
static void test_inner(void **state)
{
	plain_step();
	label(DATA_LABEL, 10);
	wait_ns(20);
	fn__enter(COMM, FRAME(1));
	wait_ns(2);
	fn__enter(COMM, FRAME(2));
	wait_ns(2);
	fn__exit(COMM, FRAME(2));
	fn__exit(COMM, FRAME(1));
	fn__enter(FN_BACKWARD, FRAME(1));
	wait_ns(30);
	fn__enter(COMM, FRAME(2));
	wait_ns(5);
	fn__exit(COMM, FRAME(2));
	wait_ns(1);
	fn__exit(FN_BACKWARD, FRAME(1));
	wait_ns(6);
	backward(7, FRAME(1));
	label(OPTIMIZER_LABEL, 4);
	expect_phases(PHASE_DATA, 10, PHASE_FORWARD, 20 + 6, PHASE_COMM, 4 + 5, PHASE_BACKWARD, 30 + 1 + 7,
		      PHASE_OPTIMIZER, 4, NOTHING);
}

/* LBFGS: forward and backward inside of Optimizer.step. */
static void test_closure(void **state)
{
	plain_step();
	label(DATA_LABEL, 10);
	wait_ns(1);
	label__enter(OPTIMIZER_LABEL, 77, SP);
	for (int i = 0; i < 3; i++) {
		wait_ns(3);
		label(ZERO_LABEL, 2);
		wait_ns(20);
		backward(30, FRAME(1));
		wait_ns(4);
	}
	label__exit(77, SP);
	expect_phases(PHASE_OTHER, 1, PHASE_DATA, 10, PHASE_OPTIMIZER, 3 * (3 + 2 + 4), PHASE_FORWARD, 3 * 20,
		      PHASE_BACKWARD, 3 * 30, NOTHING);
}

/* An exception drops spans: their phases last until that is seen. */
static void test_exception(void **state)
{
	plain_step();
	fn__enter(F, FRAME(1));
	label__enter(DATA_LABEL, 77, FRAME(1) - 64);
	wait_ns(10);
	fn__enter(FN_BACKWARD, FRAME(2));
	wait_ns(20);
	hit(PROBE_LABEL_END, 0, SP, 0, 1, 0);
	wait_ns(1);
	label(OPTIMIZER_LABEL, 4);
	label(DATA_LABEL, 5);
	label(OPTIMIZER_LABEL, 6);
	expect_phases(PHASE_OTHER, 1, PHASE_DATA, 10 + 5, PHASE_BACKWARD, 20, PHASE_OPTIMIZER, 4 + 6, NOTHING);
	expect_counters(CNT_UNWOUND, 3, CNT__COUNT);
}

/* Boundaries of two threads: each has the phases of its own time. */
static void test_threads(void **state)
{
	plain_step();
	plain_step();
	native.task = &job.thread;
	plain_step();
	expect_phases(NOTHING); /* when it began is not known */
	plain_step();
	expect_phases(PHASE_OTHER, 4, PHASE_DATA, 10, PHASE_FORWARD, 25, PHASE_OPTIMIZER, 6, PHASE_BACKWARD, 30,
		      NOTHING);
	native.task = &job.task;
	plain_step();
	expect_phases(PHASE_OTHER, 2 * 75 + 4, PHASE_DATA, 10, PHASE_FORWARD, 25, PHASE_OPTIMIZER, 6, PHASE_BACKWARD,
		      30, NOTHING);
}

/* ---- torch.save ---- */

static void test_save(void **state)
{
	plain_step();
	label__enter("my label", 77, SP);
	save(COOKIE_BEGINS, FRAME(1));
	wait_ns(30);
	save(COOKIE_LASTS, FRAME(1));
	wait_ns(20);
	label(DATA_LABEL, 1); /* whatever it does */
	save(0, FRAME(1));
	wait_ns(2);
	label__exit(77, SP);
	plain_step();
	expect_phases(PHASE_OTHER, 2 + 4, PHASE_DATA, 1 + 10, PHASE_CHECKPOINT, 50, PHASE_FORWARD, 25, PHASE_OPTIMIZER,
		      6, PHASE_BACKWARD, 30, NOTHING);
	expect_row(SPAN_SAVE, FN_ID(SAVE), utf8_id("my label"), 1, 51, 50);
	expect_counters(CNT__COUNT);
	/* the end of one that began before us, and one whose end was missed */
	save(0, FRAME(1));
	save_begins(FRAME(1));
	wait_ns(1);
	save_begins(FRAME(1));
	wait_ns(1);
	save(0, FRAME(1));
	assert_int_equal(row(SPAN_SAVE, FN_ID(SAVE), 0)->calls, 1);
	assert_int_equal(depth(), 0);
	expect_counters(CNT_OPEN_AT_START, 1, CNT_SPAN_REUSED, 1, CNT__COUNT);
	/* one that could not be opened: an exception */
	save(COOKIE_BEGINS, FRAME(1));
	label("next", 1);
	assert_int_equal(depth(), 0);
	expect_counters(CNT_OPEN_AT_START, 1, CNT_SPAN_REUSED, 1, CNT_UNWOUND, 1, CNT__COUNT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, phases_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(plain),
		TEST(evaluations),
		TEST(no_evaluations),
		TEST(fetching_thread),
		TEST(evaluation_of_steps),
		TEST(evaluation_alone_fetches),
		TEST(evaluation_beside_backwards),
		TEST(fetches_ahead),
		TEST(fetches_ahead_by_hand),
		TEST(inference),
		TEST(perhaps_inference),
		TEST(inner),
		TEST(closure),
		TEST(exception),
		TEST(threads),
		TEST(save),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
