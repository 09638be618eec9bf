// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds where slow steps lost their time, from the samples in them: kinds of code, functions,
 * lines, wakers, and the rhythm.
 */
#include <errno.h>
#include <stdlib.h>

#include "user/analysis/cause/blame_private.h"
#include "user/analysis/place/hotspots.h"
#include "user/lib/saturating.h"
#include "user/model/stacks.h"

#define HALF        0.5
#define SAMPLES_MIN 3 /* needed to say what was on the CPU */

/* ---- kinds of code ---- */

static int count_class(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow, void *ctx)
{
	enum cpu_class class;

	if (sample->kind != SAMPLE_CPU)
		return 0;
	class = cpu_class__of(b->job, sample, phase);
	b->blame->all.samples[phase][class]++;
	b->blame->all.sampled_ns += sample->weight_ns;
	if (slow != NO_SLOT) {
		uint32_t number = b->blame->steps[slow].group;
		const struct blame_group *group = &b->blame->groups[number];

		b->blame->slow.samples[phase][class]++;
		b->blame->slow.sampled_ns += sample->weight_ns;
		b->classes[number][class] += group->phase == ANY_PHASE || group->phase == (int)phase;
	}
	return 0;
}

/*
 * The kind of code that made steps slow on the CPU: the one with the most samples beyond those in
 * equally many ordinary steps.
 */
static unsigned int find_class(const struct blame_builder *b, const struct blame_group *group, const uint64_t *counts)
{
	const struct step_sum *all = &b->blame->all, *slow = &b->blame->slow;
	double best_cnt = 0, total = 0;
	int best = 0;

	for (int class = 0; class < CPU__COUNT; class ++) {
		double cnt = counts[class];

		for (int p = 0; p < PHASE__COUNT; p++)
			if (group->phase == ANY_PHASE || group->phase == p)
				cnt -= group->step_cnt *
				       blame__ordinary(b->blame, all->samples[p][class], slow->samples[p][class]);
		total += cnt > 0 ? cnt : 0;
		if (cnt <= best_cnt)
			continue;
		best_cnt = cnt;
		best = class;
	}
	return best_cnt >= SAMPLES_MIN && best_cnt >= HALF * total ? BLAME_PYTHON + best : CAUSE_UNKNOWN;
}

static void find_classes(struct blame_builder *b)
{
	for (size_t i = 0; i < b->blame->group_cnt; i++) {
		struct blame_group *group = &b->blame->groups[i];

		if (group->cause == CAUSE_NONE)
			group->cause = find_class(b, group, b->classes[i]);
	}
}

/* ---- where ---- */

static bool stack_has(const struct blame_builder *b, uint32_t number, uint32_t code)
{
	struct stack stack = stacks__stack(job__stacks(b->job), number);

	for (uint32_t i = 0; i < stack.cnt; i++)
		if (stack.frames[i].code == code)
			return true;
	return false;
}

static bool is_of(const struct blame_builder *b, const struct blame_group *group, const struct sample *sample,
		  enum phase phase)
{
	switch (group->cause) {
	case BLAME_GC:
		return b->in_gc[sample->path];
	case BLAME_COMPILE:
		return b->compiles[sample->stack] || phase == PHASE_COMPILE;
	case BLAME_EXTRA:
		return stack_has(b, sample->stack, place__main(&group->place)->code);
	}
	if (group->phase != ANY_PHASE && group->phase != (int)phase)
		return false;
	if (group->cause == CAUSE_UNKNOWN || group->cause == BLAME_SKIPPED || group->cause == BLAME_CHECKPOINT ||
	    group->cause == BLAME_VALIDATION)
		return true;
	if (group->cause < CAUSE__END)
		return sample->kind == SAMPLE_WAIT && sample->cause == group->cause;
	return sample->kind == SAMPLE_CPU && cpu_class__of(b->job, sample, phase) == group->cause - BLAME_PYTHON;
}

/* A pause meets whatever the program does just then; one more iteration is all of it. */
static bool has_place(unsigned int cause)
{
	return cause != CAUSE_UNKNOWN && cause != CAUSE_PAUSED && cause != BLAME_SKIPPED;
}

/*
 * By group: lines, causes of waits, and wakers. By slow step, after the groups: lines. `places` has
 * a slot for the samples of each group's cause, then for the comparable samples of ordinary steps,
 * then for all samples of ordinary steps.
 */
struct where_search {
	struct hotspots hotspots;
	struct places places;
	struct histograms waits, wakers;
	struct intern waker_ids; /* pid and tid */
};

static int add_ordinary(struct blame_builder *b, struct where_search *where, const struct sample *sample,
			enum phase phase)
{
	size_t cnt = b->blame->group_cnt;
	int err = places__add(&where->places, 2 * cnt, sample);

	for (size_t g = 0; g < cnt && !err; g++)
		if (is_of(b, &b->blame->groups[g], sample, phase))
			err = places__add(&where->places, cnt + g, sample);
	return err;
}

static int add_where(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow, void *ctx)
{
	struct where_search *where = ctx;
	struct blame_group *group;
	uint32_t waker, number;
	int err;

	if (slow == NO_SLOT)
		return add_ordinary(b, where, sample, phase);
	number = b->blame->steps[slow].group;
	group = &b->blame->groups[number];
	if (!is_of(b, group, sample, phase))
		return 0;
	err = places__add(&where->places, number, sample) ?: hotspots__add(&where->hotspots, number, sample) ?:
	      hotspots__add(&where->hotspots, b->blame->group_cnt + slow, sample);
	if (err || sample->kind != SAMPLE_WAIT)
		return err;
	group->wait_ns = saturating__add(group->wait_ns, sample->weight_ns);
	if (sample->passed)
		group->passed_ns = saturating__add(group->passed_ns, sample->weight_ns);
	err = histograms__add(&where->waits, number, sample->cause, sample->weight_ns);
	if (err || !sample->waker_pid)
		return err;
	return intern__add(&where->waker_ids, (uint64_t)sample->waker_pid << 32 | sample->waker_tid, &waker)
		       ?: histograms__add(&where->wakers, number, waker, sample->weight_ns);
}

/*
 * Where a thread waits for a CPU is chance: lines hold that time, but no function is to blame for
 * it.
 */
static bool group_has_place(const struct blame_group *group)
{
	return group->cause != CAUSE_RUN_QUEUE && group->cause != BLAME_EXTRA && group->cause != BLAME_COMPILE;
}

static int find_group_place(struct blame_builder *b, struct where_search *where, size_t number)
{
	struct blame_group *group = &b->blame->groups[number];
	size_t cnt = b->blame->group_cnt, slots = 2 * cnt + 1;
	double ordinary_cnt = b->blame->all.step_cnt - b->blame->slow.step_cnt;
	bool *more = calloc(3 * slots, sizeof(*more)), *less = more + slots, *all = less + slots;
	struct place_question ask = {
		.more = {more, slots, group->step_cnt},
		.less = {less, slots, ordinary_cnt},
		.all = {all, slots, ordinary_cnt},
	};
	int err = more ? 0 : -ENOMEM;

	if (!err && ordinary_cnt) {
		more[number] = less[cnt + number] = all[2 * cnt] = true;
		err = places__find(&where->places, &ask, &group->place);
	}
	free(more);
	return err;
}

/* Puts the place's hotspot first, and preserves what is known about its line. */
static void put_first(struct blame_group *group)
{
	struct hotspot first = *place__main(&group->place);
	int at = 0;

	while (at < BLAME_HOTSPOTS - 1 &&
	       (group->hotspots[at].code != first.code || group->hotspots[at].line != first.line))
		at++;
	for (int i = 0; i < BLAME_HOTSPOTS; i++)
		if (group->hotspots[i].code == first.code && !first.file)
			first.file = group->hotspots[i].file;
	for (; at > 0; at--)
		group->hotspots[at] = group->hotspots[at - 1];
	group->hotspots[0] = first;
}

static int put_where(struct blame_builder *b, struct where_search *where)
{
	size_t group_cnt = b->blame->group_cnt, slots = group_cnt + b->track->slow_cnt;
	struct hotspot(*hotspots)[BLAME_HOTSPOTS] = calloc(slots + 1, sizeof(*hotspots));
	struct histogram_top *waits = calloc(group_cnt + 1, sizeof(*waits));
	struct histogram_top *wakers = calloc(group_cnt + 1, sizeof(*wakers));
	int err = -ENOMEM;

	if (hotspots && waits && wakers)
		err = hotspots__top(&where->hotspots, slots, BLAME_HOTSPOTS, *hotspots);
	if (err)
		goto out;
	histograms__top(&where->waits, group_cnt, 1, waits);
	histograms__top(&where->wakers, group_cnt, 1, wakers);
	for (size_t i = 0; i < group_cnt && !err; i++) {
		struct blame_group *group = &b->blame->groups[i];
		uint64_t waker = intern__key(&where->waker_ids, wakers[i].value);

		group->wait = waits[i].value;
		group->waker_pid = waker >> 32;
		group->waker_tid = waker;
		group->waker_ns = wakers[i].total;
		if (!has_place(group->cause))
			continue;
		for (int k = 0; k < BLAME_HOTSPOTS; k++)
			group->hotspots[k] = hotspots[i][k];
		if (group_has_place(group))
			err = find_group_place(b, where, i);
		/* A library's waiting function says nothing; the process or thread that it waits for does. */
		if (!group->place.users &&
		    (group->cause == CAUSE_DATA_WAIT ||
		     (group->cause < CAUSE__END && group->waker_ns && group->waker_ns >= HALF * group->cause_ns)))
			group->place = (struct place){0};
		if (group->place.outer.code)
			put_first(group);
	}
	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		const struct blame_group *group = &b->blame->groups[b->blame->steps[i].group];

		if (has_place(group->cause))
			b->blame->steps[i].hotspot =
				group->cause == BLAME_EXTRA ? group->hotspots[0] : hotspots[group_cnt + i][0];
	}
out:
	free(hotspots);
	free(waits);
	free(wakers);
	return err;
}

static int find_where(struct blame_builder *b)
{
	struct where_search where = {.hotspots = {.places = &b->blame->places, .lines = b->blame->lines},
				     .places.job = b->job};
	int err = blame_builder__each(b, add_where, &where) ?: put_where(b, &where);

	hotspots__free(&where.hotspots);
	places__free(&where.places);
	histograms__free(&where.waits);
	histograms__free(&where.wakers);
	intern__free(&where.waker_ids);
	return err;
}

/* ---- groups that are one ---- */

/* Both do what other steps hardly do, in the same function: only the cause that most of it has differs. */
static bool is_alike(const struct blame_group *a, const struct blame_group *b)
{
	return a->step_cnt && b->step_cnt && a->place.rare && b->place.rare &&
	       a->place.outer.code == b->place.outer.code;
}

static void merge_into(struct blame_group *to, struct blame_group *from)
{
	to->step_cnt += from->step_cnt;
	to->over_ns = saturating__add(to->over_ns, from->over_ns);
	to->cause_ns = saturating__add(to->cause_ns, from->cause_ns);
	to->queue_ns = saturating__add(to->queue_ns, from->queue_ns);
	if (from->gc_generation > to->gc_generation)
		to->gc_generation = from->gc_generation;
	from->step_cnt = 0;
}

/* Moves group i up to where its lost time puts it; numbers[] follow the groups. */
static void move_up(struct blame_group *groups, uint32_t *numbers, size_t i)
{
	for (; i && groups[i].over_ns > groups[i - 1].over_ns; i--) {
		struct blame_group group = groups[i];
		uint32_t number = numbers[i];

		groups[i] = groups[i - 1];
		groups[i - 1] = group;
		numbers[i] = numbers[i - 1];
		numbers[i - 1] = number;
	}
}

static int merge_alike(struct blame_builder *b)
{
	struct blame *blame = b->blame;
	size_t cnt = blame->group_cnt, kept = 0;
	uint32_t *into = calloc(2 * cnt + 1, sizeof(*into)), *numbers = into + cnt;

	if (!into)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		into[i] = i;
	for (size_t i = 0; i < cnt; i++)
		for (size_t k = i + 1; k < cnt; k++)
			if (is_alike(&blame->groups[i], &blame->groups[k])) {
				merge_into(&blame->groups[i], &blame->groups[k]);
				into[k] = i;
			}
	for (size_t i = 0; i < cnt; i++) {
		if (!blame->groups[i].step_cnt)
			continue;
		blame->groups[kept] = blame->groups[i];
		numbers[kept] = i;
		move_up(blame->groups, numbers, kept++);
	}
	blame->group_cnt = kept;
	for (size_t s = 0; s < b->track->slow_cnt; s++) {
		uint32_t was = into[blame->steps[s].group], is = 0;

		while (numbers[is] != was)
			is++;
		blame->steps[s].group = is;
	}
	free(into);
	return 0;
}

/* ---- rhythms ---- */

static int find_rhythms(struct blame_builder *b)
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
		b->blame->groups[g].rhythm = rhythm__find(indexes, indexes + room, cnt, b->blame->groups[g].place.rare);
	}
	free(indexes);
	return indexes ? 0 : -ENOMEM;
}

/* ---- together ---- */

/* The line that called most of what was compiled. */
static int find_compiled(struct blame_builder *b)
{
	struct hotspots hotspots = {.places = &b->blame->places, .lines = b->blame->lines};
	int err = 0;

	for (size_t i = 0; b->blame->compile.ns && i < samples__cnt(b->samples) && !err; i++) {
		struct sample sample;

		if (samples__thread_of(b->samples, i) != b->track->thread)
			continue;
		sample = samples__get(b->samples, i);
		if (b->compiles[sample.stack] && step_track__at(b->track, sample.time_ns) >= 0)
			err = hotspots__add(&hotspots, 0, &sample);
	}
	err = err ?: hotspots__top(&hotspots, 1, 1, &b->blame->compile.hotspot);
	hotspots__free(&hotspots);
	return err;
}

/* Chooses the lines that represent stacks, relative to all steps. */
static int find_lines(struct blame_builder *b)
{
	size_t slots = b->track->slow_cnt + 2;
	bool *all = malloc(slots);
	struct place_set set = {all, slots, b->track->step_cnt};

	for (size_t i = 0; all && i < slots; i++)
		all[i] = true;
	b->blame->lines = all ? places__lines(&b->blame->places, &set) : NULL;
	free(all);
	return b->blame->lines ? 0 : -ENOMEM;
}

int blame_builder__find_where(struct blame_builder *b)
{
	int err;

	b->classes = calloc(b->blame->group_cnt + 1, sizeof(*b->classes));
	err = b->classes ? blame_builder__each(b, count_class, NULL) : -ENOMEM;
	if (err)
		return err;
	find_classes(b);
	return find_lines(b) ?: find_where(b) ?: merge_alike(b) ?: find_rhythms(b) ?: find_compiled(b);
}
