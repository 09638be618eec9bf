// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A slow step is blamed on the main part of the time by which it exceeds an ordinary one: garbage
 * collection, torch.compile or a whole phase (checkpoint, validation) if that is half of it; else a
 * wait, or time on the CPU, if that is a third. If the step was on the CPU, or has no single cause,
 * it is blamed on a function that ordinary steps do not call, if that is half of it. Else the
 * samples of all steps with that blame decide which code was on the CPU: a single step has too few.
 */
#include "user/analysis/blame_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/stacks.h"

#define HALF        0.5
#define A_THIRD     (1 / 3.0)
#define CPU_TIMES   2 /* times as much CPU as wait: waits are timed, whereas CPU time is only what is left */
#define SAMPLES_MIN 3 /* needed to say what was on the CPU */

static const char *const blame_names[] = {
#define X(id, name) [BLAME_##id - CAUSE__END] = name,
	STEPFLAME_BLAMES(X)
#undef X
};

const char *blame_cause__name(unsigned int cause)
{
	if (cause < CAUSE__END)
		return sample_cause__name(cause);
	return cause < BLAME__END ? blame_names[cause - CAUSE__END] : "";
}

/* ---- sums ---- */

void step_sum__add(struct step_sum *sum, const struct step *step)
{
	sum->step_cnt++;
	sum->total_ns += step__ns(step);
	sum->gc_ns += step->gc_ns;
	for (uint32_t i = 0; i < step->part_cnt; i++)
		sum->ns[step->parts[i].phase][step->parts[i].cause] += step->parts[i].ns;
}

static void add_step_sums(struct blame_builder *b)
{
	const struct step_track *track = b->track;
	size_t slow = 0;

	for (size_t i = 0; i < track->step_cnt; i++) {
		step_sum__add(&b->blame->all, &track->steps[i]);
		if (slow == track->slow_cnt || track->slow[slow] != i)
			continue;
		step_sum__add(&b->blame->slow, &track->steps[i]);
		slow++;
	}
}

/* What an ordinary step has of a sum, on average. */
double blame__ordinary(const struct blame *blame, uint64_t all, uint64_t slow)
{
	size_t cnt = blame->all.step_cnt - blame->slow.step_cnt;

	return cnt ? (double)(all - slow) / cnt : 0;
}

/* ---- slow steps ---- */

/* The excess of a step over an ordinary one. */
struct excess {
	double ns[PHASE__COUNT][CAUSE__END], gc_ns;
};

static void find_excess(const struct blame *blame, const struct step *step, struct excess *excess)
{
	for (int p = 0; p < PHASE__COUNT; p++)
		for (int c = 0; c < CAUSE__END; c++)
			excess->ns[p][c] = -blame__ordinary(blame, blame->all.ns[p][c], blame->slow.ns[p][c]);
	for (uint32_t i = 0; i < step->part_cnt; i++)
		excess->ns[step->parts[i].phase][step->parts[i].cause] += step->parts[i].ns;
	excess->gc_ns = step->gc_ns - blame__ordinary(blame, blame->all.gc_ns, blame->slow.gc_ns);
}

static double of_phase(const struct excess *excess, int phase)
{
	double sum = 0;

	for (int cause = 0; cause < CAUSE__END; cause++)
		if (cause != CAUSE_PAUSED) /* which no phase is to blame for */
			sum += excess->ns[phase][cause];
	return sum;
}

static double of_cause(const struct excess *excess, unsigned int cause)
{
	double sum = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		sum += excess->ns[phase][cause];
	return sum;
}

/*
 * The phase with the largest part of a cause's excess, if that is half of it. Not for waits for a
 * CPU and pauses, which may happen anywhere.
 */
static int main_phase(const struct excess *excess, unsigned int cause)
{
	int best = 0;

	for (int phase = 1; phase < PHASE__COUNT; phase++)
		if (excess->ns[phase][cause] > excess->ns[best][cause])
			best = phase;
	return !sample_cause__is_anywhere(cause) && excess->ns[best][cause] >= HALF * of_cause(excess, cause)
		       ? best
		       : ANY_PHASE;
}

/*
 * If the phases that are causes by themselves add up to half of the excess, returns the longest.
 * Sets *cause_ns and *phase.
 */
static unsigned int of_whole_phases(const struct excess *excess, double over, double *cause_ns, int *phase)
{
	static const struct {
		int phase;
		unsigned int cause;
	} whole[] = {{PHASE_CHECKPOINT, BLAME_CHECKPOINT},
		     {PHASE_VALIDATION, BLAME_VALIDATION},
		     {PHASE_COMPILE, BLAME_COMPILE}};
	double sum = 0;
	size_t best = 0;

	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++) {
		sum += fmax(0, of_phase(excess, whole[i].phase));
		if (of_phase(excess, whole[i].phase) > of_phase(excess, whole[best].phase))
			best = i;
	}
	*phase = whole[best].phase;
	*cause_ns = of_phase(excess, *phase);
	return sum >= HALF * over ? whole[best].cause : CAUSE_UNKNOWN;
}

/* Sets *cause_ns and *phase. CAUSE_NONE: time on the CPU. */
static unsigned int find_cause(const struct excess *excess, double over, uint64_t compile_ns, double *cause_ns,
			       int *phase)
{
	unsigned int best;

	*phase = ANY_PHASE;
	*cause_ns = excess->gc_ns;
	if (*cause_ns >= HALF * over)
		return BLAME_GC;
	*cause_ns = compile_ns;
	if (*cause_ns >= HALF * over)
		return BLAME_COMPILE;
	best = of_whole_phases(excess, over, cause_ns, phase);
	if (best != CAUSE_UNKNOWN)
		return best;
	best = 0;
	for (unsigned int cause = 1; cause < CAUSE__END; cause++)
		if (of_cause(excess, cause) > of_cause(excess, best) / (best ? 1 : CPU_TIMES))
			best = cause;
	*cause_ns = of_cause(excess, best);
	*phase = main_phase(excess, best);
	if (*cause_ns >= A_THIRD * over)
		return best;
	*phase = ANY_PHASE;
	*cause_ns = 0;
	return CAUSE_UNKNOWN;
}

static void find_causes(struct blame_builder *b)
{
	const struct step_track *track = b->track;
	struct excess excess;

	for (size_t i = 0; i < track->slow_cnt; i++) {
		const struct step *step = &track->steps[track->slow[i]];
		struct blame_step *blamed = &b->blame->steps[i];
		struct slow_cause *slow = &b->slow[i];
		double cause_ns;

		blamed->step = track->slow[i];
		blamed->over_ns = step__ns(step) - track->rule_of_slow.ordinary_ns;
		find_excess(b->blame, step, &excess);
		slow->cause = find_cause(&excess, blamed->over_ns, slow->compile_ns, &cause_ns, &slow->phase);
		slow->ns = cause_ns;
		slow->queue_ns = fmin(fmax(of_cause(&excess, CAUSE_RUN_QUEUE), 0), blamed->over_ns);
	}
}

/* ---- groups ---- */

static bool is_same_cause(const struct slow_cause *a, const struct slow_cause *b)
{
	return a->cause == b->cause && a->phase == b->phase && a->place == b->place;
}

/*
 * The index of the group of slow step i: the group of an earlier step, or a new one. UINT32_MAX: no
 * memory.
 */
static uint32_t group_of(struct blame_builder *b, struct array *groups, struct array *firsts, size_t i)
{
	struct blame_group *group;
	uint32_t *first;

	for (size_t g = 0; g < firsts->cnt; g++)
		if (is_same_cause(&b->slow[((const uint32_t *)firsts->items)[g]], &b->slow[i]))
			return g;
	first = array__add(firsts, sizeof(*first));
	group = first ? array__add(groups, sizeof(*group)) : NULL;
	if (!group)
		return UINT32_MAX;
	*first = i;
	group->cause = b->slow[i].cause;
	group->phase = b->slow[i].phase;
	if (b->slow[i].place)
		group->place = ((const struct place *)b->extra.items)[b->slow[i].place - 1];
	return groups->cnt - 1;
}

static int make_blame_groups(struct blame_builder *b)
{
	struct array groups = {0}, firsts = {0};
	int err = 0;

	for (size_t i = 0; i < b->track->slow_cnt && !err; i++) {
		struct blame_step *blamed = &b->blame->steps[i];
		struct blame_group *group;

		blamed->cause_ns = b->slow[i].ns;
		blamed->group = group_of(b, &groups, &firsts, i);
		b->blame->groups = groups.items;
		b->blame->group_cnt = groups.cnt;
		if (blamed->group == UINT32_MAX) {
			err = -ENOMEM;
			break;
		}
		group = &b->blame->groups[blamed->group];
		group->step_cnt++;
		group->over_ns = saturating__add(group->over_ns, blamed->over_ns);
		group->cause_ns = saturating__add(group->cause_ns, blamed->cause_ns);
		group->queue_ns = saturating__add(group->queue_ns, b->slow[i].queue_ns);
		if (b->track->steps[blamed->step].gc_generation > group->gc_generation)
			group->gc_generation = b->track->steps[blamed->step].gc_generation;
	}
	free(firsts.items);
	return err;
}

static int compare_group_over_ns(const void *a, const void *b, void *groups)
{
	const struct blame_group *all = groups, *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];

	return x->over_ns != y->over_ns ? COMPARE(y->over_ns, x->over_ns) : COMPARE(x, y);
}

/* Sorts groups by lost time, largest first, and renumbers them in the steps. */
static int sort_groups(struct blame_builder *b)
{
	struct blame *blame = b->blame;
	size_t cnt = blame->group_cnt;
	struct blame_group *sorted = calloc(cnt + 1, sizeof(*sorted));
	uint32_t *order = calloc(cnt + 1, sizeof(*order)), *place = calloc(cnt + 1, sizeof(*place));
	int err = sorted && order && place ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++)
		order[i] = i;
	if (cnt && !err)
		qsort_r(order, cnt, sizeof(*order), compare_group_over_ns, blame->groups);
	for (size_t i = 0; i < cnt && !err; i++) {
		sorted[i] = blame->groups[order[i]];
		place[order[i]] = i;
	}
	for (size_t i = 0; i < b->track->slow_cnt && !err; i++)
		blame->steps[i].group = place[blame->steps[i].group];
	if (!err) {
		free(blame->groups);
		blame->groups = sorted;
		sorted = NULL;
	}
	free(sorted);
	free(order);
	free(place);
	return err;
}

/* ---- samples ---- */

uint32_t blame_builder__slow_at(const struct blame_builder *b, long step)
{
	size_t low = SEARCH(i, 0, b->track->slow_cnt, (long)b->track->slow[i] < step);
	return low < b->track->slow_cnt && (long)b->track->slow[low] == step ? low : NO_SLOT;
}

int blame_builder__each(struct blame_builder *b,
			int (*fn)(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow,
				  void *ctx),
			void *ctx)
{
	int err = 0;

	for (size_t i = 0; b->track->thread && i < samples__cnt(b->samples) && !err; i++) {
		struct sample sample;
		long step;

		if (samples__thread_of(b->samples, i) != b->track->thread)
			continue;
		sample = samples__get(b->samples, i);
		step = step_track__at(b->track, sample.time_ns);
		if (step >= 0)
			err = fn(b, &sample, step_track__phase(b->track, b->steps, &sample),
				 blame_builder__slow_at(b, step), ctx);
	}
	return err;
}

static int add_to_places(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow,
			 void *ctx)
{
	long step = step_track__at(b->track, sample->time_ns);
	long *last = ctx;

	if (b->compiles[sample->stack]) {
		b->blame->compile.ns = saturating__add(b->blame->compile.ns, sample->weight_ns);
		b->blame->compile.step_cnt += step != *last;
		*last = step;
	}
	if (slow != NO_SLOT) {
		b->slow[slow].sample_cnt += sample->cause != CAUSE_RUN_QUEUE;
		if (b->compiles[sample->stack])
			b->slow[slow].compile_ns = saturating__add(b->slow[slow].compile_ns, sample->weight_ns);
	}
	/* Where a thread waits for a CPU is chance. */
	if (sample->cause == CAUSE_RUN_QUEUE)
		return places__add(&b->blame->places, b->track->slow_cnt + 1, sample);
	return places__add(&b->blame->places, slow != NO_SLOT ? slow : b->track->slow_cnt, sample);
}

/* ---- torch.compile ---- */

/*
 * Files whose functions run only during compilation, once they are imported. Calls of compiled
 * functions pass through other files of dynamo.
 */
static bool is_compiler(const struct job *job, const struct code *code)
{
	static const char *const files[] = {"/torch/_dynamo/convert_frame.py", "/torch/_inductor/compile_fx.py"};
	const char *file = code->file ? job__name(job, code->file) : NULL;
	const char *name = code->name ? job__name(job, code->name) : NULL;

	if (name && !strcmp(name, "<module>"))
		return false;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (compare__ends_with(file, files[i]))
			return true;
	return false;
}

bool *blame__compiles(const struct job *job)
{
	const struct stacks *stacks = job__stacks(job);
	size_t code_end = stacks__code_end(stacks), stack_end = stacks__stack_end(stacks);
	bool *codes = calloc(code_end + 1, sizeof(*codes)), *compiles = calloc(stack_end + 1, sizeof(*compiles));

	for (size_t i = 0; codes && i < code_end; i++) {
		struct code code = stacks__code(stacks, i);

		codes[i] = is_compiler(job, &code);
	}
	for (size_t i = 0; codes && compiles && i < stack_end; i++) {
		struct stack stack = stacks__stack(stacks, i);

		for (uint32_t f = 0; f < stack.cnt; f++)
			compiles[i] |= codes[stack.frames[f].code];
	}
	if (!codes) {
		free(compiles);
		compiles = NULL;
	}
	free(codes);
	return compiles;
}

/* ---- together ---- */

static int find_gc_paths(struct blame_builder *b)
{
	const struct stacks *stacks = job__stacks(b->job);
	size_t end = stacks__path_end(stacks);

	b->in_gc = calloc(end, sizeof(*b->in_gc));
	for (size_t i = 0; b->in_gc && i < end; i++) {
		struct path path = stacks__path(stacks, i);

		for (uint32_t s = 0; s < path.cnt; s++)
			b->in_gc[i] |= path.spans[s].kind == SPAN_GC;
	}
	return b->in_gc ? 0 : -ENOMEM;
}

static int find_blame(struct blame_builder *b)
{
	long last = -1;
	int err = blame_builder__each(b, add_to_places, &last);

	if (err)
		return err;
	add_step_sums(b);
	find_causes(b);
	blame_builder__find_skipped(b);
	return blame_builder__find_extra(b) ?: blame_builder__find_slower_cpu(b) ?: make_blame_groups(b) ?: sort_groups(b) ?: blame_builder__find_where(b);
}

int blame__new(struct job *job, const struct steps *steps, const struct step_track *track, struct blame *blame)
{
	struct blame_builder b = {
		.job = job, .steps = steps, .track = track, .samples = job__samples(job), .blame = blame};
	int err = -ENOMEM;

	*blame = (struct blame){.steps = calloc(track->slow_cnt + 1, sizeof(*blame->steps)), .places.job = job};
	b.slow = calloc(track->slow_cnt + 1, sizeof(*b.slow));
	b.compiles = b.samples ? blame__compiles(job) : NULL;
	if (blame->steps && b.slow && b.compiles && !find_gc_paths(&b))
		err = find_blame(&b);
	free(b.slow);
	free(b.extra.items);
	free(b.in_gc);
	free(b.compiles);
	free(b.classes);
	if (err)
		blame__release(blame);
	return err;
}

void blame__release(struct blame *blame)
{
	free(blame->groups);
	free(blame->steps);
	free(blame->lines);
	places__free(&blame->places);
	*blame = (struct blame){0};
}
