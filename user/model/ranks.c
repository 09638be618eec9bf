// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>

#define STRAGGLER_SHARE 0.05 /* of a step */

static int rank_of(const struct job *job, uint32_t pid)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (targets[i].pid == pid)
			return targets[i].rank;
	return -1;
}

struct rank *ranks__new(const struct job *job, const struct step_track *tracks, size_t cnt)
{
	struct rank *ranks = calloc(cnt + 1, sizeof(*ranks));

	for (size_t i = 0; ranks && i < cnt; i++) {
		struct rank *rank = &ranks[i];

		rank->track = &tracks[i];
		rank->rank = rank_of(job, tracks[i].pid);
		for (size_t s = 0; s < tracks[i].step_cnt; s++)
			step_sum__add(&rank->sum, &tracks[i].steps[s]);
		for (int phase = 0; phase < PHASE__COUNT; phase++)
			for (unsigned int cause = 0; cause < CAUSE__END; cause++)
				if (phase == PHASE_COMM || cause == CAUSE_COLLECTIVE)
					rank->comm_ns += rank->sum.ns[phase][cause];
	}
	return ranks;
}

static double each(const struct rank *rank, uint64_t ns)
{
	return (double)ns / rank->sum.step_cnt;
}

/* Mean over the others, each with its own count of steps. */
static double others_comm(const struct rank *ranks, size_t cnt, size_t but)
{
	double sum = 0;

	for (size_t i = 0; i < cnt; i++)
		if (i != but)
			sum += each(&ranks[i], ranks[i].comm_ns);
	return sum / (cnt - 1);
}

/* Where outside of collectives a rank spends most more than the others. *phase and *cause; how much, in ns a step. */
static double find_more(const struct rank *ranks, size_t cnt, size_t rank, int *phase, unsigned int *cause)
{
	double best = 0;

	for (int p = 0; p < PHASE__COUNT; p++) {
		for (unsigned int c = 0; c < CAUSE__END; c++) {
			double more = each(&ranks[rank], ranks[rank].sum.ns[p][c]);

			if (p == PHASE_COMM || c == CAUSE_COLLECTIVE)
				continue;
			for (size_t i = 0; i < cnt; i++)
				if (i != rank)
					more -= each(&ranks[i], ranks[i].sum.ns[p][c]) / (cnt - 1);
			if (more <= best)
				continue;
			best = more;
			*phase = p;
			*cause = c;
		}
	}
	return best;
}

long ranks__straggler(const struct rank *ranks, size_t cnt, char **why)
{
	double own, others, more;
	unsigned int cause = 0;
	size_t least = 0;
	int phase = 0;

	*why = NULL;
	for (size_t i = 0; i < cnt; i++) {
		if (ranks[i].rank < 0)
			return -1;
		if (each(&ranks[i], ranks[i].comm_ns) < each(&ranks[least], ranks[least].comm_ns))
			least = i;
	}
	if (cnt < 2)
		return -1;
	own = each(&ranks[least], ranks[least].comm_ns);
	others = others_comm(ranks, cnt, least);
	if (others - own < STRAGGLER_SHARE * ranks[least].track->rule_of_slow.median_ns)
		return -1;
	more = find_more(ranks, cnt, least, &phase, &cause);
	if (asprintf(why,
		     "it is in collectives for %.3g ms of a step, the others for %.3g ms; it spends %.3g ms more %s%s "
		     "in %s",
		     own / 1e6, others / 1e6, more / 1e6, cause ? "waiting: " : "on the CPU", sample_cause__name(cause),
		     phase__name(phase)) < 0)
		*why = NULL;
	return (long)least;
}
