/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading CPython (bpf/python.h, bpf/actions.h) in images of every version of the table: generators, names of all
 * kinds, chains of frames; and in broken ones, where a wrong pointer must be a counter. Each test runs for each
 * version. Real interpreters: test_live.c.
 */
#include "tests/bpf/native/job.h"

#include <stdarg.h>

#define SP    STACK
#define TESTS 8
#define LIB   "/opt/venv/lib/python3/site-packages/"
#define LOOPS LIB "lightning/pytorch/loops/"

static const int minors[] = {8, 9, 10, 11, 12, 13, 14, 15};
#define MINORS (sizeof(minors) / sizeof(minors[0]))

static int setup_minor(void **state)
{
	job__start(*(const int *)*state);
	return 0;
}

/* A chain of frames, the innermost first: file, name, ..., NULL. */
static u64 chain(const char *file, ...)
{
	u64 codes[64], frame = 0;
	bool c_frames = job.py.py->frame_owner_c >= 0;
	va_list args;
	int cnt = 0;

	va_start(args, file);
	for (; file; file = va_arg(args, const char *))
		codes[cnt++] = fakepy__code(&job.py, file, va_arg(args, const char *));
	va_end(args);
	while (cnt--) {
		frame = fakepy__frame(&job.py, codes[cnt], frame);
		if (c_frames && cnt % 2)
			frame = fakepy__c_frame(&job.py, frame);
	}
	return frame;
}

/* ---- names ---- */

static void expect_action(u64 name, u32 encoding, const void *text, u64 bytes)
{
	u64 gen = fakepy__generator(&job.py, job.profile_code, name), cut = bytes > REC_NAME_MAX, id;

	native__empty_ring();
	action__next(gen, SP);
	assert_int_equal(depth(), 1);
	wait_ns(5);
	action__next(gen, SP);
	assert_int_equal(names_sent(encoding, text, cut ? REC_NAME_MAX : bytes, &id), 1);
	expect_row(SPAN_ACTION, id, 0, 1, 5, 5);
	for (size_t at = 0; at < native.ring_bytes; at += ((struct rec_hdr *)(native.ring + at))->size) {
		const struct rec_name *rec = (const struct rec_name *)(native.ring + at);

		if (rec->hdr.type == REC_NAME)
			assert_int_equal(rec->cut, cut);
	}
	assert_int_equal(counter(CNT_NAME_CUT), cut);
	bpf_map_delete_elem(&counters, &(u32){CNT_NAME_CUT});
	expect_counters(CNT__COUNT);
}

static void test_names(void **state)
{
	static const u16 ucs2[] = {'[', 0x4e2d, 0x6587, ']', 0xe9};
	static const u32 ucs4[] = {0x1f525, 'x', 0x10ffff};
	u32 wide[600];
	u16 half[600];
	char text[600];

	expect_action(fakepy__text(&job.py, "[Strategy]SingleDevice.training_step"), NAME_LATIN1,
		      "[Strategy]SingleDevice.training_step", 36);
	expect_action(fakepy__text(&job.py, ""), NAME_LATIN1, "", 0);
	expect_action(fakepy__str(&job.py, 1, false, "\xe9tape", 5), NAME_LATIN1, "\xe9tape", 5);
	expect_action(fakepy__str(&job.py, 2, false, ucs2, 5), NAME_UCS2, ucs2, sizeof(ucs2));
	expect_action(fakepy__str(&job.py, 4, false, ucs4, 3), NAME_UCS4, ucs4, sizeof(ucs4));
	for (u32 i = 0; i < 600; i++) {
		text[i] = 'a' + i % 26;
		half[i] = 0x4e00 + i;
		wide[i] = 0x1f300 + i;
	}
	expect_action(fakepy__str(&job.py, 1, true, text, 511), NAME_LATIN1, text, 511);
	expect_action(fakepy__str(&job.py, 1, true, text, 512), NAME_LATIN1, text, 512);
	expect_action(fakepy__str(&job.py, 1, true, text + 1, 513), NAME_LATIN1, text + 1, 513);
	expect_action(fakepy__str(&job.py, 2, false, half, 256), NAME_UCS2, half, 512);
	expect_action(fakepy__str(&job.py, 2, false, half + 1, 599), NAME_UCS2, half + 1, 1198);
	expect_action(fakepy__str(&job.py, 4, false, wide, 600), NAME_UCS4, wide, 2400);
}

/* A str that is none: counted, and no span. */
static void expect_no_name(u64 name)
{
	u64 lost = counter(CNT_NAME_LOST), calls = native_map__cnt(&aggs);

	action__next(fakepy__generator(&job.py, job.profile_code, name), SP);
	assert_int_equal(depth(), 0);
	assert_int_equal(counter(CNT_NAME_LOST), lost + 1);
	assert_int_equal(native_map__cnt(&aggs), calls);
}

static void test_no_names(void **state)
{
	const struct py_layout *py = job.py.py;
	static const u64 lengths[] = {(1 << 20) + 1, 1ULL << 40, ~0ULL, 1ULL << 63};
	u64 name;

	expect_no_name(0);
	expect_no_name(FAKEPY_NO_ADDRESS);
	expect_no_name(~0ULL);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		name = fakepy__text(&job.py, "a name");
		fakepy__put(name + py->str_length, lengths[i], 8);
		expect_no_name(name);
	}
	for (u32 kind = 0; kind < 8; kind++) {
		if (kind == 1 || kind == 2 || kind == 4)
			continue;
		name = fakepy__text(&job.py, "a name");
		fakepy__put(name + py->str_state, kind << py->str_kind_shift | 1u << py->str_compact_shift, 4);
		expect_no_name(name);
	}
	name = fakepy__text(&job.py, "not compact");
	fakepy__put(name + py->str_state, 1u << py->str_kind_shift, 4);
	expect_no_name(name);
	/* the text reaches beyond what is mapped */
	name = (u64)job.py.base + FAKEPY_BYTES - py->str_ascii_data - 16;
	memcpy((void *)name, (void *)fakepy__text(&job.py, "0123456789abcdefghij"), py->str_ascii_data + 16);
	expect_no_name(name);
	fakepy__put(name + py->str_length, 16, 8);
	action__next(fakepy__generator(&job.py, job.profile_code, name), SP);
	assert_int_equal(depth(), 1);
	assert_int_equal(job__thread()->spans[0].name, latin_id("0123456789abcdef"));
}

/* ---- whose generator ---- */

static bool is_action(u64 file, const char *function)
{
	u64 gen = fakepy__generator(&job.py, fakepy__code_of(&job.py, file, fakepy__text(&job.py, function)),
				    fakepy__text(&job.py, "an action"));
	bool begun;

	job.proc->landmarks.profile_code = 0;
	action__next(gen, SP);
	begun = depth() == 1;
	if (begun)
		action__throw(gen, SP);
	assert_int_equal(depth(), 0);
	return begun;
}

static bool is_action_of(const char *file, const char *function)
{
	return is_action(fakepy__text(&job.py, file), function);
}

static void test_generators(void **state)
{
	static const char own[] = LIB "lightning/pytorch/profilers/profiler.py";
	static const char latin[] = "/home/Andr\xe9/venv/lightning/pytorch/profilers/profiler.py";
	u64 gen, idle;

	assert_true(is_action_of(own, "profile"));
	assert_true(is_action_of(LIB "pytorch_lightning/profiler/profiler.py", "profile"));
	assert_true(is_action_of(LIB "pytorch_lightning/profiler/base.py", "profile"));
	assert_true(is_action(fakepy__str(&job.py, 1, false, latin, sizeof(latin) - 1), "profile"));
	assert_true(is_action(fakepy__wide_text(&job.py, 2, 0x4e2d, own), "profile"));
	assert_true(is_action(fakepy__wide_text(&job.py, 4, 0x1f525, own), "profile"));
	expect_counters(CNT__COUNT);

	idle = job.proc->landmarks.idle_hits;
	assert_false(is_action_of(own, "profil"));
	assert_false(is_action_of(own, "profiler"));
	assert_false(is_action_of(own, "start"));
	assert_false(is_action_of("/usr/lib/python3/contextlib.py", "profile"));
	assert_false(is_action_of("profiler.py", "profile"));
	assert_false(is_action(fakepy__wide_text(&job.py, 2, 0x4e2d, "/profilers/other.py"), "profile"));
	assert_int_equal(job.proc->landmarks.idle_hits, idle + 6);
	/* an argument of next() that is no generator, no object, or nothing */
	gen = fakepy__generator(&job.py, job.profile_code, fakepy__text(&job.py, "an action"));
	fakepy__put(gen + 8, job.py.gen_type + 8, 8);
	action__next(gen, SP);
	hit(PROBE_PY_NEXT, 0, SP, 0, 0, (u64) & (u64){FAKEPY_NO_ADDRESS});
	hit(PROBE_PY_NEXT, 0, SP, 0, 0, FAKEPY_NO_ADDRESS);
	assert_int_equal(job.proc->landmarks.idle_hits, idle + 9);
	/* one that has no code, or in old versions no frame, before Profiler.profile was ever seen, and after */
	for (int i = 0; i < 2; i++) {
		job.proc->landmarks.profile_code = i ? job.profile_code : 0;
		gen = fakepy__generator(&job.py, 0, fakepy__text(&job.py, "an action"));
		action__next(gen, SP);
		action__throw(gen, SP);
	}
	if (!job.py.py->gen_embedded)
		fakepy__put(gen + job.py.py->gen_frame, 0, 8);
	hit(PROBE_PY_NEXT, 0, SP, 0, 0, (u64)&gen);
	assert_int_equal(job.proc->landmarks.idle_hits, idle + 12);
	assert_int_equal(native_map__cnt(&aggs), 1);
	expect_counters(CNT__COUNT);
}

/* ---- which fetch ---- */

static int fetched(u64 frame)
{
	static const u64 loader_frame = SP - 512;
	u64 loader = fakepy__object(&job.py, "CombinedLoader"), name;
	struct thread *t;

	fakepy__set_frame(&job.py, job.tstate_word, frame);
	loader__next(loader, loader_frame);
	t = job__thread();
	name = t->depth ? t->spans[0].name - FIXED_ID(TRAIN_NEXT) : ~0ULL;
	wait_ns(10);
	loader__exit(loader_frame);
	assert_int_equal(t->depth, 0);
	assert_int_equal(t->tstate, job.tstate_word);
	return (int)name;
}

#define FETCHERS LOOPS "fetchers.py"
#define TRAINER  LIB "lightning/pytorch/trainer/trainer.py"
#define UTILS    LIB "lightning/pytorch/loops/utilities.py"

static void test_fetches(void **state)
{
	job.tstate_word = fakepy__tstate(&job.py, 0);
	assert_int_equal(fetched(chain(FETCHERS, "__next__", LOOPS "training_epoch_loop.py", "advance",
				       LOOPS "fit_loop.py", "advance", TRAINER, "_run_stage", NULL)),
			 NAME_TRAIN_NEXT);
	/* through a loader of the user's, and an old Lightning */
	assert_int_equal(
		fetched(chain("/home/me/loader.py", "__next__", LIB "torch/utils/data/dataloader.py", "__next__",
			      LIB "pytorch_lightning/loops/epoch/training_epoch_loop.py", "advance", NULL)),
		NAME_TRAIN_NEXT);
	assert_int_equal(fetched(chain(FETCHERS, "__next__", LOOPS "evaluation_loop.py", "run", UTILS, "_decorator",
				       LOOPS "training_epoch_loop.py", "on_advance_end", NULL)),
			 NAME_VAL_NEXT);
	assert_int_equal(fetched(chain(FETCHERS, "__next__", LOOPS "evaluation_loop.py", "run", LOOPS "fit_loop.py",
				       "advance", NULL)),
			 NAME_VAL_NEXT);
	assert_int_equal(fetched(chain(FETCHERS, "__next__", LOOPS "evaluation_loop.py", "run", UTILS, "_decorator",
				       TRAINER, "_run_sanity_check", TRAINER, "_run_stage", NULL)),
			 NAME_VAL_NEXT);
	assert_int_equal(fetched(chain(FETCHERS, "__next__", LOOPS "evaluation_loop.py", "run", TRAINER, "_run_stage",
				       TRAINER, "_validate_impl", NULL)),
			 NAME_VAL_NEXT);
	assert_int_equal(fetched(chain(FETCHERS, "__next__", LOOPS "evaluation_loop.py", "run", TRAINER, "_run_stage",
				       TRAINER, "_test_impl", NULL)),
			 NAME_TEST_NEXT);
	assert_int_equal(
		fetched(chain(FETCHERS, "__next__", LOOPS "prediction_loop.py", "run", TRAINER, "_predict_impl", NULL)),
		NAME_PREDICT_NEXT);
	/* filling a prefetcher is no action of Lightning's */
	assert_int_equal(
		fetched(chain(FETCHERS, "__iter__", LOOPS "evaluation_loop.py", "run", TRAINER, "_test_impl", NULL)),
		-1);
	assert_int_equal(fetched(chain(FETCHERS, "__iter__", LOOPS "prediction_loop.py", "run", NULL)), -1);
	assert_int_equal(fetched(chain(FETCHERS, "__iter__", LOOPS "fit_loop.py", "advance", NULL)), -1);
	expect_counters(CNT__COUNT);
	/* a loop of the user's over a CombinedLoader */
	assert_int_equal(fetched(chain("/home/me/train.py", "main", "/home/me/train.py", "<module>", NULL)), -1);
	assert_int_equal(fetched(0), -1);
	expect_counters(CNT_FRAME_LOST, 2, CNT__COUNT);
}

static void test_deep(void **state)
{
	u64 user = fakepy__code(&job.py, "/home/me/a long enough name.py", "wrap"), frame;

	job.tstate_word = fakepy__tstate(&job.py, 0);
	frame = chain(LOOPS "training_epoch_loop.py", "advance", NULL);
	for (int i = 1; i <= PY_FRAMES + 1; i++) {
		frame = fakepy__frame(&job.py, user, frame);
		assert_int_equal(fetched(frame), i < PY_FRAMES ? NAME_TRAIN_NEXT : -1);
	}
	expect_counters(CNT_FRAME_LOST, 2, CNT__COUNT);
	/* frames in a circle */
	frame = fakepy__frame(&job.py, user, 0);
	fakepy__put(frame + job.py.py->frame_previous, frame, 8);
	native.reads = 0;
	assert_int_equal(fetched(frame), -1);
	assert_true(native.reads < PY_FRAMES * 16);
	expect_counters(CNT_FRAME_LOST, 3, CNT__COUNT);
}

/* The three places of the current thread state. */
static void test_thread_state(void **state)
{
	u64 frame = chain(LOOPS "training_epoch_loop.py", "advance", NULL);
	u64 tstate = fakepy__tstate(&job.py, frame), block[4] = {0, 0, 0, tstate}, dtv[16] = {0},
	    thread_pointer[4] = {0};

	job.tstate_word = tstate;
	job.proc->py.tstate_where = PY_TSTATE_TLS;
	job.proc->py.tstate_address = -8;
	job.task.thread.fsbase = (u64)&block[4];
	assert_int_equal(fetched(frame), NAME_TRAIN_NEXT);
	job.proc->py.tstate_where = PY_TSTATE_DTV;
	job.proc->py.tls_module = 3;
	job.proc->py.tstate_address = 16;
	thread_pointer[1] = (u64)dtv;
	dtv[6] = (u64)&block[1];
	job.task.thread.fsbase = (u64)thread_pointer;
	assert_int_equal(fetched(frame), NAME_TRAIN_NEXT);
	dtv[6] = ~0ULL; /* this thread has not used the module */
	job.tstate_word = 0;
	loader__next(fakepy__object(&job.py, "CombinedLoader"), SP);
	job.proc->py.tstate_where = PY_TSTATE_UNKNOWN;
	loader__next(fakepy__object(&job.py, "CombinedLoader"), SP);
	assert_int_equal(depth(), 0);
	expect_counters(CNT_FRAME_LOST, 2, CNT__COUNT);
	/* nor is a fetch begun where its end could not be seen yet */
	job.proc->py.tstate_where = PY_TSTATE_TLS;
	job.proc->py.tstate_address = -8;
	job.task.thread.fsbase = (u64)&block[4];
	for (u32 armed = 0; armed < 2; armed++) {
		struct pt_regs regs = {.sp = SP, .si = (u64)(u64[]){fakepy__object(&job.py, "CombinedLoader")}};

		job.proc->landmarks.fetches = armed;
		native.cookie = COOKIE(PROBE_PY_NEXT, COOKIE_LATE_FETCHES, 8, 32);
		probe(&regs);
		assert_int_equal(depth(), armed);
	}
	loader__exit(SP + 8 - 32);
	assert_int_equal(depth(), 0);
	job.proc->landmarks.idle_hits = 0;
	/* what is no CombinedLoader is idle, and not looked at further */
	loader__next(fakepy__object(&job.py, "CombinedLoaders"), SP);
	loader__next(fakepy__object(&job.py, "list_iterator"), SP);
	loader__next(FAKEPY_NO_ADDRESS, SP);
	assert_int_equal(job.proc->landmarks.idle_hits, 3);
	expect_counters(CNT_FRAME_LOST, 2, CNT__COUNT);
}

/* ---- Lightning's manual optimization ---- */

static u64 optimizer_steps(u64 frame)
{
	const struct agg_val *val;

	fakepy__set_frame(&job.py, job.tstate_word, frame);
	label__run(OPTIMIZER_LABEL, 10, SP);
	val = row(SPAN_ACTION, FIXED_ID(OPTIMIZER_STEP), 0);
	return val ? val->calls : 0;
}

#define TORCH_OPTIMIZER LIB "torch/optim/optimizer.py"

static void test_manual_step(void **state)
{
	u64 manual = chain(TORCH_OPTIMIZER, "wrapper", LIB "lightning/pytorch/core/optimizer.py", "step",
			   "/home/me/gan.py", "training_step", LOOPS "optimization/manual.py", "advance", NULL);
	u64 automatic = chain(TORCH_OPTIMIZER, "wrapper", LIB "lightning/pytorch/core/optimizer.py", "step",
			      LOOPS "optimization/automatic.py", "_optimizer_step", NULL);
	u64 bare = chain(TORCH_OPTIMIZER, "wrapper", "/home/me/gan.py", "training_step", LOOPS "optimization/manual.py",
			 "advance", NULL);

	job.tstate_word = fakepy__tstate(&job.py, 0);
	assert_int_equal(optimizer_steps(manual), 0); /* this thread's state is not known yet */
	action__next(action__new("x"), SP);
	action__throw(job__thread()->spans[0].token, SP);
	assert_int_equal(job__thread()->tstate, job.tstate_word);
	assert_int_equal(optimizer_steps(manual), 1);
	assert_int_equal(optimizer_steps(automatic), 1);
	assert_int_equal(optimizer_steps(bare), 1);
	assert_int_equal(optimizer_steps(0), 1);
	assert_int_equal(optimizer_steps(manual), 2);
	expect_row(SPAN_ACTION, FIXED_ID(OPTIMIZER_STEP), 0, 2, 20, 20);
	expect_row(SPAN_LABEL, utf8_id(OPTIMIZER_LABEL), 0, 6, 60, 60);
	/* an optimizer that calls another one's step, as ZeroRedundancyOptimizer does: one step */
	label__enter("Optimizer.step#Z.step", 77, SP);
	optimizer_steps(manual);
	label__exit(77, SP);
	assert_int_equal(row(SPAN_ACTION, FIXED_ID(OPTIMIZER_STEP), 0)->calls, 3);
	assert_null(row(SPAN_ACTION, FIXED_ID(OPTIMIZER_STEP), utf8_id("Optimizer.step#Z.step")));
	expect_counters(CNT__COUNT);
}

/* ---- broken images ---- */

static struct {
	u64 gen, loader, frame, words;
	u8 *image;
	size_t used;
} broken;

static void broken__start(void)
{
	broken.gen = action__new("an action");
	broken.loader = fakepy__object(&job.py, "CombinedLoader");
	broken.frame = chain(FETCHERS, "__next__", LIB "lightning/pytorch/core/optimizer.py", "step",
			     LOOPS "evaluation_loop.py", "run", TRAINER, "_test_impl", NULL);
	job.tstate_word = fakepy__tstate(&job.py, broken.frame);
	broken.used = job.py.used;
	broken.image = malloc(broken.used);
	memcpy(broken.image, job.py.base, broken.used);
}

static void broken__restore(void)
{
	memcpy(job.py.base, broken.image, broken.used);
	job.proc->landmarks.profile_code = 0;
}

static u64 losses(void)
{
	u64 sum = job.proc->landmarks.idle_hits;

	for (u32 id = 0; id < CNT__COUNT; id++)
		sum += counter(id);
	return sum;
}

/* All that reads Python, once; no event may take longer than a walk over all frames. */
static void broken__run(void)
{
	for (int event = 0; event < 5; event++) {
		native.reads = 0;
		switch (event) {
		case 0 ... 1:
			hit(PROBE_PY_NEXT, 0, SP, 0, 0, (u64)&broken.gen);
			break;
		case 2:
			hit(PROBE_PY_THROW, 0, SP, 0, broken.gen, 0);
			break;
		case 3:
			loader__next(broken.loader, SP);
			break;
		case 4:
			label__run(OPTIMIZER_LABEL, 1, SP);
			break;
		}
		assert_true(native.reads < 16 * (PY_FRAMES + 1));
		assert_true(depth() <= SPAN_DEPTH);
	}
	job__thread()->depth = 0;
}

/* Each pointer in turn leads nowhere: the right answer, or a loss that is counted; never another name. */
static void test_bad_pointers(void **state)
{
	static const u64 nowhere[] = {0, FAKEPY_NO_ADDRESS, ~0ULL, 1ULL << 63, 16};
	u64 name, base = (u64)job.py.base, lost, changed = 0;

	broken__start();
	action__next(broken.gen, SP);
	name = latin_id("an action");
	job__thread()->depth = 0;
	for (u64 at = 0; at < broken.used; at += 8) {
		u64 word = *(u64 *)(broken.image + at);

		if (word < base || word >= base + FAKEPY_BYTES)
			continue;
		for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
			broken__restore();
			fakepy__put(base + at, nowhere[i], 8);
			lost = losses();
			hit(PROBE_PY_NEXT, 0, SP, 0, 0, (u64)&broken.gen);
			assert_true(depth() ? job__thread()->spans[0].name == name : losses() > lost);
			changed += !depth();
			job__thread()->depth = 0;
			lost = losses();
			loader__next(broken.loader, SP);
			assert_true(depth() ? job__thread()->spans[0].name == FIXED_ID(TEST_NEXT) : losses() > lost);
			changed += !depth();
			job__thread()->depth = 0;
			broken__run();
		}
	}
	assert_true(changed > 40);
	free(broken.image);
}

/* Bytes at random, and pointers that lead to other objects, or back. */
static void test_bad_bytes(void **state)
{
	u64 seed = 1, base = (u64)job.py.base;

	broken__start();
	for (int i = 0; i < 4000; i++) {
		broken__restore();
		for (int k = 0; k < 1 + i % 8; k++) {
			u64 at;

			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			at = (seed >> 20) % (broken.used - 8);
			if (i % 2)
				job.py.base[at] ^= seed >> 50;
			else
				fakepy__put(base + (at & ~7ULL), base + (seed >> 33) % broken.used, 8);
		}
		broken__run();
		native__empty_ring();
	}
	free(broken.image);
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction function;
	} all[] = {
		{"names", test_names},
		{"no_names", test_no_names},
		{"generators", test_generators},
		{"fetches", test_fetches},
		{"deep", test_deep},
		{"thread_state", test_thread_state},
		{"manual_step", test_manual_step},
		{"bad_pointers", test_bad_pointers},
		{"bad_bytes", test_bad_bytes},
	};
	enum { CNT = sizeof(all) / sizeof(all[0]) };
	struct CMUnitTest tests[CNT * MINORS];
	char names_[CNT * MINORS][32];

	for (size_t i = 0; i < CNT * MINORS; i++) {
		snprintf(names_[i], sizeof(names_[i]), "%s 3.%d", all[i / MINORS].name, minors[i % MINORS]);
		tests[i] = (struct CMUnitTest){names_[i], all[i / MINORS].function, setup_minor, teardown,
					       (void *)&minors[i % MINORS]};
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
