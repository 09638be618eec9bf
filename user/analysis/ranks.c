// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Is it in collectives? A process that is in none belongs to another job, and nobody waits for it. */
static bool has_comm(const struct rank *rank)
{
	return rank->comm_ns && rank->sum.step_cnt;
}

static size_t count_others(const struct rank *ranks, size_t cnt, size_t but)
{
	size_t others = 0;

	for (size_t i = 0; i < cnt; i++)
		others += i != but && has_comm(&ranks[i]);
	return others;
}

/* Mean over the other ranks, each with its own number of steps. */
static double others_comm(const struct rank *ranks, size_t cnt, size_t but)
{
	double sum = 0;

	for (size_t i = 0; i < cnt; i++)
		if (i != but && has_comm(&ranks[i]))
			sum += ns_per_step(&ranks[i], ranks[i].comm_ns);
	return sum / count_others(ranks, cnt, but);
}

/* Finds where, outside collectives, the rank's steps exceed those of the others most. */
static void find_more(const struct rank *ranks, size_t cnt, struct straggler *found)
{
	size_t others = count_others(ranks, cnt, found->index);

	for (int p = 0; p < PHASE__COUNT; p++) {
		for (unsigned int c = 0; c < CAUSE__END; c++) {
			double more = ns_per_step(&ranks[found->index], ranks[found->index].sum.ns[p][c]);

			if (p == PHASE_COMM || c == CAUSE_COLLECTIVE)
				continue;
			for (size_t i = 0; i < cnt; i++)
				if ((long)i != found->index && has_comm(&ranks[i]))
					more -= ns_per_step(&ranks[i], ranks[i].sum.ns[p][c]) / others;
			if (more <= found->more_ns)
				continue;
			found->more_ns = more;
			found->phase = p;
			found->cause = c;
		}
	}
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

			if (!has_comm(&ranks[r]) || !track->thread || track->thread != thread)
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
		others += has_comm(&ranks[i]) ? ranks[i].sum.step_cnt : 0;
	err = add_straggler_samples(job, steps, ranks, cnt, found, &places);
	if (!err && others) {
		struct place_question ask = {{slots[0], 3, own}, {slots[1], 3, others}, {slots[2], 3, others}};

		err = places__find(&places, &ask, &found->place);
	}
	places__free(&places);
	return err;
}

/* -1: there are not two to compare. */
static long find_least(const struct rank *ranks, size_t cnt)
{
	long least = -1;

	for (size_t i = 0; i < cnt; i++)
		if (has_comm(&ranks[i]) && (least < 0 || ns_per_step(&ranks[i], ranks[i].comm_ns) <
								 ns_per_step(&ranks[least], ranks[least].comm_ns)))
			least = (long)i;
	return least >= 0 && count_others(ranks, cnt, least) ? least : -1;
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

int ranks__straggler(struct job *job, const struct steps *steps, const struct rank *ranks, size_t cnt,
		     struct straggler *found)
{
	double own, others;

	*found = (struct straggler){.index = find_least(ranks, cnt)};
	found->compared = found->index >= 0;
	if (!found->compared)
		return 0;
	own = ns_per_step(&ranks[found->index], ranks[found->index].comm_ns);
	others = others_comm(ranks, cnt, found->index);
	if (others - own < STRAGGLER_SHARE * ranks[found->index].track->rule_of_slow.median_ns) {
		found->index = -1;
		return 0;
	}
	name_straggler(ranks, cnt, found);
	find_more(ranks, cnt, found);
	if (asprintf(&found->why,
		     "it is in collectives for %.3g ms of a step, the others for %.3g ms; it spends %.3g ms more %s%s "
		     "in %s",
		     own / 1e6, others / 1e6, found->more_ns / 1e6, found->cause ? "waiting: " : "on the CPU",
		     sample_cause__name(found->cause), phase__name(found->phase)) < 0) {
		found->why = NULL;
		return -ENOMEM;
	}
	return find_straggler_place(job, steps, ranks, cnt, found);
}

void straggler__release(struct straggler *straggler)
{
	free(straggler->why);
	*straggler = (struct straggler){.index = -1};
}
