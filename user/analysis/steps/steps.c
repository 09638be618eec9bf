// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Steps lie between the boundaries of boundaries.h. The boundaries of a step give its phases. Its
 * waits are those of its thread that ended in it, each in the phase of its spans; the rest of a
 * phase is time on the CPU: also what autograd's engine does on threads of its own in backward, for
 * which the thread waits, and less the share of samples in which the thread spins until a GPU is
 * ready. If the records claim more time than the step has, misfit_ns counts the excess, so that the
 * parts always add up to the step.
 */
#include "user/analysis/steps/steps.h"

#include <errno.h>
#include <stdlib.h>

#include "include/phases.h"
#include "user/analysis/steps/in_front.h"
#include "user/lib/array.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/boundaries.h"
#include "user/model/labels.h"
#include "user/model/stacks.h"

struct steps {
	struct array tracks; /* struct step_track; owns what they point to */
	uint8_t *phases;     /* enum phase by path */
	bool *is_plain;      /* by path: PHASE_FORWARD, of a forward that the kernel derived */
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
	if (!track->has_phases)
		return PHASE_OTHER;
	if (track->in_front && steps->is_plain[sample->path])
		return track->in_front[sample->stack];
	return steps->phases[sample->path];
}

static int classify_paths(struct steps *steps, struct job *job)
{
	const struct stacks *stacks = job__stacks(job);
	size_t end = stacks__path_end(stacks);

	steps->phases = calloc(end, sizeof(*steps->phases));
	steps->is_plain = calloc(end, sizeof(*steps->is_plain));
	if (!steps->phases || !steps->is_plain)
		return -ENOMEM;
	for (size_t i = 0; i < end; i++) {
		struct path path = stacks__path(stacks, i);

		for (uint32_t s = 0; s < path.cnt; s++) {
			steps->phases[i] =
				phase__inside(steps->phases[i],
					      labels__phase(path.spans[s].kind, job__name(job, path.spans[s].name)));
			steps->is_plain[i] |= path.spans[s].kind == SPAN_FORWARD;
		}
		steps->is_plain[i] &= steps->phases[i] == PHASE_FORWARD;
	}
	return 0;
}

/* ---- boundaries to steps ---- */

/* Adds the phases between two boundaries of a thread, as the rule of its steps defines them. */
static void add_phases(uint64_t totals[PHASE__COUNT], const struct rec_step *end, uint32_t rule)
{
	uint64_t forward_ns = 0;

	if (end->rule == rule)
		forward_ns =
			end->forward_ns < end->phase_ns[PHASE_OTHER] ? end->forward_ns : end->phase_ns[PHASE_OTHER];
	for (int p = 0; p < PHASE__COUNT; p++)
		totals[p] = saturating__add(totals[p], end->phase_ns[p] - (p == PHASE_OTHER ? forward_ns : 0));
	totals[PHASE_FORWARD] = saturating__add(totals[PHASE_FORWARD], forward_ns);
}

/* Time without a phase goes to PHASE_OTHER. */
static void set_phases(struct step_track *track, struct step *step, const uint64_t said_ns[PHASE__COUNT])
{
	uint64_t left = step__ns(step);

	for (int p = 0; p < PHASE__COUNT; p++) {
		uint64_t ns = said_ns[p] < left ? said_ns[p] : left;

		track->has_phases |= ns > 0;
		if (p == PHASE_OTHER)
			continue;
		step->phase_ns[p] = ns;
		left -= ns;
		track->misfit_ns = saturating__add(track->misfit_ns, said_ns[p] - ns);
	}
	step->phase_ns[PHASE_OTHER] = left;
	if (said_ns[PHASE_OTHER] > left)
		track->misfit_ns = saturating__add(track->misfit_ns, said_ns[PHASE_OTHER] - left);
}

static int make_steps(struct step_track *track, const struct boundaries *boundaries, const struct boundary_track *of)
{
	struct step *steps = calloc(of->cnt, sizeof(*steps));
	size_t from, to = 0, before = 0;
	uint64_t number = 0; /* where not each boundary ends a step */

	track->steps = steps;
	if (!steps)
		return -ENOMEM;
	track->pid = of->pid;
	track->tid = of->tid;
	track->rule = boundary_track__rule(of);
	track->lost = of->lost;
	while (boundaries__next(boundaries, of, &from, &to)) {
		struct step *step = &steps[track->step_cnt];
		uint64_t said_ns[PHASE__COUNT] = {0};

		number += from == before ? 1 : 2; /* steps are missing: no rhythm goes over that */
		before = to;
		if (track->step_cnt && of->all[from]->time_ns < step[-1].end_ns)
			continue; /* corrupt recording */
		track->step_cnt++;
		*step = (struct step){.start_ns = of->all[from]->time_ns,
				      .end_ns = of->all[to]->time_ns,
				      .index = of->by_zero_grad ? number : of->all[to]->index};
		track->total_ns += step__ns(step);
		for (size_t i = from + 1; i <= to; i++)
			add_phases(said_ns, of->all[i], of->rule);
		set_phases(track, step, said_ns);
	}
	return 0;
}

long step_track__at(const struct step_track *track, uint64_t time_ns)
{
	size_t low = SEARCH(i, 0, track->step_cnt, track->steps[i].start_ns <= time_ns);
	return low && time_ns < track->steps[low - 1].end_ns ? (long)low - 1 : -1;
}

/* ---- waits ---- */

/* Adds up the parts of one step. */
struct step_split {
	uint64_t remaining_ns[PHASE__COUNT], engine_ns[PHASE__COUNT];
	uint64_t ns[PHASE__COUNT][CAUSE__END];
};

/* The part of a phase of which it is not known yet that it was a wait, or autograd's engine. */
static uint64_t own_ns(const struct step_split *split, enum phase phase)
{
	uint64_t left = split->remaining_ns[phase], engine = split->engine_ns[phase];

	return left > engine ? left - engine : 0;
}

/* Moves time of a step that the kernel counted as forward. */
static void move_forward(struct step_track *track, struct step *step, struct step_split *split, enum phase phase,
			 uint64_t ns)
{
	if (ns > split->remaining_ns[PHASE_FORWARD])
		ns = split->remaining_ns[PHASE_FORWARD];
	split->remaining_ns[PHASE_FORWARD] -= ns;
	split->remaining_ns[phase] += ns;
	step->phase_ns[PHASE_FORWARD] -= ns;
	step->phase_ns[phase] += ns;
	track->moved_ns[phase] = saturating__add(track->moved_ns[phase], ns);
}

/*
 * Several short waits that one sample stands for may have been in other phases or steps; they count
 * where their sample is, as far as there is room. What Lightning's evaluation loop does between its
 * actions is validation, although no span says so.
 */
static void add_wait(struct steps *steps, struct step_track *track, struct step *step, struct step_split *split,
		     const struct sample *sample, bool for_engine)
{
	uint64_t ns = sample->weight_ns, since_start = sample->time_ns - step->start_ns;
	enum phase phase = step_track__phase(track, steps, sample);

	if (sample->waits <= 1 && ns > since_start)
		ns = since_start;
	if (steps->is_plain[sample->path] && phase != PHASE_FORWARD)
		move_forward(track, step, split, phase, ns);
	else if (phase == PHASE_OTHER && ns > own_ns(split, phase) && step->phase_ns[PHASE_VALIDATION])
		phase = PHASE_VALIDATION;
	if (ns > own_ns(split, phase))
		ns = own_ns(split, phase);
	if (for_engine) {
		split->engine_ns[phase] += ns;
	} else {
		split->remaining_ns[phase] -= ns;
		split->ns[phase][sample->cause] += ns;
	}
	track->misfit_ns = saturating__add(track->misfit_ns, sample->weight_ns - ns);
}

/* Appends step->part_cnt parts to the array. 0 or -ENOMEM. */
static int put_parts(struct step *step, struct step_split *split, struct array *parts)
{
	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		split->ns[phase][CAUSE_NONE] = split->remaining_ns[phase];
		for (unsigned int cause = 0; cause < CAUSE__END && step->phase_ns[phase]; cause++) {
			struct step_part *part;

			if (!split->ns[phase][cause])
				continue;
			part = array__add(parts, sizeof(*part));
			if (!part)
				return -ENOMEM;
			*part = (struct step_part){phase, cause, split->ns[phase][cause]};
			step->part_cnt++;
		}
	}
	return 0;
}

static int compare_sample(const void *a, const void *b, void *samples)
{
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	struct sample x = samples__get(samples, i), y = samples__get(samples, k);

	return x.time_ns != y.time_ns ? COMPARE(x.time_ns, y.time_ns) : COMPARE(i, k);
}

/* Lists the waits (uint32_t) of the track's thread by time. Nearly all arrive sorted. 0 or -ENOMEM. */
static int sort_waits(const struct step_track *track, const struct by_thread *by_thread, struct array *waits)
{
	bool sorted = true;
	uint64_t last_ns = 0;

	for (size_t i = 0; track->thread && i < by_thread__cnt(by_thread, track->thread); i++) {
		struct sample sample = by_thread__get(by_thread, track->thread, i);
		uint32_t *slot;

		if (sample.kind != SAMPLE_WAIT)
			continue;
		slot = array__add(waits, sizeof(*slot));
		if (!slot)
			return -ENOMEM;
		*slot = by_thread__index(by_thread, track->thread, i);
		sorted &= sample.time_ns >= last_ns;
		last_ns = sample.time_ns;
	}
	if (!sorted)
		qsort_r(waits->items, waits->cnt, sizeof(uint32_t), compare_sample, (void *)by_thread->samples);
	return 0;
}

/* Of the time on the CPU only the share in all steps is known. */
static void move_cpu(struct step_track *track, struct step *step, struct step_split *split,
		     const double cpu[PHASE__COUNT])
{
	uint64_t forward_ns = split->remaining_ns[PHASE_FORWARD];

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		if (phase != PHASE_FORWARD)
			move_forward(track, step, split, phase, cpu[phase] * forward_ns);
}

/* By phase: the share of its samples on the CPU in which the thread spins until a GPU is ready. */
static void find_spins(const struct steps *steps, const struct step_track *track, const struct by_thread *by_thread,
		       double spins[PHASE__COUNT])
{
	double all_ns[PHASE__COUNT] = {0};

	for (size_t i = 0; track->thread && i < by_thread__cnt(by_thread, track->thread); i++) {
		struct sample sample = by_thread__get(by_thread, track->thread, i);
		enum phase phase = step_track__phase(track, steps, &sample);

		if (sample.kind != SAMPLE_CPU || step_track__at(track, sample.time_ns) < 0)
			continue;
		all_ns[phase] += sample.weight_ns;
		if (samples__awaits_gpu(by_thread->samples, sample.path))
			spins[phase] += sample.weight_ns;
	}
	for (int phase = 0; phase < PHASE__COUNT; phase++)
		spins[phase] = all_ns[phase] > 0 ? spins[phase] / all_ns[phase] : 0;
}

static void move_spins(struct step_split *split, const double spins[PHASE__COUNT])
{
	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		uint64_t ns = spins[phase] * own_ns(split, phase);

		split->remaining_ns[phase] -= ns;
		split->ns[phase][CAUSE_GPU_SYNC] += ns;
	}
}

static int make_parts(struct steps *steps, struct step_track *track, const struct by_thread *by_thread,
		      struct array *parts, const struct in_front *front)
{
	double spins[PHASE__COUNT] = {0};
	struct step *all = (struct step *)track->steps;
	struct array waits = {0};
	int err = sort_waits(track, by_thread, &waits);
	size_t at = 0;

	find_spins(steps, track, by_thread, spins);
	for (size_t i = 0; i < track->step_cnt && !err; i++) {
		struct step_split split = {0};

		for (int p = 0; p < PHASE__COUNT; p++)
			split.remaining_ns[p] = all[i].phase_ns[p];
		for (; at < waits.cnt; at++) {
			struct sample sample = samples__get(by_thread->samples, ((const uint32_t *)waits.items)[at]);

			if (sample.time_ns >= all[i].end_ns)
				break;
			if (sample.time_ns >= all[i].start_ns)
				add_wait(steps, track, &all[i], &split, &sample,
					 samples__runs_backward(by_thread->samples, &sample));
		}
		if (front->phases)
			move_cpu(track, &all[i], &split, front->cpu);
		move_spins(&split, spins);
		err = put_parts(&all[i], &split, parts);
	}
	free(waits.items);
	return err;
}

/* All parts share one array, which moved while it grew. */
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
	uint64_t end_ns = saturating__add(pause->start_ns, pause->duration_ns), left = step__ns(step) - step->gc_ns;
	uint64_t from = pause->start_ns > step->start_ns ? pause->start_ns : step->start_ns;
	uint64_t to = end_ns < step->end_ns ? end_ns : step->end_ns, ns = to > from ? to - from : 0;

	step->gc_ns += ns < left ? ns : left;
	if (generation > (int)step->gc_generation)
		step->gc_generation = generation;
}

/* Counts collections of any thread: a collection holds the GIL, and lies in one step, or in two. */
static void count_pauses(struct job *job, struct step_track *track, const struct samples *samples)
{
	size_t cnt;
	const struct gc_pause *pauses = samples__gc_pauses(samples, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		int generation = labels__gc_generation(job__name(job, pauses[i].name));
		long first, last;

		if (pauses[i].pid != track->pid)
			continue;
		first = step_track__at(track, pauses[i].start_ns);
		last = step_track__at(track, saturating__add(pauses[i].start_ns, pauses[i].duration_ns));
		if (first >= 0)
			add_pause_to(track, first, &pauses[i], generation);
		if (last >= 0 && last != first)
			add_pause_to(track, last, &pauses[i], generation);
	}
}

/* ---- together ---- */

static int find_slow_steps(struct step_track *track)
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

static int make_track(struct steps *steps, struct job *job, const struct by_thread *by_thread,
		      const struct boundaries *boundaries, const struct boundary_track *of)
{
	struct step_track *track = array__add(&steps->tracks, sizeof(*track));
	struct array parts = {0};
	struct in_front front = {0};
	int err = track ? make_steps(track, boundaries, of) : -ENOMEM;

	if (!err && !track->step_cnt) { /* a track needs steps */
		free((void *)track->steps);
		steps->tracks.cnt--;
		return 0;
	}
	if (err)
		return err;
	track->thread = by_thread__find(by_thread, track->pid, track->tid);
	err = find_slow_steps(track) ?: in_front__find(job, by_thread, track, steps, steps->is_plain, &front);
	track->in_front = front.phases;
	err = err ?: make_parts(steps, track, by_thread, &parts, &front);
	if (err) {
		free(parts.items);
		return err;
	}
	point_to_parts(track, parts.items);
	count_pauses(job, track, by_thread->samples);
	return 0;
}

static int make_step_tracks(struct steps *steps, struct job *job)
{
	const struct samples *samples = job__samples(job);
	struct boundaries *boundaries = samples ? boundaries__new(job) : NULL;
	struct by_thread by_thread = {0};
	const struct boundary_track *tracks;
	size_t cnt;
	int err;

	if (!boundaries)
		return -ENOMEM;
	tracks = boundaries__tracks(boundaries, &cnt);
	err = by_thread__new(samples, &by_thread) ?: classify_paths(steps, job);
	for (size_t i = 0; i < cnt && !err; i++)
		err = make_track(steps, job, &by_thread, boundaries, &tracks[i]);
	by_thread__release(&by_thread);
	boundaries__free(boundaries);
	return err;
}

struct steps *steps__new(struct job *job)
{
	struct steps *steps = calloc(1, sizeof(*steps));

	if (steps && make_step_tracks(steps, job)) {
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
		free((void *)tracks[i].in_front);
	}
	free(tracks);
	free(steps->phases);
	free(steps->is_plain);
	free(steps);
}

const struct step_track *steps__tracks(const struct steps *steps, size_t *cnt)
{
	*cnt = steps->tracks.cnt;
	return steps->tracks.items;
}
