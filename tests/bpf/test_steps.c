/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Step boundaries by each rule (bpf/steps.h), and the windows that they open and close. */
#include <pthread.h>

#include "tests/bpf/native/steps.h"

/* ---- rules ---- */

static void lightning_step(u64 batch)
{
	data();
	fakepy__set_created(&job.py, batch, true);
	action__next(batch, SP);
	optimizer(OPTIMIZER_LABEL);
	action__next(batch, SP);
}

/* run_training_batch is known by its fixed name: what user space says is the id of that text. */
static u64 begin_lightning(void)
{
	u64 batch = action__new("run_training_batch"), id;

	lightning_step(batch);
	id = latin_id("run_training_batch");
	job__stop();
	job__start(12);
	native__set_knob(&fixed_names[NAME_RUN_TRAINING_BATCH], id);
	return action__new("run_training_batch");
}

static void test_lightning(void **state)
{
	u64 batch = begin_lightning();

	for (u64 i = 1; i <= 5; i++) {
		lightning_step(batch);
		expect_steps(STEP_LIGHTNING, i);
	}
	/* what is worse does not count any more */
	data();
	optimizer(OPTIMIZER_LABEL);
	label__run("ProfilerStep#3", 1, SP);
	assert_int_equal(job.proc->steps.rule, STEP_LIGHTNING);
	assert_int_equal(job.proc->steps.cnt, 5);
}

/* Then a loop of its own, and Lightning again. */
static void test_lightning_and_plain(void **state)
{
	u64 batch = begin_lightning();

	for (int round = 0; round < 2; round++) {
		for (u64 i = 1; i <= 3; i++) {
			lightning_step(batch);
			assert_int_equal(job.proc->steps.rule, STEP_LIGHTNING);
		}
		for (u64 i = 1; i <= OUTSIDE_LIGHTNING + 5; i++) {
			data();
			wait_ns(7);
			backward(5, SP);
			assert_int_equal(job__thread()->phase_ns[PHASE_FORWARD], i > OUTSIDE_LIGHTNING ? 7 : 0);
			optimizer(OPTIMIZER_LABEL);
			assert_int_equal(job.proc->steps.rule,
					 i < OUTSIDE_LIGHTNING ? STEP_LIGHTNING : STEP_LOADER_OPTIMIZER);
		}
		/* and the one in Lightning's first batch, which shows that it trains when it ends */
		assert_int_equal(job__thread()->rule_steps[STEP_LOADER_OPTIMIZER], (6 + 1) * (round + 1));
	}
}

static void test_loader_optimizer(void **state)
{
	for (u64 i = 1; i <= 4; i++) {
		data();
		backward(5, SP);
		optimizer(OPTIMIZER_LABEL);
		expect_steps(STEP_LOADER_OPTIMIZER, i);
		label__run(ZERO_LABEL, 1, SP);
	}
}

static void test_gradient_accumulation(void **state)
{
	for (u64 i = 1; i <= 4; i++) {
		for (int batch = 0; batch < 3; batch++) {
			data();
			backward(5, SP);
		}
		optimizer(OPTIMIZER_LABEL);
		expect_steps(STEP_LOADER_OPTIMIZER, i);
	}
}

static void test_gan(void **state)
{
	for (u64 i = 1; i <= 4; i++) {
		data();
		optimizer("Optimizer.step#Adam.step");
		expect_steps(STEP_LOADER_OPTIMIZER, i);
		for (int k = 0; k < 2; k++)
			optimizer("Optimizer.step#RMSprop.step");
		assert_int_equal(job.proc->steps.cnt, i);
	}
}

/* Another thread fetches several batches, and then each makes a step. */
static void test_batches_of_another_thread(void **state)
{
	u64 steps = 0;

	for (int burst = 0; burst < 3; burst++) {
		native.task = &job.thread;
		for (int i = 0; i < 4; i++)
			data();
		native.task = &job.task;
		for (int i = 0; i < 4; i++) {
			backward(5, SP);
			optimizer(OPTIMIZER_LABEL);
			expect_steps(STEP_LOADER_OPTIMIZER, ++steps);
		}
		optimizer("Optimizer.step#RMSprop.step"); /* of the same batch */
		expect_steps(STEP_LOADER_OPTIMIZER, steps);
	}
	/* batches of its own: those of others are for others */
	native.task = &job.thread;
	for (int i = 0; i < 4; i++)
		data();
	native.task = &job.task;
	data();
	optimizer(OPTIMIZER_LABEL);
	optimizer(OPTIMIZER_LABEL);
	expect_steps(STEP_LOADER_OPTIMIZER, steps + 1);
}

/* Likewise, and two optimizers step for each batch: the first of them ends the step. */
static void test_bursts_of_two_optimizers(void **state)
{
	u64 steps = 0;

	for (int burst = 0; burst < 12; burst++) {
		native.task = &job.thread;
		for (int i = 0; i < 4; i++)
			data();
		native.task = &job.task;
		for (int i = 0; i < 4; i++) {
			backward(5, SP);
			optimizer(OPTIMIZER_LABEL);
			steps = job.proc->steps.cnt;
			backward(5, SP);
			optimizer(OPTIMIZER_LABEL);
			if (burst >= 8)
				assert_int_equal(job.proc->steps.cnt, steps);
		}
	}
	/* until the ratio is known, a burst has as many steps, but not at the right places */
	expect_steps(STEP_LOADER_OPTIMIZER, 12 * 4);
}

/* An evaluation fetches, and steps nothing. */
static void test_validation(void **state)
{
	for (u64 i = 1; i <= 4; i++) {
		data();
		optimizer(OPTIMIZER_LABEL);
		expect_steps(STEP_LOADER_OPTIMIZER, i);
	}
	for (int i = 0; i < 5; i++)
		data();
	assert_int_equal(job.proc->steps.cnt, 4);
	data();
	optimizer(OPTIMIZER_LABEL);
	expect_steps(STEP_LOADER_OPTIMIZER, 5);
}

static void test_optimizer_alone(void **state)
{
	for (u64 i = 1; i <= 4; i++) {
		optimizer("Optimizer.step#Adam.step");
		expect_steps(STEP_OPTIMIZER, i);
		optimizer("Optimizer.step#RMSprop.step"); /* not the first one seen */
		assert_int_equal(job.proc->steps.cnt, i);
	}
	/* a loader comes: better, and counted anew */
	data();
	optimizer("Optimizer.step#Adam.step");
	expect_steps(STEP_LOADER_OPTIMIZER, 1);
	optimizer("Optimizer.step#Adam.step");
	assert_int_equal(job.proc->steps.cnt, 1);
}

/* An optimizer for each parameter, all of one class; another one's step in front of them changes nothing. */
static void test_optimizers_of_one_backward(void **state)
{
	optimizer("Optimizer.step#Adam.step"); /* before the first backward that is seen */
	expect_steps(STEP_OPTIMIZER, 1);
	for (u64 i = 2; i <= 5; i++) {
		backward(20, SP);
		optimizer("Optimizer.step#RMSprop.step");
		for (int k = 0; k < 4; k++)
			optimizer("Optimizer.step#Adam.step");
		expect_steps(STEP_OPTIMIZER, i);
	}
}

/* Adam for a while, then LBFGS alone: once that is no turn of Adam's, its steps end steps. */
static void test_another_optimizer(void **state)
{
	u64 steps = 0;

	for (int i = 0; i < 10; i++) {
		backward(20, SP);
		optimizer("Optimizer.step#Adam.step");
		expect_steps(STEP_OPTIMIZER, ++steps);
	}
	for (int i = 0; i < 10; i++) {
		label__enter("Optimizer.step#LBFGS.step", 77, SP);
		for (int k = 0; k < 3; k++)
			backward(20, FRAME(1));
		label__exit(77, SP);
		expect_steps(STEP_OPTIMIZER, i < UPDATES_ELSEWHERE ? steps : ++steps);
	}
	/* many steps of others after one backward are one turn */
	for (int i = 0; i < 10; i++) {
		backward(20, SP);
		for (int k = 0; k < 10; k++)
			optimizer("Optimizer.step#RMSprop.step");
		optimizer("Optimizer.step#LBFGS.step");
		expect_steps(STEP_OPTIMIZER, ++steps);
	}
}

/*
 * Each parameter's optimizer steps as soon as it has its gradient: on a GPU that is on a thread of
 * the engine's. Backward is the step then.
 */
static void test_optimizers_inside_backward(void **state)
{
	struct task_struct *threads[] = {&job.task, &job.thread};

	strcpy(job.thread.comm, "pt_autograd_0");
	for (size_t on = 0; on < 2; on++) {
		u64 had = job.proc->steps.cnt;

		for (u64 i = 1; i <= STEP_PATIENCE + 8; i++) {
			data();
			fn__enter(FN_BACKWARD, SP);
			native.task = threads[on];
			for (int k = 0; k < 2 * UPDATES_OF_BATCH; k++)
				label__run(OPTIMIZER_LABEL, 4, FRAME(1));
			native.task = &job.task;
			fn__exit(FN_BACKWARD, SP);
			assert_int_equal(job.proc->steps.cnt, had + i);
		}
		assert_int_equal(job.proc->steps.rule, STEP_BACKWARD);
	}
	/* one that steps behind it ends the step */
	data();
	backward(20, SP);
	optimizer(OPTIMIZER_LABEL);
	expect_steps(STEP_LOADER_OPTIMIZER, 1);
}

static void test_profiler_step(void **state)
{
	char label[32];

	for (u64 i = 1; i <= 4; i++) {
		snprintf(label, sizeof(label), "ProfilerStep#%d", (int)i);
		wait_ns(1);
		label__run(label, 20, SP);
		expect_steps(STEP_PROFILER, i);
	}
	optimizer(OPTIMIZER_LABEL);
	expect_steps(STEP_OPTIMIZER, 1);
}

/* No optimizer, no DataLoader: each backward. The rule holds once so many have passed. */
static void test_backward_alone(void **state)
{
	for (u64 i = 1; i <= 3 * STEP_PATIENCE; i++) {
		wait_ns(1);
		backward(5, SP);
		expect_steps(i < STEP_PATIENCE ? STEP_NONE : STEP_BACKWARD, i);
		assert_int_equal(job.proc->steps.seen_rule, STEP_BACKWARD);
	}
	/* an optimizer is better, and counted anew */
	optimizer(OPTIMIZER_LABEL);
	expect_steps(STEP_OPTIMIZER, 1);
	backward(5, SP);
	expect_steps(STEP_OPTIMIZER, 1);
}

/* With a DataLoader the first backward of each batch; an evaluation fetches only. */
static void test_backward_of_batches(void **state)
{
	for (u64 i = 1; i <= 3 * STEP_PATIENCE; i++) {
		data();
		for (int k = 0; k < 3; k++)
			backward(5, SP);
		expect_steps(i < STEP_PATIENCE ? STEP_NONE : STEP_BACKWARD, i);
	}
	for (int i = 0; i < 2 * STEP_PATIENCE; i++)
		data();
	expect_steps(STEP_BACKWARD, 3 * STEP_PATIENCE);
}

/* A step goes from a fetch to the next. */
static void test_loader_alone(void **state)
{
	for (u64 i = 1; i <= 3 * STEP_PATIENCE; i++) {
		wait_ns(1);
		label__enter(DATA_LABEL, 77, SP);
		expect_steps(i < STEP_PATIENCE ? STEP_NONE : STEP_LOADER, i);
		label__run(DATA_LABEL, 1, SP - 256); /* a DataLoader inside of another one's dataset */
		label__exit(77, SP);
	}
	expect_steps(STEP_LOADER, 3 * STEP_PATIENCE);
	/* it trains, after all */
	data();
	optimizer(OPTIMIZER_LABEL);
	expect_steps(STEP_LOADER_OPTIMIZER, 1);
	for (int i = 0; i < 10; i++)
		data();
	expect_steps(STEP_LOADER_OPTIMIZER, 1);
}

/* What is no step however often it comes before the first true one: accumulation, closures, Lightning's own. */
static void test_no_false_steps(void **state)
{
	u64 action;

	for (int i = 0; i < STEP_PATIENCE - 1; i++) {
		data();
		backward(5, SP);
	}
	label__enter(OPTIMIZER_LABEL, 77, SP);
	for (int i = 0; i < 2 * STEP_PATIENCE; i++)
		backward(5, FRAME(1));
	assert_int_equal(job.proc->steps.rule, STEP_NONE);
	label__exit(77, SP);
	expect_steps(STEP_LOADER_OPTIMIZER, 1);

	job__stop();
	job__start(12);
	action = action__new("[Strategy]SingleDeviceStrategy.training_step");
	action__next(action, SP);
	for (int i = 0; i < 2 * STEP_PATIENCE; i++) {
		data();
		backward(5, FRAME(1));
	}
	action__next(action, SP);
	assert_int_equal(job.proc->steps.rule, STEP_NONE);
}

/* How long a step takes is known from a few; a slow one changes that little. */
static void test_usual_length(void **state)
{
	u64 usual;

	(void)state;
	assert_int_equal(job.proc->steps.usual_ns, 0);
	for (int i = 0; i < 40; i++) {
		data();
		wait_ns(5000000);
		optimizer(OPTIMIZER_LABEL);
	}
	usual = job.proc->steps.usual_ns;
	assert_true(usual >= 5000000 && usual < 5100000);
	data();
	wait_ns(60000000000);
	optimizer(OPTIMIZER_LABEL);
	assert_true(job.proc->steps.usual_ns > usual && job.proc->steps.usual_ns < usual + usual / 7);
}

/* ---- --step-at ---- */

static void set_step_at(u64 id)
{
	native__set_knob(&step_at[0], id);
	native__set_knob(&step_at[1], id);
}

static void test_step_at(void **state)
{
	u64 action = action__new("[Strategy]S.training_step"), id;

	action__next(action, SP);
	id = latin_id("[Strategy]S.training_step");
	job__stop();
	job__start(12);
	set_step_at(id);
	for (u64 i = 1; i <= 4; i++) {
		action = action__new("[Strategy]S.training_step");
		action__next(action, SP);
		data();
		optimizer(OPTIMIZER_LABEL); /* what any other rule would take */
		expect_steps(i > 1 ? STEP_USER : STEP_NONE, i - 1);
		action__next(action, SP);
		expect_steps(STEP_USER, i);
	}
	/* a function of the user's; one that an exception leaves has not ended */
	set_step_at(FN_ID(FN_FIRST));
	for (u64 i = 5; i <= 8; i++) {
		fn__enter(FN_FIRST, FRAME(1));
		label__run(DATA_LABEL, 10, FRAME(2));
		fn__exit(FN_FIRST, FRAME(1));
		expect_steps(STEP_USER, i);
		fn__enter(FN_FIRST, FRAME(1));
		hit(PROBE_LABEL_END, 0, SP, 0, 1, 0);
		expect_steps(STEP_USER, i);
	}
	set_step_at(FIXED_ID(FORWARD));
	data();
	fn__enter(FN_BACKWARD, FRAME(1));
	expect_steps(STEP_USER, 9);
	fn__exit(FN_BACKWARD, FRAME(1));
	expect_steps(STEP_USER, 9);
	set_step_at(0);
}

/* Names that only look alike. */
static void test_other_labels(void **state)
{
	static const char *const labels[] = {"Optimizer",
					     "Optimizer.",
					     "Optimizer.load_state_dict",
					     "Optimizer step",
					     "enumerate(Data",
					     "enumerate(list)",
					     "ProfilerStep",
					     "ProfilerStop#1",
					     "Profile",
					     "optimizer.step#SGD.step",
					     ""};

	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
		label__run(labels[i], 5, SP);
	assert_int_equal(job.proc->steps.rule, STEP_NONE);
	assert_int_equal(job.proc->steps.data_seen, 0);
	assert_int_equal(job__thread()->gap_ns, 0);
	/* "ProfilerSto" after it must not be read with the rest of a longer name that was there before */
	label__run("ProfilerStep#1", 5, SP);
	label__run("Profiler", 5, SP);
	assert_int_equal(job.proc->steps.cnt, 1);
	assert_int_equal(native_map__cnt(&aggs), sizeof(labels) / sizeof(labels[0]) + 2);
}

/* ---- windows ---- */

static void test_window(void **state)
{
	u64 opened = 0;

	native__set_knob(&step_limit, 3);
	job.proc->window = WINDOW_WAITING;
	for (int i = 1; i <= 8; i++) {
		data();
		backward(5, SP);
		optimizer(OPTIMIZER_LABEL);
		if (i == 1)
			assert_int_equal(job.proc->window, WINDOW_WAITING); /* the rule has not held for a step yet */
		if (i == 2) {
			opened = native.now_ns;
			assert_int_equal(job.proc->window, WINDOW_OPEN);
			assert_int_equal(job.proc->window_start_ns, opened);
			assert_int_equal(native_map__cnt(&aggs), 0);
		}
		if (i == 5) {
			assert_int_equal(job.proc->window, WINDOW_DONE);
			assert_int_equal(job.proc->window_end_ns, native.now_ns);
		}
	}
	assert_int_equal(job.proc->steps.cnt, 3);
	/* exactly three, and in them no less than all of the window: the one ns after each landmark is in no span */
	expect_row(SPAN_LABEL, utf8_id(DATA_LABEL), 0, 3, 30, 30);
	expect_row(SPAN_LABEL, utf8_id(OPTIMIZER_LABEL), 0, 3, 12, 12);
	expect_row(SPAN_BACKWARD, FIXED_ID(BACKWARD), 0, 3, 15, 15);
	expect_row(SPAN_FORWARD, FIXED_ID(FORWARD), 0, 3, 0, 0);
	assert_int_equal(job.proc->window_end_ns - opened, self_sum() + 3 * 2);
	expect_counters(CNT__COUNT);
}

/* A better rule that shows while the window waits: it waits for that one. */
static void test_window_better_rule(void **state)
{
	native__set_knob(&step_limit, 2);
	job.proc->window = WINDOW_WAITING;
	optimizer(OPTIMIZER_LABEL);
	data();
	optimizer(OPTIMIZER_LABEL);
	assert_int_equal(job.proc->window, WINDOW_WAITING);
	assert_int_equal(job.proc->steps.rule, STEP_LOADER_OPTIMIZER);
	optimizer(OPTIMIZER_LABEL);
	assert_int_equal(job.proc->window, WINDOW_WAITING);
	data();
	optimizer(OPTIMIZER_LABEL);
	assert_int_equal(job.proc->window, WINDOW_OPEN);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(job.proc->steps.cnt, i);
		data();
		optimizer(OPTIMIZER_LABEL);
	}
	assert_int_equal(job.proc->window, WINDOW_DONE);
	assert_int_equal(row(SPAN_LABEL, utf8_id(DATA_LABEL), 0)->calls, 2);
}

/* A span that is open when the window opens is not counted, one inside of it is. */
static void test_window_inside_span(void **state)
{
	u64 epoch = action__new("epoch");

	native__set_knob(&step_limit, 1);
	job.proc->window = WINDOW_WAITING;
	action__next(epoch, SP);
	for (int i = 0; i < 3; i++) {
		data();
		optimizer(OPTIMIZER_LABEL);
	}
	action__next(epoch, SP);
	assert_int_equal(job.proc->window, WINDOW_DONE);
	assert_null(row(SPAN_ACTION, latin_id("epoch"), 0));
	expect_row(SPAN_LABEL, utf8_id(DATA_LABEL), latin_id("epoch"), 1, 10, 10);
}

static void test_no_limit(void **state)
{
	for (int i = 0; i < 1000; i++) {
		data();
		optimizer(OPTIMIZER_LABEL);
	}
	assert_int_equal(job.proc->window, WINDOW_OPEN);
	assert_int_equal(job.proc->steps.cnt, 1000);
}

#define BATCHES 1000000
static u32 ahead, below;

/* A batch comes, and the thread asks twice: there are hardly ever more than one. */
static void *take_batches(void *taken)
{
	struct thread thread = {0};

	for (u32 i = 0; i < BATCHES; i++) {
		__sync_fetch_and_add(&ahead, 1);
		*(u32 *)taken += step__takes_batch(&thread, DATA_FOR_BACKWARD, &ahead);
		*(u32 *)taken += step__takes_batch(&thread, DATA_FOR_BACKWARD, &ahead);
		if (*(volatile u32 *)&ahead > 2 * BATCHES)
			__sync_fetch_and_add(&below, 1);
	}
	return NULL;
}

/* Two threads that train never take the same batch of a third one. */
static void test_batches_of_two(void **state)
{
	u32 taken[2] = {0};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_batches, &taken[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(below, 0);
	assert_int_equal(taken[0] + taken[1] + ahead, 2 * BATCHES);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(lightning),
		TEST(lightning_and_plain),
		TEST(loader_optimizer),
		TEST(gradient_accumulation),
		TEST(gan),
		TEST(batches_of_another_thread),
		TEST(batches_of_two),
		TEST(bursts_of_two_optimizers),
		TEST(validation),
		TEST(optimizer_alone),
		TEST(optimizers_of_one_backward),
		TEST(another_optimizer),
		TEST(optimizers_inside_backward),
		TEST(profiler_step),
		TEST(backward_alone),
		TEST(backward_of_batches),
		TEST(loader_alone),
		TEST(no_false_steps),
		TEST(usual_length),
		TEST(step_at),
		TEST(other_labels),
		TEST(window),
		TEST(window_better_rule),
		TEST(window_inside_span),
		TEST(no_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
