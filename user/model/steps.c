// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Boundaries come in any order, and two that follow each other in time make a step where the recording says that none
 * is missing between. A step's phases are those of its boundary; its waits are those of its thread that ended in it,
 * each in the phase of its spans; what is left of a phase is time on the CPU. Where a recording says more than there
 * is room for, the rest is counted (misfit_ns), so that parts always add up to the step.
 */
#include "steps.h"

#include <errno.h>
#include <stdlib.h>

#include "../../include/phases.h"
#include "array.h"
#include "labels.h"
#include "processes.h"
#include "stacks.h"
#include "sums.h"

struct steps {
	struct array tracks; /* struct step_track; what they point to is owned */
	uint8_t *phases;     /* enum phase by path */
};

static const char *const phase_names[] = {
#define X(id, name) [PHASE_##id] = name,
	STEPFLAME_PHASES(X)
#undef X
};

const char *phase__name(enum phase phase)
{
	return phase_names[phase];
}

enum phase steps__phase(const struct steps *steps, uint32_t path)
{
	return steps->phases[path];
}

enum phase step_track__phase(const struct step_track *track, const struct steps *steps, const struct sample *sample)
{
	return track->has_phases ? steps->phases[sample->path] : PHASE_OTHER;
}

static int classify_paths(struct steps *steps, struct job *job)
{
	const struct stacks *stacks = job__stacks(job);
	size_t end = stacks__path_end(stacks);

	steps->phases = calloc(end, sizeof(*steps->phases));
	if (!steps->phases)
		return -ENOMEM;
	for (size_t i = 0; i < end; i++) {
		struct path path = stacks__path(stacks, i);

		for (uint32_t s = 0; s < path.cnt; s++)
			steps->phases[i] =
				phase__inside(steps->phases[i],
					      labels__phase(path.spans[s].kind, job__name(job, path.spans[s].name)));
	}
	return 0;
}

/* ---- boundaries to steps ---- */

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int compare_boundary(const void *a, const void *b)
{
	const struct rec_step *const *x = a, *const *y = b;

	if ((*x)->pid != (*y)->pid)
		return ORDER((*x)->pid, (*y)->pid);
	if ((*x)->time_ns != (*y)->time_ns)
		return ORDER((*x)->time_ns, (*y)->time_ns);
	return ORDER(*x, *y);
}

/* Those of main processes by pid, then time. malloc'ed; NULL: no memory. */
static const struct rec_step **sort_boundaries(const struct job *job, size_t *cnt)
{
	size_t all;
	const struct rec_step *boundaries = job__boundaries(job, &all), **sorted = calloc(all + 1, sizeof(*sorted));

	*cnt = 0;
	for (size_t i = 0; sorted && i < all; i++)
		if (processes__is_main(job, boundaries[i].pid))
			sorted[(*cnt)++] = &boundaries[i];
	if (*cnt)
		qsort(sorted, *cnt, sizeof(*sorted), compare_boundary);
	return sorted;
}

/* What is in no phase is in PHASE_OTHER, said or not. */
static void set_phases(struct step_track *track, struct step *step, const struct rec_step *end)
{
	uint64_t left = step__ns(step);

	for (int p = 0; p < PHASE__COUNT; p++) {
		uint64_t ns = end->phase_ns[p] < left ? end->phase_ns[p] : left;

		track->has_phases |= ns > 0;
		if (p == PHASE_OTHER)
			continue;
		step->phase_ns[p] = ns;
		left -= ns;
		track->misfit_ns = sum__u64(track->misfit_ns, end->phase_ns[p] - ns);
	}
	step->phase_ns[PHASE_OTHER] = left;
	if (end->phase_ns[PHASE_OTHER] > left)
		track->misfit_ns = sum__u64(track->misfit_ns, end->phase_ns[PHASE_OTHER] - left);
}

/* Of the boundaries of one process. The last one in the recording has the rule and the thread that held. */
static int make_steps(struct step_track *track, const struct rec_step *const *boundaries, size_t cnt)
{
	const struct rec_step *last = boundaries[0], *before = NULL;
	struct step *steps = calloc(cnt, sizeof(*steps));

	track->steps = steps;
	if (!steps)
		return -ENOMEM;
	for (size_t i = 1; i < cnt; i++)
		if (boundaries[i] > last)
			last = boundaries[i];
	track->pid = last->pid;
	track->tid = last->tid;
	track->rule = last->rule;
	for (size_t i = 0; i < cnt; i++) {
		const struct rec_step *at = boundaries[i];

		if (at->rule != track->rule || at->tid != track->tid)
			continue;
		if (before && at->index > before->index + 1)
			track->lost = sum__u64(track->lost, at->index - before->index - 1);
		if (before && at->index == before->index + 1 && at->time_ns > before->time_ns) {
			struct step *step = &steps[track->step_cnt++];

			*step = (struct step){.start_ns = before->time_ns, .end_ns = at->time_ns, .index = at->index};
			track->total_ns += step__ns(step);
			set_phases(track, step, at);
		}
		before = at;
	}
	return 0;
}

long step_track__at(const struct step_track *track, uint64_t time_ns)
{
	size_t low = 0, high = track->step_cnt;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (track->steps[middle].start_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low && time_ns < track->steps[low - 1].end_ns ? (long)low - 1 : -1;
}

/* ---- waits ---- */

/* The parts of one step while they are added up. */
struct tally {
	uint64_t room[PHASE__COUNT];
	uint64_t ns[PHASE__COUNT][CAUSE__END];
};

/*
 * Short waits that one sample stands for may have been in another phase, or step: they are where their sample is, as
 * far as there is room. What Lightning's evaluation loop does between its actions is validation, though no span says
 * so.
 */
static void add_wait(struct step_track *track, const struct step *step, struct tally *tally,
		     const struct sample *sample, enum phase phase)
{
	uint64_t ns = sample->weight_ns, since_start = sample->time_ns - step->start_ns;

	if (sample->waits <= 1 && ns > since_start)
		ns = since_start;
	if (phase == PHASE_OTHER && ns > tally->room[phase] && step->phase_ns[PHASE_VALIDATION])
		phase = PHASE_VALIDATION;
	if (ns > tally->room[phase])
		ns = tally->room[phase];
	tally->room[phase] -= ns;
	tally->ns[phase][sample->cause] += ns;
	track->misfit_ns = sum__u64(track->misfit_ns, sample->weight_ns - ns);
}

/* step->part_cnt parts, at the end of the array. 0 or -ENOMEM. */
static int put_parts(struct step *step, struct tally *tally, struct array *parts)
{
	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		tally->ns[phase][CAUSE_NONE] = tally->room[phase];
		for (unsigned int cause = 0; cause < CAUSE__END && step->phase_ns[phase]; cause++) {
			struct step_part *part;

			if (!tally->ns[phase][cause])
				continue;
			part = array__add(parts, sizeof(*part));
			if (!part)
				return -ENOMEM;
			*part = (struct step_part){phase, cause, tally->ns[phase][cause]};
			step->part_cnt++;
		}
	}
	return 0;
}

static int compare_sample(const void *a, const void *b, void *samples)
{
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	struct sample x = samples__get(samples, i), y = samples__get(samples, k);

	return x.time_ns != y.time_ns ? ORDER(x.time_ns, y.time_ns) : ORDER(i, k);
}

/* uint32_t: the waits of the track's thread in the order of time, which nearly always is theirs. 0 or -ENOMEM. */
static int sort_waits(const struct step_track *track, const struct samples *samples, struct array *waits)
{
	bool sorted = true;
	uint64_t last_ns = 0;

	for (size_t i = 0; track->thread && i < samples__cnt(samples); i++) {
		struct sample sample;
		uint32_t *slot;

		if (samples__thread_of(samples, i) != track->thread)
			continue;
		sample = samples__get(samples, i);
		if (sample.kind != SAMPLE_WAIT)
			continue;
		slot = array__add(waits, sizeof(*slot));
		if (!slot)
			return -ENOMEM;
		*slot = i;
		sorted &= sample.time_ns >= last_ns;
		last_ns = sample.time_ns;
	}
	if (!sorted)
		qsort_r(waits->items, waits->cnt, sizeof(uint32_t), compare_sample, (void *)samples);
	return 0;
}

static int make_parts(struct steps *steps, struct step_track *track, const struct samples *samples, struct array *parts)
{
	struct step *all = (struct step *)track->steps;
	struct array waits = {0};
	int err = sort_waits(track, samples, &waits);
	size_t at = 0;

	for (size_t i = 0; i < track->step_cnt && !err; i++) {
		struct tally tally = {0};

		for (int p = 0; p < PHASE__COUNT; p++)
			tally.room[p] = all[i].phase_ns[p];
		for (; at < waits.cnt; at++) {
			struct sample sample = samples__get(samples, ((const uint32_t *)waits.items)[at]);

			if (sample.time_ns >= all[i].end_ns)
				break;
			if (sample.time_ns >= all[i].start_ns)
				add_wait(track, &all[i], &tally, &sample, step_track__phase(track, steps, &sample));
		}
		err = put_parts(&all[i], &tally, parts);
	}
	free(waits.items);
	return err;
}

/* The parts are in one array, which has moved while it grew. */
static void point_to_parts(struct step_track *track, const struct step_part *parts)
{
	struct step *steps = (struct step *)track->steps;

	for (size_t i = 0; i < track->step_cnt; i++) {
		steps[i].parts = parts;
		parts += steps[i].part_cnt;
	}
}

/* ---- collections of garbage ---- */

static void add_pause_to(struct step_track *track, long at, const struct gc_pause *pause, int generation)
{
	struct step *step = (struct step *)track->steps + at;
	uint64_t end_ns = sum__u64(pause->start_ns, pause->duration_ns), left = step__ns(step) - step->gc_ns;
	uint64_t from = pause->start_ns > step->start_ns ? pause->start_ns : step->start_ns;
	uint64_t to = end_ns < step->end_ns ? end_ns : step->end_ns, ns = to > from ? to - from : 0;

	step->gc_ns += ns < left ? ns : left;
	if (generation > (int)step->gc_generation)
		step->gc_generation = generation;
}

/* Of any thread: it holds the GIL meanwhile, so that one lies in a step, or in two. */
static void add_pauses(struct job *job, struct step_track *track, const struct samples *samples)
{
	size_t cnt;
	const struct gc_pause *pauses = samples__gc_pauses(samples, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		int generation = labels__gc_generation(job__name(job, pauses[i].name));
		long first, last;

		if (pauses[i].pid != track->pid)
			continue;
		first = step_track__at(track, pauses[i].start_ns);
		last = step_track__at(track, sum__u64(pauses[i].start_ns, pauses[i].duration_ns));
		if (first >= 0)
			add_pause_to(track, first, &pauses[i], generation);
		if (last >= 0 && last != first)
			add_pause_to(track, last, &pauses[i], generation);
	}
}

/* ---- together ---- */

static int find_slow(struct step_track *track)
{
	uint64_t *durations = malloc((track->step_cnt + 1) * sizeof(*durations));
	struct array slow = {0};
	int err = durations ? 0 : -ENOMEM;

	for (size_t i = 0; durations && i < track->step_cnt; i++)
		durations[i] = step__ns(&track->steps[i]);
	if (durations && track->step_cnt)
		track->rule_of_slow = slow__rule(durations, track->step_cnt);
	free(durations);
	for (size_t i = 0; i < track->step_cnt && !err; i++) {
		uint32_t *slot;

		if (step__ns(&track->steps[i]) <= track->rule_of_slow.limit_ns)
			continue;
		slot = array__add(&slow, sizeof(*slot));
		if (slot)
			*slot = i;
		else
			err = -ENOMEM;
	}
	track->slow = slow.items;
	track->slow_cnt = slow.cnt;
	return err;
}

static uint32_t find_thread(const struct samples *samples, uint32_t pid, uint32_t tid)
{
	uint32_t found_pid, found_tid;

	for (uint32_t i = 1; i < samples__thread_end(samples); i++) {
		samples__thread(samples, i, &found_pid, &found_tid);
		if (found_pid == pid && found_tid == tid)
			return i;
	}
	return 0;
}

static int make_track(struct steps *steps, struct job *job, const struct samples *samples,
		      const struct rec_step *const *boundaries, size_t cnt)
{
	struct step_track *track = array__add(&steps->tracks, sizeof(*track));
	struct array parts = {0};
	int err = track ? make_steps(track, boundaries, cnt) : -ENOMEM;

	if (!err && !track->step_cnt) { /* no track */
		free((void *)track->steps);
		steps->tracks.cnt--;
		return 0;
	}
	if (err)
		return err;
	track->thread = find_thread(samples, track->pid, track->tid);
	err = make_parts(steps, track, samples, &parts);
	if (err) {
		free(parts.items);
		return err;
	}
	point_to_parts(track, parts.items);
	add_pauses(job, track, samples);
	return find_slow(track);
}

static int make(struct steps *steps, struct job *job)
{
	const struct samples *samples = job__samples(job);
	const struct rec_step **boundaries;
	size_t cnt, from = 0;
	int err;

	if (!samples)
		return -ENOMEM;
	boundaries = sort_boundaries(job, &cnt);
	err = boundaries ? classify_paths(steps, job) : -ENOMEM;
	for (size_t i = 1; i <= cnt && !err; i++) {
		if (i < cnt && boundaries[i]->pid == boundaries[from]->pid)
			continue;
		err = make_track(steps, job, samples, boundaries + from, i - from);
		from = i;
	}
	free(boundaries);
	return err;
}

struct steps *steps__new(struct job *job)
{
	struct steps *steps = calloc(1, sizeof(*steps));

	if (steps && make(steps, job)) {
		steps__free(steps);
		steps = NULL;
	}
	return steps;
}

void steps__free(struct steps *steps)
{
	struct step_track *tracks;

	if (!steps)
		return;
	tracks = steps->tracks.items;
	for (size_t i = 0; i < steps->tracks.cnt; i++) {
		if (tracks[i].step_cnt)
			free((void *)tracks[i].steps[0].parts);
		free((void *)tracks[i].steps);
		free((void *)tracks[i].slow);
	}
	free(tracks);
	free(steps->phases);
	free(steps);
}

const struct step_track *steps__tracks(const struct steps *steps, size_t *cnt)
{
	*cnt = steps->tracks.cnt;
	return steps->tracks.items;
}
