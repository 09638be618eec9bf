// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/compare/ranks.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/compare/blocks.h"
#include "user/lib/digits.h"
#include "user/model/processes.h"

#define STRAGGLER_SHARE 0.05 /* of a step */

static int job_rank(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);

	return target ? target->rank : -1;
}

struct rank *ranks__new(const struct job *job, const struct step_track *tracks, size_t cnt)
{
	struct rank *ranks = calloc(cnt + 1, sizeof(*ranks));

	for (size_t i = 0; ranks && i < cnt; i++) {
		struct rank *rank = &ranks[i];

		rank->track = &tracks[i];
		rank->rank = job_rank(job, tracks[i].pid);
		for (size_t s = 0; s < tracks[i].step_cnt; s++)
			step_sum__add(&rank->sum, &tracks[i].steps[s]);
		for (int phase = 0; phase < PHASE__COUNT; phase++)
			for (unsigned int cause = 0; cause < CAUSE__END; cause++)
				if (phase == PHASE_COMM || cause == CAUSE_COLLECTIVE)
					rank->comm_ns += rank->sum.ns[phase][cause];
	}
	return ranks;
}

static double ns_per_step(const struct rank *rank, uint64_t ns)
{
	return (double)ns / rank->sum.step_cnt;
}

/* Mean over the other ranks, each with its own number of steps. */
static double others_comm(const struct rank *ranks, size_t cnt, size_t but)
{
	double sum = 0;

	for (size_t i = 0; i < cnt; i++)
		if (i != but)
			sum += ns_per_step(&ranks[i], ranks[i].comm_ns);
	return sum / (cnt - 1);
}

/* Finds where, outside collectives, the rank's steps exceed those of the others most. */
static void find_more(const struct rank *ranks, size_t cnt, struct straggler *found)
{
	for (int p = 0; p < PHASE__COUNT; p++) {
		for (unsigned int c = 0; c < CAUSE__END; c++) {
			double more = ns_per_step(&ranks[found->index], ranks[found->index].sum.ns[p][c]);

			if (p == PHASE_COMM || c == CAUSE_COLLECTIVE)
				continue;
			for (size_t i = 0; i < cnt; i++)
				if ((long)i != found->index)
					more -= ns_per_step(&ranks[i], ranks[i].sum.ns[p][c]) / (cnt - 1);
			if (more <= found->more_ns)
				continue;
			found->more_ns = more;
			found->phase = p;
			found->cause = c;
		}
	}
}

/* Sets more_ns where a slower CPU explains more of the excess than what was found: no code of the rank's is to blame. */
static void find_slower_cpu(const struct rank *ranks, size_t cnt, struct straggler *found)
{
	double others[PHASE__COUNT] = {0}, own[PHASE__COUNT] = {0}, other_ns = 0, own_ns = 0;

	for (int p = 0; p < PHASE__COUNT; p++) {
		if (p == PHASE_COMM)
			continue;
		for (size_t i = 0; i < cnt; i++) {
			double ns = ns_per_step(&ranks[i], ranks[i].sum.ns[p][CAUSE_NONE]);

			if ((long)i == found->index)
				own[p] = ns;
			else
				others[p] += ns / (cnt - 1);
		}
		own_ns += own[p];
		other_ns += others[p];
	}
	if (own_ns - other_ns <= found->more_ns || !slower_cpu__is_even(others, own))
		return;
	found->more_ns = own_ns - other_ns;
	found->slower = own_ns / other_ns;
	found->cause = CAUSE_NONE;
}

static int say_straggler(double own, double others, struct straggler *found)
{
	int length;

	if (found->slower)
		length = asprintf(&found->why,
				  "it is in collectives for %s ms of a step, the others for %s ms; all its phases "
				  "take %s times as long on the CPU, together %s ms more",
				  DIGITS(own / 1e6, 3), DIGITS(others / 1e6, 3), DIGITS(found->slower, 3),
				  DIGITS(found->more_ns / 1e6, 3));
	else
		length = asprintf(&found->why,
				  "it is in collectives for %s ms of a step, the others for %s ms; it spends %s "
				  "ms more %s%s in %s",
				  DIGITS(own / 1e6, 3), DIGITS(others / 1e6, 3), DIGITS(found->more_ns / 1e6, 3),
				  found->cause ? "waiting: " : "on the CPU", sample_cause__name(found->cause),
				  phase__name(found->phase));
	if (length < 0)
		found->why = NULL;
	return length < 0 ? -ENOMEM : 0;
}

/*
 * Adds samples of that phase and cause: those of the straggler to slot 0, of the others to slot 1;
 * and all samples of the others to slot 2.
 */
static int add_straggler_samples(struct job *job, const struct steps *steps, const struct rank *ranks, size_t cnt,
				 const struct straggler *found, struct places *places)
{
	const struct samples *samples = job__samples(job);
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; samples && i < samples__cnt(samples) && !err; i++) {
		uint32_t thread = samples__thread_of(samples, i);

		for (size_t r = 0; r < cnt && !err; r++) {
			const struct step_track *track = ranks[r].track;
			struct sample sample;

			if (!track->thread || track->thread != thread)
				continue;
			sample = samples__get(samples, i);
			if (step_track__at(track, sample.time_ns) < 0)
				continue;
			if ((long)r != found->index)
				err = places__add(places, 2, &sample);
			if (!err && sample.cause == found->cause &&
			    step_track__phase(track, steps, &sample) == found->phase)
				err = places__add(places, (long)r != found->index, &sample);
		}
	}
	return err;
}

static int find_straggler_place(struct job *job, const struct steps *steps, const struct rank *ranks, size_t cnt,
				struct straggler *found)
{
	static const bool slots[][3] = {{true, false, false}, {false, true, false}, {false, false, true}};
	double own = ranks[found->index].sum.step_cnt, others = -own;
	struct places places = {.job = job};
	int err;

	for (size_t i = 0; i < cnt; i++)
		others += ranks[i].sum.step_cnt;
	err = add_straggler_samples(job, steps, ranks, cnt, found, &places);
	if (!err && others) {
		struct place_question ask = {{slots[0], 3, own}, {slots[1], 3, others}, {slots[2], 3, others}};

		err = places__find(&places, &ask, &found->place);
	}
	places__free(&places);
	return err;
}

static size_t find_least(const struct rank *ranks, size_t cnt)
{
	size_t least = 0;

	for (size_t i = 1; i < cnt; i++)
		if (ns_per_step(&ranks[i], ranks[i].comm_ns) < ns_per_step(&ranks[least], ranks[least].comm_ns))
			least = i;
	return least;
}

static uint64_t comm_of(const struct step *step)
{
	uint64_t ns = 0;

	for (uint32_t i = 0; i < step->part_cnt; i++)
		if (step->parts[i].phase == PHASE_COMM || step->parts[i].cause == CAUSE_COLLECTIVE)
			ns += step->parts[i].ns;
	return ns;
}

/* Time in collectives per step in each block; NAN: no step ends there. */
static void comm_by_block(const struct rank *rank, const struct blocks *blocks, double per_step[BLOCKS_MAX])
{
	uint64_t ns[BLOCKS_MAX] = {0}, cnt[BLOCKS_MAX] = {0};

	for (size_t i = 0; i < rank->track->step_cnt; i++) {
		int at = blocks__at(blocks, rank->track->steps[i].end_ns);

		if (at < 0)
			continue;
		ns[at] += comm_of(&rank->track->steps[i]);
		cnt[at]++;
	}
	for (size_t b = 0; b < blocks->cnt; b++)
		per_step[b] = cnt[b] ? (double)ns[b] / cnt[b] : NAN;
}

/*
 * The error (95 %) of how much longer the others are in collectives than one rank. Ranks that take
 * each other's CPUs are late in turn, which is no straggler. NAN: not known.
 */
static double straggler_error(const struct rank *ranks, size_t cnt, size_t least)
{
	const struct step_track *track = ranks[least].track;
	double own[BLOCKS_MAX], other[BLOCKS_MAX], more[BLOCKS_MAX] = {0};
	struct blocks blocks = {0};
	size_t known = 0;

	blocks__of_time(&blocks, track->steps[0].start_ns, track->steps[track->step_cnt - 1].end_ns);
	comm_by_block(&ranks[least], &blocks, own);
	for (size_t i = 0; i < cnt; i++) {
		if (i == least)
			continue;
		comm_by_block(&ranks[i], &blocks, other);
		for (size_t b = 0; b < blocks.cnt; b++)
			more[b] += (other[b] - own[b]) / (cnt - 1);
	}
	for (size_t b = 0; b < blocks.cnt; b++)
		if (!isnan(more[b]))
			more[known++] = more[b];
	return block_values__error(more, known);
}

/* ---- ranks that are last in turn ---- */

#define TURNS      2    /* times as long in collectives as who is last */
#define SAME_STEPS 0.25 /* of a step: ranks that wait for each other have steps that differ by less */
#define HALF       0.5

struct turn_sums {
	double steps, least_ns, mean_ns, off_ns, all_ns;
	double more_ns[PHASE__COUNT][CAUSE__END]; /* of who is last, beyond the mean of all */
};

/* The steps of all ranks at an instant, of which *last is the shortest time in collectives. false: not all have one. */
static bool steps_at(const struct rank *ranks, size_t cnt, uint64_t time_ns, const struct step **at, size_t *last)
{
	*last = 0;
	for (size_t i = 0; i < cnt; i++) {
		long step = step_track__at(ranks[i].track, time_ns);

		if (step < 0)
			return false;
		at[i] = &ranks[i].track->steps[step];
		*last = comm_of(at[i]) < comm_of(at[*last]) ? i : *last;
	}
	return true;
}

static void add_turn(const struct step **at, size_t cnt, size_t last, struct turn_sums *sums)
{
	sums->steps++;
	sums->least_ns += comm_of(at[last]);
	sums->all_ns += step__ns(at[0]);
	for (size_t i = 0; i < cnt; i++) {
		sums->mean_ns += (double)comm_of(at[i]) / cnt;
		sums->off_ns += fabs((double)step__ns(at[i]) - step__ns(at[0])) / cnt;
		for (uint32_t p = 0; p < at[i]->part_cnt; p++) {
			const struct step_part *part = &at[i]->parts[p];

			sums->more_ns[part->phase][part->cause] += part->ns * ((i == last) - 1.0 / cnt);
		}
	}
}

static bool share_machine(const struct rank *ranks, size_t cnt)
{
	for (size_t i = 1; i < cnt; i++)
		if (ranks[i].track->pid >> REC_PID_BITS != ranks[0].track->pid >> REC_PID_BITS)
			return false;
	return true;
}

static void set_turns(const struct turn_sums *sums, struct turns *turns)
{
	double most = 0;

	for (int p = 0; p < PHASE__COUNT; p++)
		for (unsigned int c = 0; c < CAUSE__END; c++) {
			if (p == PHASE_COMM || c == CAUSE_COLLECTIVE || sums->more_ns[p][c] <= most)
				continue;
			most = sums->more_ns[p][c];
			turns->phase = p;
			turns->cause = c;
		}
	turns->waits_ns = (sums->mean_ns - sums->least_ns) / sums->steps;
	turns->collectives_ns = sums->least_ns / sums->steps;
}

/*
 * What a collective takes itself is what the rank has that comes last to it. Ranks of several machines are not asked: their clocks
 * may be off by a step. 0 or -ENOMEM.
 */
static int find_turns(const struct rank *ranks, size_t cnt, struct turns *turns)
{
	const struct step_track *track = ranks[0].track;
	const struct step **at = calloc(cnt + 1, sizeof(*at));
	struct turn_sums *sums = calloc(1, sizeof(*sums));
	bool known = at && sums && share_machine(ranks, cnt);
	int err = at && sums ? 0 : -ENOMEM;
	size_t last;

	for (size_t i = 0; known && i < track->step_cnt; i++)
		if (steps_at(ranks, cnt, track->steps[i].start_ns + step__ns(&track->steps[i]) / 2, at, &last))
			add_turn(at, cnt, last, sums);
	known = known && sums->steps >= SLOW_MIN_CNT && sums->steps >= HALF * track->step_cnt &&
		sums->off_ns <= SAME_STEPS * sums->all_ns;
	if (known && sums->mean_ns >= TURNS * sums->least_ns &&
	    sums->mean_ns - sums->least_ns >= STRAGGLER_SHARE * sums->all_ns)
		set_turns(sums, turns);
	free(at);
	free(sums);
	return err;
}

/* As ranks__straggler, of two ranks or more that are all in collectives. */
static int find_straggler(struct job *job, const struct steps *steps, const struct rank *ranks, size_t cnt,
			  struct straggler *found)
{
	size_t least = find_least(ranks, cnt);
	double own = ns_per_step(&ranks[least], ranks[least].comm_ns), others = others_comm(ranks, cnt, least);

	if (others - own < STRAGGLER_SHARE * ranks[least].track->rule_of_slow.median_ns ||
	    others - own < straggler_error(ranks, cnt, least))
		return find_turns(ranks, cnt, &found->turns);
	found->index = (long)least;
	find_more(ranks, cnt, found);
	find_slower_cpu(ranks, cnt, found);
	if (say_straggler(own, others, found))
		return -ENOMEM;
	if (found->slower) /* wherever it is */
		return 0;
	return find_straggler_place(job, steps, ranks, cnt, found);
}

static void name_straggler(const struct rank *ranks, size_t cnt, struct straggler *found)
{
	bool unique = true;

	found->rank = ranks[found->index].rank;
	for (size_t i = 0; i < cnt; i++)
		unique &= (long)i == found->index || ranks[i].rank != found->rank;
	if (found->rank >= 0 && unique)
		snprintf(found->name, sizeof(found->name), "rank %d", found->rank);
	else
		snprintf(found->name, sizeof(found->name), "process %u",
			 (unsigned int)REC_PID(ranks[found->index].track->pid));
}

void straggler__release(struct straggler *straggler)
{
	free(straggler->why);
	*straggler = (struct straggler){.index = -1};
}

/* A process that is in no collective belongs to another job, and nobody waits for it. */
static bool is_in_collectives(const struct rank *rank)
{
	return rank->comm_ns && rank->sum.step_cnt;
}

/* Those that are in collectives with the rank at `first`, as far as their jobs are known; marks them as taken. Returns their number. */
static size_t take_job(struct job *job, const struct rank *ranks, size_t cnt, size_t first, bool *taken,
		       struct rank *of_job, size_t *index)
{
	size_t of_job_cnt = 0;

	for (size_t i = first; i < cnt && is_in_collectives(&ranks[first]); i++) {
		if (taken[i] || !is_in_collectives(&ranks[i]) ||
		    processes__of_other_jobs(job, ranks[first].track->pid, ranks[i].track->pid))
			continue;
		taken[i] = true;
		index[of_job_cnt] = i;
		of_job[of_job_cnt++] = ranks[i];
	}
	return of_job_cnt;
}

static double straggler_share(const struct rank *ranks, const struct straggler *found)
{
	return found->index < 0 ? 0 : found->more_ns / ranks[found->index].track->rule_of_slow.median_ns;
}

/* Keeps the one that its others wait for longer. */
static void keep_worse(const struct rank *ranks, struct straggler *found, struct straggler *other)
{
	bool compared = found->compared || other->compared;

	if (straggler_share(ranks, other) > straggler_share(ranks, found) ||
	    (found->index < 0 && (other->index >= 0 || other->turns.waits_ns > found->turns.waits_ns))) {
		straggler__release(found);
		*found = *other;
	} else {
		straggler__release(other);
	}
	found->compared = compared;
}

int ranks__straggler(struct job *job, const struct steps *steps, const struct rank *ranks, size_t cnt,
		     struct straggler *found)
{
	struct rank *of_job = calloc(cnt + 1, sizeof(*of_job));
	size_t *index = calloc(cnt + 1, sizeof(*index));
	bool *taken = calloc(cnt + 1, sizeof(*taken));
	int err = of_job && index && taken ? 0 : -ENOMEM;

	*found = (struct straggler){.index = -1};
	for (size_t first = 0; first < cnt && !err; first++) {
		struct straggler one = {.index = -1};
		size_t of_job_cnt = taken[first] ? 0 : take_job(job, ranks, cnt, first, taken, of_job, index);

		if (of_job_cnt < 2)
			continue;
		one.compared = true;
		err = find_straggler(job, steps, of_job, of_job_cnt, &one);
		if (one.index >= 0) {
			one.index = (long)index[one.index];
			name_straggler(ranks, cnt, &one);
		}
		keep_worse(ranks, found, &one);
	}
	free(of_job);
	free(index);
	free(taken);
	return err;
}
