/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a step's time was spent in, where Lightning's actions tell (bpf/phase.h, include/phases.h). */
#include "tests/bpf/native/phases.h"

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
	job.proc->landmarks.profile_code = job.profile_code;
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
#define TEST(name, setup) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(lightning, lightning_setup),
		TEST(evaluation, lightning_setup),
		TEST(outlived, lightning_setup),
		TEST(names, phases_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
