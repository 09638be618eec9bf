// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A slow step is blamed on what makes the greater part of the time that it took longer than an ordinary one:
 * collections of garbage or a whole phase (checkpoint, validation) where they are half of it; else a wait, or time on
 * the CPU, where it is a third. Which code was on the CPU is told by the samples of all steps so blamed: a single
 * step has few.
 */
#include "blame.h"

#include <errno.h>
#include <stdlib.h>

#include "stacks.h"
#include "sums.h"

#define HALF        0.5
#define A_THIRD     (1 / 3.0)
#define CPU_TIMES   2 /* as much of the CPU as of a wait: that is timed, this is what is left */
#define SAMPLES_MIN 3 /* that tell what was on the CPU */
#define ANY_PHASE   (-1)
#define NO_GROUP    UINT32_MAX

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

struct blaming {
	struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	const struct samples *samples;
	struct blame *blame;
	uint32_t groups[BLAME__END][PHASE__COUNT + 1]; /* by cause and phase + 1: index + 1; 0: none */
	bool *in_gc;                                   /* by path */
	uint64_t (*classes)[CPU__COUNT];               /* by group: samples of the timer in its phase */
};

/* ---- sums ---- */

void step_sum__add(struct step_sum *sum, const struct step *step)
{
	sum->step_cnt++;
	sum->total_ns += step__ns(step);
	sum->gc_ns += step->gc_ns;
	for (uint32_t i = 0; i < step->part_cnt; i++)
		sum->ns[step->parts[i].phase][step->parts[i].cause] += step->parts[i].ns;
}

static void add_steps(struct blaming *b)
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
static double ordinary(const struct blame *blame, uint64_t all, uint64_t slow)
{
	size_t cnt = blame->all.step_cnt - blame->slow.step_cnt;

	return cnt ? (double)(all - slow) / cnt : 0;
}

/* ---- slow steps ---- */

/* What a step has more than an ordinary one. */
struct excess {
	double ns[PHASE__COUNT][CAUSE__END], gc_ns;
};

static void find_excess(const struct blame *blame, const struct step *step, struct excess *excess)
{
	for (int p = 0; p < PHASE__COUNT; p++)
		for (int c = 0; c < CAUSE__END; c++)
			excess->ns[p][c] = -ordinary(blame, blame->all.ns[p][c], blame->slow.ns[p][c]);
	for (uint32_t i = 0; i < step->part_cnt; i++)
		excess->ns[step->parts[i].phase][step->parts[i].cause] += step->parts[i].ns;
	excess->gc_ns = step->gc_ns - ordinary(blame, blame->all.gc_ns, blame->slow.gc_ns);
}

static double of_phase(const struct excess *excess, int phase)
{
	double sum = 0;

	for (int cause = 0; cause < CAUSE__END; cause++)
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

/* The phase that has most of a cause's excess, if that is the half of it. For a CPU a thread waits anywhere. */
static int main_phase(const struct excess *excess, unsigned int cause)
{
	int best = 0;

	for (int phase = 1; phase < PHASE__COUNT; phase++)
		if (excess->ns[phase][cause] > excess->ns[best][cause])
			best = phase;
	return cause != CAUSE_RUN_QUEUE && excess->ns[best][cause] >= HALF * of_cause(excess, cause) ? best : ANY_PHASE;
}

/* Sets *phase, too; CAUSE_NONE: time on the CPU. */
static unsigned int find_cause(const struct excess *excess, double over, double *cause_ns, int *phase)
{
	static const struct {
		int phase;
		unsigned int cause;
	} whole[] = {{PHASE_CHECKPOINT, BLAME_CHECKPOINT},
		     {PHASE_VALIDATION, BLAME_VALIDATION},
		     {PHASE_COMPILE, BLAME_COMPILE}};
	unsigned int best = 0;

	*phase = ANY_PHASE;
	*cause_ns = excess->gc_ns;
	if (*cause_ns >= HALF * over)
		return BLAME_GC;
	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++) {
		*phase = whole[i].phase;
		*cause_ns = of_phase(excess, *phase);
		if (*cause_ns >= HALF * over)
			return whole[i].cause;
	}
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

/* The index of the group. UINT32_MAX: no memory. */
static uint32_t group_of(struct blaming *b, struct array *groups, unsigned int cause, int phase)
{
	uint32_t *number = &b->groups[cause][phase + 1];
	struct blame_group *group;

	if (*number)
		return *number - 1;
	group = array__add(groups, sizeof(*group));
	if (!group)
		return NO_GROUP;
	group->cause = cause;
	group->phase = phase;
	*number = groups->cnt;
	return *number - 1;
}

static int blame_steps(struct blaming *b)
{
	const struct step_track *track = b->track;
	struct array groups = {0};
	struct excess excess;

	for (size_t i = 0; i < track->slow_cnt; i++) {
		const struct step *step = &track->steps[track->slow[i]];
		struct blame_step *blamed = &b->blame->steps[i];
		struct blame_group *group;
		double cause_ns;
		int phase;
		unsigned int cause;

		blamed->step = track->slow[i];
		blamed->over_ns = step__ns(step) - track->rule_of_slow.ordinary_ns;
		find_excess(b->blame, step, &excess);
		cause = find_cause(&excess, blamed->over_ns, &cause_ns, &phase);
		blamed->cause_ns = cause_ns;
		blamed->group = group_of(b, &groups, cause, phase);
		b->blame->groups = groups.items;
		b->blame->group_cnt = groups.cnt;
		if (blamed->group == NO_GROUP)
			return -ENOMEM;
		group = &b->blame->groups[blamed->group];
		group->step_cnt++;
		group->over_ns += blamed->over_ns;
		group->cause_ns += blamed->cause_ns;
		if (step->gc_generation > group->gc_generation)
			group->gc_generation = step->gc_generation;
	}
	return 0;
}

/* ---- samples ---- */

/* The slow step in which a sample is; NULL: in none. */
static const struct blame_step *slow_at(const struct blaming *b, long step)
{
	size_t low = 0, high = b->track->slow_cnt;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if ((long)b->track->slow[middle] < step)
			low = middle + 1;
		else
			high = middle;
	}
	return low < b->track->slow_cnt && (long)b->track->slow[low] == step ? &b->blame->steps[low] : NULL;
}

/* Calls fn with each sample of the track's thread that is in a step. fn returns 0 or -ENOMEM. */
static int for_each_sample(struct blaming *b,
			   int (*fn)(struct blaming *b, const struct sample *sample, enum phase phase,
				     const struct blame_step *slow, void *ctx),
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
			err = fn(b, &sample, step_track__phase(b->track, b->steps, &sample), slow_at(b, step), ctx);
	}
	return err;
}

static int count_class(struct blaming *b, const struct sample *sample, enum phase phase, const struct blame_step *slow,
		       void *ctx)
{
	enum cpu_class class;

	if (sample->kind != SAMPLE_CPU)
		return 0;
	class = cpu_class__of(b->job, sample, phase);
	b->blame->all.samples[phase][class]++;
	b->blame->all.sampled_ns += sample->weight_ns;
	if (slow) {
		const struct blame_group *group = &b->blame->groups[slow->group];

		b->blame->slow.samples[phase][class]++;
		b->blame->slow.sampled_ns += sample->weight_ns;
		b->classes[slow->group][class] += group->phase == ANY_PHASE || group->phase == (int)phase;
	}
	return 0;
}

/* Which code made steps slow that were so on the CPU: that which has more samples than in as many ordinary steps. */
static unsigned int find_class(const struct blaming *b, const struct blame_group *group, const uint64_t *counts)
{
	const struct step_sum *all = &b->blame->all, *slow = &b->blame->slow;
	double best_cnt = 0, sum = 0;
	int best = 0;

	for (int class = 0; class < CPU__COUNT; class ++) {
		double cnt = counts[class];

		for (int p = 0; p < PHASE__COUNT; p++)
			if (group->phase == ANY_PHASE || group->phase == p)
				cnt -= group->step_cnt *
				       ordinary(b->blame, all->samples[p][class], slow->samples[p][class]);
		sum += cnt > 0 ? cnt : 0;
		if (cnt <= best_cnt)
			continue;
		best_cnt = cnt;
		best = class;
	}
	return best_cnt >= SAMPLES_MIN && best_cnt >= HALF * sum ? BLAME_PYTHON + best : CAUSE_UNKNOWN;
}

static void find_classes(struct blaming *b)
{
	for (size_t i = 0; i < b->blame->group_cnt; i++) {
		struct blame_group *group = &b->blame->groups[i];

		if (group->cause == CAUSE_NONE)
			group->cause = find_class(b, group, b->classes[i]);
	}
}

/* ---- where ---- */

static bool is_of(const struct blaming *b, const struct blame_group *group, const struct sample *sample,
		  enum phase phase)
{
	if (group->cause == BLAME_GC)
		return b->in_gc[sample->path];
	if (group->phase != ANY_PHASE && group->phase != (int)phase)
		return false;
	if (group->cause == CAUSE_UNKNOWN || group->cause == BLAME_CHECKPOINT || group->cause == BLAME_VALIDATION)
		return true;
	if (group->cause < CAUSE__END)
		return sample->kind == SAMPLE_WAIT && sample->cause == group->cause;
	return sample->kind == SAMPLE_CPU && cpu_class__of(b->job, sample, phase) == group->cause - BLAME_PYTHON;
}

/* By group: lines, causes of waits, and who ended them. By slow step, behind the groups: lines. */
struct where {
	struct spots spots;
	struct tallies waits, wakers;
	struct intern waker_ids; /* pid and tid */
};

static int add_where(struct blaming *b, const struct sample *sample, enum phase phase, const struct blame_step *slow,
		     void *ctx)
{
	struct where *where = ctx;
	struct blame_group *group;
	uint32_t waker;
	int err;

	if (!slow || !is_of(b, &b->blame->groups[slow->group], sample, phase))
		return 0;
	group = &b->blame->groups[slow->group];
	err = spots__add(&where->spots, slow->group, sample);
	if (!err)
		err = spots__add(&where->spots, b->blame->group_cnt + (slow - b->blame->steps), sample);
	if (err || sample->kind != SAMPLE_WAIT)
		return err;
	group->wait_ns = sum__u64(group->wait_ns, sample->weight_ns);
	err = tallies__add(&where->waits, slow->group, sample->cause, sample->weight_ns);
	if (err || !sample->waker_pid)
		return err;
	return intern__add(&where->waker_ids, (uint64_t)sample->waker_pid << 32 | sample->waker_tid, &waker)
		       ?: tallies__add(&where->wakers, slow->group, waker, sample->weight_ns);
}

static int put_where(struct blaming *b, const struct where *where)
{
	size_t group_cnt = b->blame->group_cnt, slots = group_cnt + b->track->slow_cnt;
	struct spot(*spots)[BLAME_SPOTS] = calloc(slots + 1, sizeof(*spots));
	struct tally_top *waits = calloc(group_cnt + 1, sizeof(*waits));
	struct tally_top *wakers = calloc(group_cnt + 1, sizeof(*wakers));
	int err = -ENOMEM;

	if (spots && waits && wakers)
		err = spots__top(&where->spots, slots, BLAME_SPOTS, *spots);
	if (err)
		goto out;
	tallies__top(&where->waits, group_cnt, 1, waits);
	tallies__top(&where->wakers, group_cnt, 1, wakers);
	for (size_t i = 0; i < group_cnt; i++) {
		struct blame_group *group = &b->blame->groups[i];
		uint64_t waker = intern__key(&where->waker_ids, wakers[i].value);

		for (int k = 0; k < BLAME_SPOTS; k++)
			group->spots[k] = spots[i][k];
		group->wait = waits[i].value;
		group->waker_pid = waker >> 32;
		group->waker_tid = waker;
		group->waker_ns = wakers[i].sum;
	}
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		b->blame->steps[i].spot = spots[group_cnt + i][0];
out:
	free(spots);
	free(waits);
	free(wakers);
	return err;
}

static int find_where(struct blaming *b)
{
	struct where where = {.spots.job = b->job};
	int err = for_each_sample(b, add_where, &where) ?: put_where(b, &where);

	spots__free(&where.spots);
	tallies__free(&where.waits);
	tallies__free(&where.wakers);
	intern__free(&where.waker_ids);
	return err;
}

/* ---- together ---- */

static int find_gc_paths(struct blaming *b)
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

static int find_rhythms(struct blaming *b)
{
	size_t room = b->track->slow_cnt + 1;
	uint64_t *indexes = calloc(2 * room, sizeof(*indexes));

	for (size_t g = 0; indexes && g < b->blame->group_cnt; g++) {
		size_t cnt = 0;

		for (size_t i = 0; i < b->track->slow_cnt; i++) {
			const struct blame_step *blamed = &b->blame->steps[i];

			if (blamed->group != g)
				continue;
			indexes[cnt] = b->track->steps[blamed->step].index;
			indexes[room + cnt++] = blamed->over_ns;
		}
		b->blame->groups[g].rhythm = rhythm__find(indexes, indexes + room, cnt);
	}
	free(indexes);
	return indexes ? 0 : -ENOMEM;
}

static int compare_group(const void *a, const void *b)
{
	const struct blame_group *x = a, *y = b;

	return (x->over_ns < y->over_ns) - (x->over_ns > y->over_ns);
}

/* The steps' indexes of groups go along, by way of a group's cause and phase, before these change. */
static void sort_groups(struct blaming *b)
{
	struct blame *blame = b->blame;
	uint32_t by_key[BLAME__END][PHASE__COUNT + 1];

	if (!blame->group_cnt)
		return;
	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		const struct blame_group *group = &blame->groups[blame->steps[i].group];

		blame->steps[i].group = group->cause * (PHASE__COUNT + 1) + group->phase + 1;
	}
	qsort(blame->groups, blame->group_cnt, sizeof(*blame->groups), compare_group);
	for (size_t i = 0; i < blame->group_cnt; i++)
		by_key[blame->groups[i].cause][blame->groups[i].phase + 1] = i;
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		blame->steps[i].group = (&by_key[0][0])[blame->steps[i].group];
}

int blame__new(struct job *job, const struct steps *steps, const struct step_track *track, struct blame *blame)
{
	struct blaming b = {.job = job, .steps = steps, .track = track, .samples = job__samples(job), .blame = blame};
	int err = -ENOMEM;

	*blame = (struct blame){.steps = calloc(track->slow_cnt + 1, sizeof(*blame->steps))};
	if (!blame->steps || !b.samples || find_gc_paths(&b))
		goto out;
	add_steps(&b);
	err = blame_steps(&b);
	if (err)
		goto out;
	sort_groups(&b);
	b.classes = calloc(blame->group_cnt + 1, sizeof(*b.classes));
	err = b.classes ? for_each_sample(&b, count_class, NULL) : -ENOMEM;
	if (err)
		goto out;
	find_classes(&b);
	err = find_where(&b) ?: find_rhythms(&b);
out:
	free(b.in_gc);
	free(b.classes);
	if (err)
		blame__release(blame);
	return err;
}

void blame__release(struct blame *blame)
{
	free(blame->groups);
	free(blame->steps);
	*blame = (struct blame){0};
}
