/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a step's time was spent in (bpf/phase.h, include/phases.h). */
#include "native/job.h"

#define SP STACK

enum { F = FN_FIRST, COMM, SAVE };

static int phases_setup(void **state)
{
	setup(state);
	native__set_knob(&want_step_times, 1);
	native__set_knob(&step_at[0], 0);
	job__set_fn(COMM, FN_ID(COMM), SPAN_COMM);
	job__set_fn(SAVE, FN_ID(SAVE), SPAN_SAVE);
	return 0;
}

static void label(const char *text, u64 ns)
{
	label__run(text, ns, SP);
}

/* One by one, ended by PHASE__COUNT: phase, ns, ... of the step that ended last; what is not named is 0. */
static void expect_phases(int first, ...)
{
	u64 expected[PHASE__COUNT] = {0}, sum = 0;
	const struct rec_step *before = NULL, *step = NULL;
	va_list args;

	va_start(args, first);
	for (int phase = first; phase != PHASE__COUNT; phase = va_arg(args, int))
		expected[phase] = (u64)va_arg(args, int);
	va_end(args);
	for (u32 n = 0; record(REC_STEP, n); n++) {
		before = step;
		step = record(REC_STEP, n);
	}
	assert_non_null(step);
	for (u32 phase = 0; phase < PHASE__COUNT; phase++) {
		if (step->phase_ns[phase] != expected[phase])
			print_message("  phase %u\n", phase);
		assert_int_equal(step->phase_ns[phase], expected[phase]);
		sum += expected[phase];
	}
	if (sum && before)
		assert_int_equal(sum, step->time_ns - before->time_ns);
}

#define NOTHING PHASE__COUNT

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
	expect_phases(NOTHING); /* when it began is not known */
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
	static const int minors[] = {8, 10, 11, 12, 13, 14};
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

/* Boundaries of two threads: what one did since the other's is not all of a step. */
static void test_threads(void **state)
{
	plain_step();
	plain_step();
	native.task = &job.thread;
	plain_step();
	expect_phases(NOTHING);
	plain_step();
	expect_phases(PHASE_OTHER, 4, PHASE_DATA, 10, PHASE_FORWARD, 25, PHASE_OPTIMIZER, 6, PHASE_BACKWARD, 30,
		      NOTHING);
	native.task = &job.task;
	plain_step();
	expect_phases(NOTHING);
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

/* ---- Lightning ---- */

static void action_begin(u64 *gen, const char *name)
{
	*gen = action__new(name);
	action__next(*gen, SP);
}

static void action(const char *name, u64 ns)
{
	u64 gen;

	action_begin(&gen, name);
	wait_ns(ns);
	action__next(gen, SP);
}

/* next() on a CombinedLoader in that file of Lightning's, called by the next one. */
static void fetch(const char *file, const char *caller, u64 ns)
{
	char path[128];
	u64 outer, code;

	snprintf(path, sizeof(path), "/lightning/pytorch/loops/%s", caller);
	outer = fakepy__frame(&job.py, fakepy__code(&job.py, path, "run"), 0);
	snprintf(path, sizeof(path), "/lightning/pytorch/loops/%s", file);
	code = fakepy__code(&job.py, path, "advance");
	job.tstate_word = fakepy__tstate(&job.py, fakepy__frame(&job.py, code, outer));
	loader__next(fakepy__object(&job.py, "CombinedLoader"), FRAME(1));
	label__run(DATA_LABEL, ns, FRAME(2));
	loader__exit(FRAME(1));
}

static void lightning_step(void)
{
	u64 batch, hook, gen;

	fetch("training_epoch_loop.py", "fit_loop.py", 10);
	action("[Strategy]S.batch_to_device", 2);
	action_begin(&batch, "run_training_batch");
	action("[Callback]ModelCheckpoint{'every': 1}.on_train_batch_start", 1);
	action_begin(&hook, "[LightningModule]M.optimizer_step");
	label__enter(OPTIMIZER_LABEL, 77, SP);
	wait_ns(3);
	action("[Strategy]S.training_step", 20);
	label(ZERO_LABEL, 2);
	wait_ns(1); /* of Optimizer.step: here training_step says where forward is */
	action_begin(&gen, "[Strategy]S.backward");
	wait_ns(4);
	backward(30, FRAME(1));
	action__next(gen, SP);
	action("[Callback]Mine.on_before_optimizer_step", 5);
	label__exit(77, SP);
	action__next(hook, SP);
	action__next(batch, SP);
}

#define LIGHTNING_STEP PHASE_FORWARD, 20, PHASE_BACKWARD, 34, PHASE_OPTIMIZER, 3 + 2 + 1 + 5

static int lightning_setup(void **state)
{
	u64 id;

	phases_setup(state);
	job.proc->profile_code = job.profile_code;
	action("run_training_batch", 1);
	id = latin_id("run_training_batch");
	job__stop();
	phases_setup(state);
	native__set_knob(&fixed_names[NAME_RUN_TRAINING_BATCH], id);
	lightning_step();
	return 0;
}

static void test_lightning(void **state)
{
	lightning_step();
	expect_phases(PHASE_OTHER, 1, PHASE_DATA, 12, LIGHTNING_STEP, NOTHING);
	action("[Callback]ModelCheckpoint{'every': 1}.on_train_batch_end", 40);
	action("[Callback]Other.on_train_batch_end", 50);
	lightning_step();
	expect_phases(PHASE_OTHER, 50 + 1, PHASE_DATA, 12, PHASE_CHECKPOINT, 40, LIGHTNING_STEP, NOTHING);
}

/* From the first of its actions to the last, whatever it does; but a checkpoint is one. */
static void evaluation(bool ends)
{
	action("[Callback]Mine.on_validation_start", 1);
	wait_ns(100);
	for (int i = 0; i < 2; i++) {
		fetch("evaluation_loop.py", "fit_loop.py", 10);
		wait_ns(2);
		action("[Strategy]S.batch_to_device", 3);
		action("[Callback]Mine.on_validation_batch_start", 4);
		action("[Strategy]S.validation_step", 50);
	}
	action("[Callback]ModelCheckpoint{'every': 1}.on_validation_end", 70);
	if (ends)
		action("[Strategy]S.on_validation_end", 5);
}

#define EVALUATION (1 + 100 + 2 * (10 + 2 + 3 + 4 + 50))

static void test_evaluation(void **state)
{
	u64 epoch;

	for (int inside = 0; inside < 2; inside++) {
		if (inside)
			action_begin(&epoch, "run_training_epoch");
		lightning_step();
		wait_ns(6);
		evaluation(true);
		wait_ns(7); /* other again */
		lightning_step();
		expect_phases(PHASE_OTHER, 6 + 7 + 1, PHASE_DATA, 12, PHASE_VALIDATION, EVALUATION + 5,
			      PHASE_CHECKPOINT, 70, LIGHTNING_STEP, NOTHING);
	}
	/* an exception left it: training goes on with the next batch, or where the epoch has ended */
	evaluation(false);
	wait_ns(7);
	lightning_step();
	expect_phases(PHASE_OTHER, 1, PHASE_DATA, 12, PHASE_VALIDATION, EVALUATION + 7, PHASE_CHECKPOINT, 70,
		      LIGHTNING_STEP, NOTHING);
	evaluation(false);
	action__throw(epoch, SP);
	wait_ns(7);
	lightning_step();
	expect_phases(PHASE_OTHER, 7 + 1, PHASE_DATA, 12, PHASE_VALIDATION, EVALUATION, PHASE_CHECKPOINT, 70,
		      LIGHTNING_STEP, NOTHING);
	assert_int_equal(job__thread()->evaluation, 0);
}

/* Lightning's profiler for torch labels each action, and the label ends a moment later. */
static void test_outlived(void **state)
{
	u64 gen;

	action_begin(&gen, "[Strategy]S.training_step");
	label__enter("[pl][profile]training_step", 77, SP);
	wait_ns(10);
	action__next(gen, SP);
	wait_ns(1);
	label__exit(77, SP);
	lightning_step();
	expect_phases(PHASE_OTHER, 1 + 1, PHASE_DATA, 12, PHASE_FORWARD, 10 + 20, PHASE_BACKWARD, 34, PHASE_OPTIMIZER,
		      3 + 2 + 1 + 5, NOTHING);
}

/* ---- names ---- */

static enum phase phase_of(const char *name)
{
	char padded[128] = {0};
	size_t bytes = strlen(name);
	u64 head[2], tail[2];

	memcpy(padded + 16, name, bytes);
	memcpy(head, padded + 16, sizeof(head));
	memcpy(tail, padded + bytes, sizeof(tail));
	return phase__of_action(head, tail);
}

static void test_names(void **state)
{
	static const struct {
		const char *name;
		enum phase phase;
	} names[] = {
		{"[_TrainingEpochLoop].train_dataloader_next", PHASE_DATA},
		{"[LightningDataModule]D.on_before_batch_transfer", PHASE_DATA},
		{"[LightningModule]M.on_after_batch_transfer", PHASE_DATA},
		{"[LightningModule]M.transfer_batch_to_device", PHASE_DATA},
		{"[Strategy]DDPStrategy.training_step", PHASE_FORWARD},
		{"[Strategy]DDPStrategy.backward", PHASE_BACKWARD},
		{"[Callback]C.on_before_backward", PHASE_OTHER},
		{"[Callback]C.on_after_backward", PHASE_OTHER},
		{"backward", PHASE_OTHER},
		{"[LightningModule]M.optimizer_step", PHASE_OPTIMIZER},
		{"[LightningModule]M.lr_scheduler_step", PHASE_OPTIMIZER},
		{"[LightningModule]M.configure_gradient_clipping", PHASE_OPTIMIZER},
		{"[Callback]C.on_before_zero_grad", PHASE_OPTIMIZER},
		{"save_checkpoint", PHASE_CHECKPOINT},
		{"[Callback]C.on_save_checkpoint", PHASE_CHECKPOINT},
		{"[LightningModule]M.on_load_checkpoint", PHASE_OTHER},
		{"[Callback]ModelCheckpoint{'monitor': None}.on_train_epoch_end", PHASE_CHECKPOINT},
		{"[Callback]ModelCheckpoint{'monitor': None}.on_train_batch_start", PHASE_OTHER},
		{"[_EvaluationLoop].val_next", PHASE_VALIDATION},
		{"[_EvaluationLoop].test_next", PHASE_VALIDATION},
		{"[_PredictionLoop].predict_next", PHASE_VALIDATION},
		{"[Strategy]S.validation_step", PHASE_VALIDATION},
		{"[Strategy]S.test_step", PHASE_VALIDATION},
		{"[Strategy]S.predict_step", PHASE_VALIDATION},
		{"[LightningModule]M.on_validation_model_eval", PHASE_VALIDATION},
		{"[Callback]C.on_predict_start", PHASE_VALIDATION},
		{"[Callback]C.on_train_start", PHASE_OTHER},
		{"[Callback]C.on_train_batch_end", PHASE_OTHER},
		{"run_training_batch", PHASE_OTHER},
		{"run_training_epoch", PHASE_OTHER},
		{"training_steps", PHASE_OTHER},
		{"checkpoint", PHASE_OTHER},
		{"step", PHASE_OTHER},
		{"", PHASE_OTHER},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (phase_of(names[i].name) != names[i].phase)
			print_message("  %s\n", names[i].name);
		assert_int_equal(phase_of(names[i].name), names[i].phase);
		/* and as BPF reads it, behind a longer one */
		u64 outer, inner;

		action_begin(&outer, "[Callback]Longer than the others, with nothing in it that has a phase");
		action_begin(&inner, names[i].name);
		if (*names[i].name)
			assert_int_equal(job__thread()->phase, names[i].phase);
		action__next(inner, SP);
		action__next(outer, SP);
		assert_int_equal(job__thread()->phase, PHASE_OTHER);
	}
}

int main(void)
{
#define TEST(name)           cmocka_unit_test_setup_teardown(test_##name, phases_setup, teardown)
#define TEST_LIGHTNING(name) cmocka_unit_test_setup_teardown(test_##name, lightning_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(plain),
		TEST(evaluations),
		TEST(no_evaluations),
		TEST(fetching_thread),
		TEST(evaluation_of_steps),
		TEST(inference),
		TEST(inner),
		TEST(closure),
		TEST(exception),
		TEST(threads),
		TEST(save),
		TEST_LIGHTNING(lightning),
		TEST_LIGHTNING(evaluation),
		TEST_LIGHTNING(outlived),
		TEST(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
