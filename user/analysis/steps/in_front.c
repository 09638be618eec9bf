// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The loop is the innermost function that calls both the model and what follows it in a step,
 * backward and optimizer. The loop runs its instructions in their order: what it calls before its
 * first call of the model is in front, what it calls after its last of a step is behind. So it is
 * with the functions that call the loop, which are its spine.
 */
#include "user/analysis/steps/in_front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/stacks.h"

#define SAMPLES_MIN 4   /* of the model, and of what follows it */
#define HALF        0.5 /* of these samples must agree */
#define GOOD_PART   0.1 /* of all steps */
#define OFTEN       0.3 /* of the steps in which the most frequent call of the model was seen */

enum seen { SEEN_MODEL, SEEN_AFTER, SEEN__COUNT };

/* Calls that the loop, or a function of its spine, makes: the range of their instructions. */
struct calls_of {
	uint32_t code; /* the key */
	uint32_t first, last;
};

/* A call of the model from the loop. */
struct site {
	uint32_t offset; /* the key */
	uint32_t step_cnt;
	long last_step;
};

/* A call in front of the model: its time, and the parts of it in slow steps, in waits, and in waits for locks. */
struct call {
	struct frame frame; /* the key */
	uint64_t ns, slow_ns, wait_ns, lock_ns;
	bool plays; /* calls the model, or an environment of reinforcement learning */
};

struct front_search {
	struct job *job;
	const struct stacks *stacks;
	const struct by_thread *by_thread;
	const struct step_track *track;
	const struct steps *steps;
	const bool *is_plain;
	bool *is_model;              /* by code: the function through which a model is called */
	bool *is_environment;        /* by code: of gymnasium, or of gym */
	uint32_t *seen[SEEN__COUNT]; /* by stack: samples */
	uint64_t *votes;             /* by code */
	uint64_t cnt[SEEN__COUNT];
	uint32_t loop;    /* code; 0: not known */
	struct map sites; /* struct site */
	struct map spine; /* struct calls_of; the loop included */
	struct map calls; /* struct call */
};

/* Module.__call__ (torch 1.8 to 2.15), and calls of what torch.compile made. */
static bool is_model_call(const struct job *job, const struct code *code)
{
	const char *file = code->file ? job__name(job, code->file) : NULL;
	const char *name = code->name ? job__name(job, code->name) : NULL;

	return (compare__ends_with(file, "torch/nn/modules/module.py") && compare__ends_with(name, "_call_impl")) ||
	       compare__ends_with(file, "torch/_dynamo/eval_frame.py");
}

static bool is_environment(const struct job *job, const struct code *code)
{
	const char *file = code->file ? job__name(job, code->file) : NULL;

	return file && (strstr(file, "/gymnasium/") || strstr(file, "/gym/"));
}

static int prepare(struct front_search *f)
{
	size_t code_end = stacks__code_end(f->stacks), stack_end = stacks__stack_end(f->stacks);

	f->is_model = calloc(code_end + 1, sizeof(*f->is_model));
	f->is_environment = calloc(code_end + 1, sizeof(*f->is_environment));
	f->votes = calloc(code_end + 1, sizeof(*f->votes));
	for (int i = 0; i < SEEN__COUNT; i++)
		f->seen[i] = calloc(stack_end + 1, sizeof(**f->seen));
	if (!f->is_model || !f->is_environment || !f->votes || !f->seen[SEEN_MODEL] || !f->seen[SEEN_AFTER])
		return -ENOMEM;
	for (size_t i = 0; i < code_end; i++) {
		struct code code = stacks__code(f->stacks, i);

		f->is_model[i] = is_model_call(f->job, &code);
		f->is_environment[i] = is_environment(f->job, &code);
	}
	return 0;
}

/* Index of the outermost frame that calls the model; -1: none. */
static long model_frame(const struct front_search *f, const struct stack *stack)
{
	for (long i = (long)stack->cnt - 1; i >= 0; i--)
		if (f->is_model[stack->frames[i].code])
			return i;
	return -1;
}

static bool has_environment(const struct front_search *f, const struct stack *stack)
{
	for (uint32_t i = 0; i < stack->cnt; i++)
		if (f->is_environment[stack->frames[i].code])
			return true;
	return false;
}

/* Index of the innermost frame of a function, from `from` on outwards; -1: none. */
static long frame_of(const struct stack *stack, long from, uint32_t code)
{
	for (long i = from; i < (long)stack->cnt; i++)
		if (stack->frames[i].code == code)
			return i;
	return -1;
}

/* Calls fn for the samples of the track's thread that lie in its steps. */
static int each_sample(struct front_search *f, int (*fn)(struct front_search *f, const struct sample *s, long step))
{
	int err = 0;

	for (size_t i = 0; i < by_thread__cnt(f->by_thread, f->track->thread) && !err; i++) {
		struct sample s = by_thread__get(f->by_thread, f->track->thread, i);
		long step = step_track__at(f->track, s.time_ns);

		if (step >= 0 && s.stack)
			err = fn(f, &s, step);
	}
	return err;
}

static int count_seen(struct front_search *f, const struct sample *s, long step)
{
	enum phase phase = steps__phase(f->steps, s->path);
	enum seen seen = SEEN_AFTER;

	(void)step;
	if (f->is_plain[s->path]) {
		struct stack stack = stacks__stack(f->stacks, s->stack);

		if (model_frame(f, &stack) < 0)
			return 0;
		seen = SEEN_MODEL;
	} else if (phase != PHASE_BACKWARD && phase != PHASE_OPTIMIZER) {
		return 0;
	}
	f->seen[seen][s->stack]++;
	f->cnt[seen]++;
	return 0;
}

/* Votes for the functions on the stack, each once. */
static void vote_all(struct front_search *f, const struct stack *stack, uint32_t votes)
{
	for (long i = 0; i < (long)stack->cnt; i++)
		if (frame_of(stack, i + 1, stack->frames[i].code) < 0)
			f->votes[stack->frames[i].code] += votes;
}

/* The innermost function outside the model that half of what follows the model has, too; -1: none. */
static long loop_frame(const struct front_search *f, const struct stack *stack)
{
	for (long i = model_frame(f, stack) + 1; i > 0 && i < (long)stack->cnt; i++)
		if (f->votes[stack->frames[i].code] >= HALF * f->cnt[SEEN_AFTER])
			return i;
	return -1;
}

static int find_loop(struct front_search *f)
{
	size_t stack_end = stacks__stack_end(f->stacks), code_end = stacks__code_end(f->stacks);
	uint64_t *loops = calloc(code_end + 1, sizeof(*loops));

	if (!loops)
		return -ENOMEM;
	for (size_t i = 0; i < stack_end; i++) {
		struct stack stack = stacks__stack(f->stacks, i);

		if (f->seen[SEEN_AFTER][i])
			vote_all(f, &stack, f->seen[SEEN_AFTER][i]);
	}
	for (size_t i = 0; i < stack_end; i++) {
		struct stack stack = stacks__stack(f->stacks, i);
		long at = f->seen[SEEN_MODEL][i] ? loop_frame(f, &stack) : -1;

		if (at < 0)
			continue;
		loops[stack.frames[at].code] += f->seen[SEEN_MODEL][i];
		if (loops[stack.frames[at].code] >= HALF * f->cnt[SEEN_MODEL])
			f->loop = stack.frames[at].code;
	}
	free(loops);
	return 0;
}

static int add_calls(struct front_search *f, const struct frame *frame)
{
	struct calls_of *of = MAP_FIND(&f->spine, struct calls_of, &frame->code);

	if (!of) {
		of = MAP_ADD(&f->spine, struct calls_of, &frame->code);
		if (!of)
			return -ENOMEM;
		of->first = of->last = frame->offset;
	}
	of->first = frame->offset < of->first ? frame->offset : of->first;
	of->last = frame->offset > of->last ? frame->offset : of->last;
	return 0;
}

/* The loop's calls of the model, in how many steps each was seen, and what called the loop. */
static int add_site(struct front_search *f, const struct sample *s, long step)
{
	struct stack stack = stacks__stack(f->stacks, s->stack);
	long model = f->is_plain[s->path] ? model_frame(f, &stack) : -1;
	long at = model >= 0 ? frame_of(&stack, model + 1, f->loop) : -1;
	struct site *site;
	int err = 0;

	if (at < 0)
		return 0;
	site = MAP_FIND(&f->sites, struct site, &stack.frames[at].offset);
	if (!site) {
		site = MAP_ADD(&f->sites, struct site, &stack.frames[at].offset);
		if (!site)
			return -ENOMEM;
		site->last_step = -1;
	}
	site->step_cnt += site->last_step != step;
	site->last_step = step;
	for (long i = at + 1; i < (long)stack.cnt && !err; i++)
		if (stack.frames[i].code != f->loop)
			err = add_calls(f, &stack.frames[i]);
	return err;
}

/* The loop's own range: from its first frequent call of the model to its last call in a step. */
static int find_range(struct front_search *f)
{
	const struct site *sites = f->sites.items.items;
	uint32_t most = 0, first = UINT32_MAX;
	struct frame frame = {.code = f->loop};

	for (size_t i = 0; i < f->sites.items.cnt; i++)
		most = sites[i].step_cnt > most ? sites[i].step_cnt : most;
	for (size_t i = 0; i < f->sites.items.cnt; i++)
		if (sites[i].step_cnt >= OFTEN * most && sites[i].offset < first)
			first = sites[i].offset;
	frame.offset = first;
	if (add_calls(f, &frame))
		return -ENOMEM;
	for (size_t i = 0; i < stacks__stack_end(f->stacks); i++) {
		struct stack stack = stacks__stack(f->stacks, i);
		long at = f->seen[SEEN_AFTER][i] ? frame_of(&stack, 0, f->loop) : -1;

		if (at >= 0 && stack.frames[at].offset > first && add_calls(f, &stack.frames[at]))
			return -ENOMEM;
	}
	return 0;
}

/* The innermost frame of the spine, outside of the model; NULL: none. */
static const struct frame *spine_frame(const struct front_search *f, const struct stack *stack,
				       const struct calls_of **of)
{
	for (long i = model_frame(f, stack) + 1; i < (long)stack->cnt; i++) {
		*of = MAP_FIND(&f->spine, struct calls_of, &stack->frames[i].code);
		if (*of)
			return &stack->frames[i];
	}
	return NULL;
}

static int add_call(struct front_search *f, const struct sample *s, long step)
{
	struct stack stack = stacks__stack(f->stacks, s->stack);
	const struct calls_of *of;
	const struct frame *frame = f->is_plain[s->path] ? spine_frame(f, &stack, &of) : NULL;
	struct call *call;
	size_t slow;

	if (!frame || frame->offset >= of->first)
		return 0;
	call = MAP_FIND(&f->calls, struct call, frame) ?: MAP_ADD(&f->calls, struct call, frame);
	if (!call)
		return -ENOMEM;
	call->plays |= model_frame(f, &stack) >= 0 || has_environment(f, &stack);
	call->ns = saturating__add(call->ns, s->weight_ns);
	if (s->kind == SAMPLE_WAIT && s->cause != CAUSE_RUN_QUEUE)
		call->wait_ns = saturating__add(call->wait_ns, s->weight_ns);
	if (s->cause == CAUSE_LOCK || s->cause == CAUSE_GIL)
		call->lock_ns = saturating__add(call->lock_ns, s->weight_ns);
	slow = SEARCH(i, 0, f->track->slow_cnt, f->track->slow[i] < step);
	if (slow < f->track->slow_cnt && f->track->slow[slow] == step)
		call->slow_ns = saturating__add(call->slow_ns, s->weight_ns);
	return 0;
}

/* Whether all steps make the call, not only the slow ones. */
static bool is_in_all(const struct front_search *f, const struct call *call)
{
	double ordinary_cnt = f->track->step_cnt - f->track->slow_cnt;

	return (call->ns - call->slow_ns) / ordinary_cnt >= OFTEN * call->ns / f->track->step_cnt;
}

/*
 * Whether the call gets data: it waits, or takes a good part of the steps. One that
 * plays, or takes a lock, gets no data.
 */
static bool gets_data(const struct front_search *f, const struct call *call)
{
	return call && !call->plays && call->lock_ns < HALF * call->ns && is_in_all(f, call) &&
	       (call->wait_ns >= HALF * call->ns || call->ns >= GOOD_PART * f->track->total_ns);
}

/* A wait for what another thread hands over is a wait for data, however few steps it holds up. */
static enum phase phase_of_stack(const struct front_search *f, const struct stack *stack, bool hands_over)
{
	const struct calls_of *of;
	const struct frame *frame = model_frame(f, stack) < 0 ? spine_frame(f, stack, &of) : NULL;

	if (!frame || (frame->offset >= of->first && frame->offset <= of->last))
		return PHASE_FORWARD;
	return frame->offset < of->first && (hands_over || gets_data(f, MAP_FIND(&f->calls, struct call, frame)))
		       ? PHASE_DATA
		       : PHASE_OTHER;
}

static int classify(struct front_search *f, struct in_front *front)
{
	size_t stack_end = stacks__stack_end(f->stacks);

	front->phases = calloc(stack_end + 1, sizeof(*front->phases));
	for (size_t i = 0; front->phases && i < stack_end; i++) {
		struct stack stack = stacks__stack(f->stacks, i);

		front->phases[i] =
			phase_of_stack(f, &stack, samples__hands_over(f->by_thread->samples, i) == HANDOVER_CERTAIN);
	}
	return front->phases ? 0 : -ENOMEM;
}

static void share_cpu(struct front_search *f, struct in_front *front)
{
	uint64_t ns[PHASE__COUNT] = {0}, all = 0;

	for (size_t i = 0; i < by_thread__cnt(f->by_thread, f->track->thread); i++) {
		struct sample s = by_thread__get(f->by_thread, f->track->thread, i);

		if (s.kind != SAMPLE_CPU || !f->is_plain[s.path] || step_track__at(f->track, s.time_ns) < 0)
			continue;
		ns[front->phases[s.stack]] = saturating__add(ns[front->phases[s.stack]], s.weight_ns);
		all = saturating__add(all, s.weight_ns);
	}
	front->cpu[PHASE_FORWARD] = 1;
	for (int phase = 0; phase < PHASE__COUNT && all; phase++)
		front->cpu[phase] = (double)ns[phase] / all;
}

static int find_front(struct front_search *f, struct in_front *front)
{
	int err = prepare(f) ?: each_sample(f, count_seen);

	if (err || f->cnt[SEEN_MODEL] < SAMPLES_MIN || f->cnt[SEEN_AFTER] < SAMPLES_MIN)
		return err;
	err = find_loop(f);
	if (err || !f->loop)
		return err;
	err = each_sample(f, add_site) ?: find_range(f) ?: each_sample(f, add_call) ?: classify(f, front);
	if (!err)
		share_cpu(f, front);
	return err;
}

int in_front__find(struct job *job, const struct by_thread *by_thread, const struct step_track *track,
		   const struct steps *steps, const bool *is_plain, struct in_front *front)
{
	struct front_search f = {.job = job,
				 .stacks = job__stacks(job),
				 .by_thread = by_thread,
				 .track = track,
				 .steps = steps,
				 .is_plain = is_plain};
	int err;

	*front = (struct in_front){0};
	err = track->thread ? find_front(&f, front) : 0;
	free(f.is_model);
	free(f.is_environment);
	free(f.votes);
	for (int i = 0; i < SEEN__COUNT; i++)
		free(f.seen[i]);
	map__free(&f.sites);
	map__free(&f.spine);
	map__free(&f.calls);
	return err;
}
