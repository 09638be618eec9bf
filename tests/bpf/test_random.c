/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The probe program under random events. Well-formed ones are checked against a model: it lets time pass for whatever is open, where the
 * program subtracts what has ended. Hostile ones must not crash it, overflow its stack, or lose a span that no counter tells of.
 * STEPFLAME_SEED and STEPFLAME_EVENTS choose others, and more.
 */
#include "tests/bpf/native/job.h"
#include "tests/bpf/native/random.h"

/* ---- the model ---- */

#define MODEL_DEPTH (SPAN_DEPTH - 2)
#define MODEL_ROWS  4096

struct open {
	u32 kind;
	u64 name, token, frame, start_ns, self_ns;
	bool landmark;    /* its end is one */
	bool apart;       /* a zero_grad: its end is none between forward and backward */
	enum phase phase; /* PHASE_OTHER: as around it */
};

struct expected {
	struct agg_key key;
	struct agg_val val;
};

static struct {
	struct open open[MODEL_DEPTH];
	u32 depth;
	bool gap; /* forward may be running, since gap_ns, at gap_depth */
	u64 gap_ns, gap_self_ns, gap_apart_ns;
	u32 gap_depth;
	struct expected rows[MODEL_ROWS];
	u32 row_cnt;
	u64 counters[CNT__COUNT];
	u64 phase_ns[PHASE__COUNT], step_ns; /* since the last step boundary; 0: none yet */
	size_t ring_at;
	u32 step_cnt;
} model;

static void model__pass(u64 ns)
{
	native.now_ns += ns;
	if (model.depth)
		model.open[model.depth - 1].self_ns += ns;
	if (model.gap && model.depth == model.gap_depth)
		model.gap_self_ns += ns;
	for (u32 i = model.depth; i <= model.depth; i--)
		if (!i || model.open[i - 1].phase) {
			model.phase_ns[i ? model.open[i - 1].phase : PHASE_OTHER] += ns;
			break;
		}
}

/* The boundaries that were told of since the last call, of which there is one at most. */
static void model__steps(void)
{
	for (const struct rec_step *rec; model.ring_at < native.ring_bytes; model.ring_at += rec->hdr.size) {
		rec = (const void *)(native.ring + model.ring_at);
		if (rec->hdr.type != REC_STEP)
			continue;
		if (model.step_ns)
			assert_memory_equal(rec->phase_ns, model.phase_ns, sizeof(rec->phase_ns));
		memset(model.phase_ns, 0, sizeof(model.phase_ns));
		model.step_ns = rec->time_ns;
		assert_int_equal(rec->time_ns, native.now_ns);
		model.step_cnt++;
	}
}

static void model__add(u32 kind, u64 name, u32 at_depth, u64 start_ns, u64 self_ns)
{
	struct agg_key key = {.pid = JOB_PID, .kind = kind, .name = name};
	u64 total_ns = native.now_ns - start_ns - (kind == SPAN_FORWARD ? model.gap_apart_ns : 0);
	struct agg_val *val;
	u32 i = 0, bucket = 0;

	if (at_depth)
		key.parent = model.open[at_depth - 1].name;
	while (i < model.row_cnt && memcmp(&model.rows[i].key, &key, sizeof(key)))
		i++;
	assert_true(i < MODEL_ROWS);
	val = &model.rows[i].val;
	if (i == model.row_cnt) {
		model.row_cnt++;
		model.rows[i].key = key;
		*val = (struct agg_val){.min_ns = ~0ULL, .first_ns = start_ns};
	}
	while (bucket < AGG_BUCKETS - 1 && total_ns >= 2ULL << bucket)
		bucket++;
	val->hist[bucket]++;
	val->calls++;
	val->total_ns += total_ns;
	val->self_ns += self_ns;
	val->min_ns = total_ns < val->min_ns ? total_ns : val->min_ns;
	val->max_ns = total_ns > val->max_ns ? total_ns : val->max_ns;
	val->first_ns = start_ns < val->first_ns ? start_ns : val->first_ns;
}

static enum phase model__phase(void)
{
	for (u32 i = model.depth; i; i--)
		if (model.open[i - 1].phase)
			return model.open[i - 1].phase;
	return PHASE_OTHER;
}

static void model__landmark(void)
{
	model.gap = true;
	model.gap_ns = native.now_ns;
	model.gap_self_ns = model.gap_apart_ns = 0;
	model.gap_depth = model.depth;
}

/* Whatever is open from `depth` on is lost: its time is the enclosing span's. */
static void model__drop(u32 depth, u32 id)
{
	u64 self_ns = 0;

	for (u32 i = depth; i < model.depth; i++)
		self_ns += model.open[i].self_ns;
	model.counters[id] += model.depth - depth;
	model.depth = depth;
	if (depth)
		model.open[depth - 1].self_ns += self_ns;
	if (model.gap && depth == model.gap_depth)
		model.gap_self_ns += self_ns;
	if (depth < model.gap_depth)
		model.gap = false;
}

static void model__begin(struct open open)
{
	if (open.kind == SPAN_BACKWARD && model.gap) {
		model__add(SPAN_FORWARD, FIXED_ID(FORWARD), model.gap_depth, model.gap_ns, model.gap_self_ns);
		if (model.gap_depth)
			model.open[model.gap_depth - 1].self_ns -= model.gap_self_ns;
		model.gap = false;
	}
	open.start_ns = native.now_ns;
	model.open[model.depth++] = open;
}

/* A label of which only labels are inside: those go on. */
static bool model__crosses(u32 i)
{
	if (model.open[i].kind != SPAN_LABEL || model.depth - i - 1 > FREE_MAX)
		return false;
	for (u32 inner = i + 1; inner < model.depth; inner++)
		if (model.open[inner].kind != SPAN_LABEL)
			return false;
	return true;
}

static void model__end(u32 i)
{
	bool inside = model.gap && i < model.gap_depth;
	struct open open;

	if (!model__crosses(i))
		model__drop(i + 1, CNT_DROPPED_INNER);
	open = model.open[i];
	model.depth--;
	memmove(&model.open[i], &model.open[i + 1], (model.depth - i) * sizeof(open));
	model__add(open.kind, open.name, i, open.start_ns, open.self_ns);
	if (open.apart && model__phase() == PHASE_OTHER && model.gap && !inside) {
		if (model.gap_ns <= open.start_ns)
			model.gap_apart_ns += native.now_ns - open.start_ns;
	} else if (inside || open.landmark) {
		model__landmark();
	}
}

static bool compare_row(const void *key, void *value, void *arg)
{
	u32 i = 0;

	while (i < model.row_cnt && memcmp(&model.rows[i].key, key, sizeof(struct agg_key)))
		i++;
	assert_true(i < model.row_cnt);
	assert_memory_equal(value, &model.rows[i].val, sizeof(struct agg_val));
	(void)arg;
	return true;
}

static void model__compare(void)
{
	native_map__each(&aggs, compare_row, NULL);
	assert_int_equal(native_map__cnt(&aggs), model.row_cnt);
	for (u32 id = 0; id < CNT__COUNT; id++)
		assert_int_equal(counter(id), model.counters[id]);
	assert_int_equal(job__thread()->depth, model.depth);
}

/* ---- a well-formed program ---- */

#define ACTION_CNT 8
#define LABEL_CNT  7

static const struct {
	const char *text;
	enum phase phase;
} action_names[ACTION_CNT] = {
	{"[Callback]number_0", PHASE_OTHER},      {"[Callback]number_1", PHASE_OTHER},
	{"[Callback]number_2", PHASE_OTHER},      {"[Strategy]S.training_step", PHASE_FORWARD},
	{"[Strategy]S.backward", PHASE_BACKWARD}, {"[LightningModule]M.optimizer_step", PHASE_OPTIMIZER},
	{"save_checkpoint", PHASE_CHECKPOINT},    {"[Callback]number_7", PHASE_OTHER},
};
static const enum phase label_phases[LABEL_CNT] = {PHASE_DATA, PHASE_OPTIMIZER, PHASE_OPTIMIZER};

static const char *const label_texts[LABEL_CNT] = {
	DATA_LABEL, OPTIMIZER_LABEL, ZERO_LABEL, "model", "loss", "a longer label of the user's, with \xc3\xa9", "x"};

static struct {
	u64 gens[MODEL_DEPTH]; /* one for each depth */
	u64 gen_names[ACTION_CNT], action_ids[ACTION_CNT], label_ids[LABEL_CNT];
	u64 loader;
	u64 plain_gen;
	u64 handle; /* of the last label */
} program;

/* Where the native stack is when so many spans are open. */
static u64 position(u32 depth)
{
	return STACK - 4096ul * (depth + 1);
}

static void program__start(void)
{
	u64 other = fakepy__code(&job.py, "/opt/venv/lib/python3/contextlib.py", "profile"), code;

	memset(&model, 0, sizeof(model));
	for (u32 i = 0; i < ACTION_CNT; i++)
		program.gen_names[i] = fakepy__text(&job.py, action_names[i].text);
	for (u32 i = 0; i < MODEL_DEPTH; i++)
		program.gens[i] = fakepy__generator(&job.py, job.profile_code, program.gen_names[0]);
	program.plain_gen = fakepy__generator(&job.py, other, program.gen_names[0]);
	program.loader = fakepy__object(&job.py, "CombinedLoader");
	code = fakepy__code(&job.py, "/opt/venv/lightning/pytorch/loops/training_epoch_loop.py", "advance");
	job.tstate_word = fakepy__tstate(&job.py, fakepy__frame(&job.py, code, 0));
	/* each name once, outside of the window, to learn its id */
	job.proc->window_start_ns = native.now_ns + 1;
	for (u32 i = 0; i < ACTION_CNT; i++) {
		fakepy__put(fakepy__gen_frame(&job.py, program.gens[0]) + job.py.py->frame_locals + 8,
			    program.gen_names[i], 8);
		fakepy__set_created(&job.py, program.gens[0], true);
		action__next(program.gens[0], position(0));
		action__next(program.gens[0], position(0));
		program.action_ids[i] = latin_id(action_names[i].text);
	}
	for (u32 i = LABEL_CNT - 1; i < LABEL_CNT; i--) {
		label__run(label_texts[i], 0, position(0));
		program.label_ids[i] = utf8_id(label_texts[i]);
	}
	native.now_ns++;
	job__thread()->gap_ns = 0;
}

static void program__begin(void)
{
	u32 d = model.depth, which;
	u64 sp = position(d), frame = sp - 8 * random_below(100);
	bool in_backward = false;

	for (u32 i = 0; i < d; i++)
		in_backward = in_backward || model.open[i].kind == SPAN_BACKWARD;
	switch (random_below(10)) {
	case 0 ... 2:
		which = random_below(ACTION_CNT);
		fakepy__put(fakepy__gen_frame(&job.py, program.gens[d]) + job.py.py->frame_locals + 8,
			    program.gen_names[which], 8);
		fakepy__set_created(&job.py, program.gens[d], true);
		action__next(program.gens[d], sp);
		model__begin((struct open){SPAN_ACTION, program.action_ids[which], .token = program.gens[d],
					   .phase = action_names[which].phase});
		break;
	case 3 ... 5:
		which = random_below(LABEL_CNT);
		program.handle += 16; /* no two open labels share one, although those that go on move down */
		label__enter(label_texts[which], program.handle, sp);
		model__begin((struct open){SPAN_LABEL, program.label_ids[which], .token = program.handle,
					   .landmark = which < 3, .apart = which == 2, .phase = label_phases[which]});
		break;
	case 6 ... 7:
		which = FN_FIRST + random_below(FN_CNT - FN_FIRST);
		fn__enter(which, frame);
		model__begin((struct open){SPAN_USER, FN_ID(which), .token = which, .frame = frame});
		break;
	case 8:
		loader__next(program.loader, frame);
		model__begin((struct open){SPAN_ACTION, FIXED_ID(TRAIN_NEXT), .token = frame, .frame = frame,
					   .phase = PHASE_DATA});
		break;
	case 9:
		fn__enter(FN_BACKWARD, frame);
		if (in_backward) {
			model__pass(random_below(50));
			fn__exit(FN_BACKWARD, frame);
		} else {
			model__begin((struct open){SPAN_BACKWARD, FIXED_ID(BACKWARD), .token = FN_BACKWARD,
						   .frame = frame, .landmark = true, .phase = PHASE_BACKWARD});
		}
		break;
	}
}

static void program__end(u32 i)
{
	const struct open *open = &model.open[i];

	/* Its label would go on: test_span.c */
	if (open->kind == SPAN_ACTION && !open->frame && i + 1 < model.depth && model.open[i + 1].kind == SPAN_LABEL &&
	    (i + 2 == model.depth || model.open[i + 2].frame))
		return;
	if (open->kind == SPAN_LABEL)
		label__exit(open->token, position(i));
	else if (open->kind != SPAN_ACTION)
		fn__exit(open->token, open->frame);
	else if (open->frame)
		loader__exit(open->frame);
	else if (random_below(2))
		action__next(open->token, position(i));
	else
		action__throw(open->token, position(i));
	/* what is inside has lost its end: native functions and what they hold by the stack pointer, the rest by this end */
	for (u32 inner = i + 1; inner < model.depth; inner++) {
		if (model.open[inner].frame)
			model__drop(inner, CNT_UNWOUND);
	}
	model__end(i);
}

/* A C++ exception through the native function that is open at i, and the next thing seen of the thread is outside of it. */
static void program__unwind(u32 i)
{
	hit(PROBE_LABEL_END, 0, model.open[i].frame + 8, 0, 1, 0);
	model__drop(i, CNT_UNWOUND);
}

/* What means nothing. */
static void program__noise(void)
{
	u64 sp = position(model.depth), gen = program.gens[model.depth];

	switch (random_below(5)) {
	case 0:
		label__exit(3, sp);
		break;
	case 1:
		action__next(program.plain_gen, sp);
		break;
	case 2:
		fakepy__set_created(&job.py, gen, false);
		action__throw(gen, sp);
		model.counters[CNT_OPEN_AT_START]++;
		break;
	case 3:
		loader__next(program.plain_gen, sp - 64);
		loader__exit(sp - 64);
		break;
	case 4:
		hit(PROBE_LABEL_HANDLE, 0, sp - 16, sp, 5, 0);
		break;
	}
}

static void test_model(void **state)
{
	u64 events = environment("STEPFLAME_EVENTS", 200000), start_ns;

	native__set_knob(&want_step_times, 1);
	program__start();
	model.ring_at = native.ring_bytes;
	/* one action around all: the self times must add up to it */
	program.gen_names[ACTION_CNT - 1] = program.gen_names[0];
	fakepy__set_created(&job.py, program.gens[0], true);
	action__next(program.gens[0], position(0));
	model__begin((struct open){SPAN_ACTION, program.action_ids[ACTION_CNT - 1], .token = program.gens[0]});
	program.action_ids[ACTION_CNT - 1] = program.action_ids[0];
	start_ns = native.now_ns;
	for (u64 i = 0; i < events; i++) {
		u64 dice = random_below(100);
		u32 at = 1 + random_below(model.depth);

		model__pass(random_below(1ULL << random_below(20)));
		if (dice < 48 && model.depth < MODEL_DEPTH - 1)
			program__begin();
		else if (dice < 90 && model.depth > 1)
			program__end(model.depth - 1);
		else if (dice < 91 && at < model.depth)
			program__end(at);
		else if (dice < 93 && at < model.depth && model.open[at].frame)
			program__unwind(at);
		else
			program__noise();
		assert_int_equal(job__thread()->depth, model.depth);
		model__steps();
	}
	while (model.depth)
		program__end(model.depth - 1);
	model__compare();
	assert_int_equal(self_sum(), native.now_ns - start_ns);
	assert_int_equal(native_map__cnt(&names), ACTION_CNT + LABEL_CNT);
	assert_true(model.counters[CNT_UNWOUND] && model.counters[CNT_DROPPED_INNER]);
	assert_true(model.step_cnt > events / 200);
	print_message("  %u rows, %u hits, %u steps\n", model.row_cnt, (u32)job.proc->cost.hits, model.step_cnt);
}

/* ---- hostile ---- */

#define POOL 64

static u64 pool[POOL]; /* addresses and numbers that may mean something */

static u64 random_word(void)
{
	switch (random_below(16)) {
	case 0:
		return random_u64();
	case 1:
		return random_u64() >> random_below(64);
	case 2:
		return -random_below(4096);
	case 3:
		return STACK - random_below(1 << 14);
	case 4:
		return (u64)job.py.base + random_below(FAKEPY_BYTES + 64);
	default:
		return pool[random_below(POOL)];
	}
}

static void hostile__start(void)
{
	static u64 strings[LABEL_CNT][2];

	program__start();
	for (u32 i = 0; i < POOL; i++)
		pool[i] = program.gens[i % MODEL_DEPTH];
	for (u32 i = 0; i < LABEL_CNT; i++) {
		strings[i][0] = (u64)label_texts[i];
		strings[i][1] = strlen(label_texts[i]);
		pool[i] = (u64)strings[i];
	}
	for (u32 fn = 0; fn < FN_CNT + 2; fn++) {
		struct nvtx_site site = {
			.call = fn % (NVTX__COUNT + 1), .pointer = fn, .argument = {{.base = 7}, {.base = 6}}};

		bpf_map_update_elem(&nvtx_sites, &fn, &site, BPF_ANY);
	}
	pool[LABEL_CNT] = program.loader;
	pool[LABEL_CNT + 1] = job.tstate_word;
	pool[LABEL_CNT + 2] = FAKEPY_NO_ADDRESS;
	for (u32 i = 0; i < MODEL_DEPTH; i += 2) /* and arguments of next() */
		pool[LABEL_CNT + 3 + i / 2] = (u64)&program.gens[i];
}

/* The native stack grows most of the time, or nothing would ever nest. */
static u64 hostile__sp(void)
{
	static u64 sp = STACK;

	if (random_below(2000) == 0)
		return random_word();
	sp += random_below(200) ? -random_below(256) : random_below(1 << 15);
	if (sp > STACK || sp < STACK - (1 << 20))
		sp = STACK;
	return sp;
}

static void hostile__hit(void)
{
	enum probe_event event = random_below(20) ? 1 + random_below(PROBE_TEST) : random_u64();
	struct pt_regs regs = {.sp = hostile__sp(), .di = random_word(), .si = random_word(), .bp = random_word()};
	u32 where = random_below(1000) ? random_below(32) * 8 : random_u64();
	u32 fn = random_below(20) ? random_below(FN_CNT + 2) : random_u64();

	native.cookie = COOKIE(event, random_below(20) ? 0 : random_below(256), where, fn);
	native.task = random_below(10) ? &job.task : &job.thread;
	wait_ns(random_below(10) ? random_below(1000) : random_u64() >> (10 + random_below(50)));
	if (random_below(3) == 0)
		fakepy__set_created(&job.py, program.gens[random_below(MODEL_DEPTH)], true);
	native.reads = 0;
	probe(&regs);
	assert_true(native.reads <= 20 + PY_FRAMES * 16);
	assert_true(depth() <= SPAN_DEPTH);
}

static bool add_calls(const void *key, void *value, void *sum)
{
	const struct agg_key *k = key;

	if (k->kind != SPAN_FORWARD && k->name != FIXED_ID(OPTIMIZER_STEP))
		*(u64 *)sum += ((struct agg_val *)value)->calls;
	return true;
}

/* Without those that have ended under a label that goes on, and NVTX ranges without a name. */
static u32 spans_open(void)
{
	struct thread *t = job__thread();
	u32 cnt = 0;

	for (u32 i = 0; t && i < t->depth; i++)
		cnt += t->spans[i].kind != SPAN_NONE && t->spans[i].name;
	return cnt;
}

/* Spans that are known: open, ended, or lost and counted. */
static u64 spans_known(void)
{
	u64 sum = counter(CNT_UNWOUND) + counter(CNT_DROPPED_INNER) + counter(CNT_SPAN_REUSED) +
		  counter(CNT_NVTX_NOT_POPPED);

	native.task = &job.task;
	sum += spans_open();
	native.task = &job.thread;
	sum += spans_open();
	native_map__each(&aggs, add_calls, &sum);
	return sum;
}

/* Each hit begins one span or none, and none goes without a trace. */
static void test_adds_up(void **state)
{
	u64 events = environment("STEPFLAME_EVENTS", 200000) / 10, before, after, begun = 0;

	hostile__start();
	job.proc->window_start_ns = 0;
	before = spans_known();
	for (u64 i = 0; i < events; i++, before = after) {
		hostile__hit();
		after = spans_known();
		assert_true(after == before || after == before + 1);
		begun += after - before;
	}
	assert_true(begun > events / 50);
	assert_int_equal(counter(CNT_MAP_FULL), 0);
	print_message("  %u begun; stack full %u, unwound %u, dropped %u, reused %u, no name %u\n", (u32)begun,
		      (u32)counter(CNT_STACK_FULL), (u32)counter(CNT_UNWOUND), (u32)counter(CNT_DROPPED_INNER),
		      (u32)counter(CNT_SPAN_REUSED), (u32)counter(CNT_NAME_LOST));
}

/* Everything at once: broken objects, windows, no memory, no room, other layouts. Only that it holds. */
static void test_garbage(void **state)
{
	u64 events = environment("STEPFLAME_EVENTS", 200000);
	struct py_process py;
	u8 *image;

	hostile__start();
	py = job.proc->py;
	image = malloc(FAKEPY_BYTES);
	memcpy(image, job.py.base, FAKEPY_BYTES);
	for (u64 i = 0; i < events; i++) {
		switch (random_below(200)) {
		case 0:
			job.proc->window = random_below(WINDOW_DONE + 1);
			job.proc->window_start_ns = random_below(native.now_ns);
			job.proc->steps.cnt = 0;
			break;
		case 1:
			native.storage_failures = random_below(4);
			native.ring_full = random_below(2);
			break;
		case 2:
			native__set_knob(&step_limit, random_below(4));
			break;
		case 3:
			((u8 *)&job.proc->py)[random_below(sizeof(py))] = random_u64();
			break;
		case 4:
			job.proc->py = py;
			memcpy(job.py.base, image, FAKEPY_BYTES);
			native__empty_ring();
			break;
		case 5 ... 20:
			fakepy__put((u64)job.py.base + random_below(job.py.used - 8), random_word(),
				    1 + random_below(8));
			break;
		}
		job.proc->landmarks.profile_code = random_below(10) ? job.proc->landmarks.profile_code : random_word();
		if (job.proc->window == WINDOW_CLOSED || job.proc->window == WINDOW_DONE)
			job.proc->window = random_below(50) ? job.proc->window : WINDOW_OPEN;
		hostile__hit();
		if (native_map__cnt(&names) > NAMES_MAX / 2 || native.ring_bytes > 1 << 24)
			native__empty_ring();
	}
	free(image);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {TEST(model), TEST(adds_up), TEST(garbage)};

	seed = environment("STEPFLAME_SEED", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
