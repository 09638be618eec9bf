// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds slow steps whose CPU was slower, and which did no more than others: a hypervisor took the
 * CPU meanwhile, another program used the same core, caches or memory. Then each phase takes longer
 * by about the same factor, the optimizer's too, whose work is the same whatever the batch is; and
 * the steps come in no rhythm.
 */
#include <errno.h>
#include <stdlib.h>

#include "user/analysis/blame_private.h"

#define STEPS_LEAST 8
#define PHASE_PART  0.04 /* of an ordinary step's time on the CPU: smaller phases are not compared */
#define PHASES      3    /* least number of them, with the optimizer */
#define EVEN_LEAST  0.6  /* of the excess that a phase has if all have the same factor */
#define EVEN_MOST   1.6

static bool is_on_cpu(const struct blame_builder *b, size_t slow)
{
	return b->slow[slow].cause == CAUSE_NONE;
}

static bool has_rhythm(const struct blame_builder *b, uint64_t *indexes, uint64_t *over_ns)
{
	size_t cnt = 0;

	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		if (!is_on_cpu(b, i))
			continue;
		indexes[cnt] = b->track->steps[b->track->slow[i]].index;
		over_ns[cnt++] = b->blame->steps[i].over_ns;
	}
	return rhythm__find(indexes, over_ns, cnt, false).shortest;
}

/* Whether each phase of these steps takes longer by about the same factor. */
static bool is_even(const struct blame *blame, const struct step_sum *sum)
{
	double ordinary[PHASE__COUNT], all = 0, over = 0;
	int phases = 0;

	for (int p = 0; p < PHASE__COUNT; p++) {
		ordinary[p] = blame__ordinary(blame, blame->all.ns[p][CAUSE_NONE], blame->slow.ns[p][CAUSE_NONE]);
		all += ordinary[p];
		over += (double)sum->ns[p][CAUSE_NONE] / sum->step_cnt - ordinary[p];
	}
	if (over <= 0 || ordinary[PHASE_OPTIMIZER] < PHASE_PART * all)
		return false;
	for (int p = 0; p < PHASE__COUNT; p++) {
		double even = over * ordinary[p] / all;
		double is = (double)sum->ns[p][CAUSE_NONE] / sum->step_cnt - ordinary[p];

		if (ordinary[p] < PHASE_PART * all)
			continue;
		phases++;
		if (is < EVEN_LEAST * even || is > EVEN_MOST * even)
			return false;
	}
	return phases >= PHASES;
}

int blame_builder__find_slower_cpu(struct blame_builder *b)
{
	size_t room = b->track->slow_cnt + 1;
	uint64_t *indexes = calloc(2 * room, sizeof(*indexes));
	struct step_sum *sum = calloc(1, sizeof(*sum));
	bool found = false;

	for (size_t i = 0; sum && i < b->track->slow_cnt; i++)
		if (is_on_cpu(b, i))
			step_sum__add(sum, &b->track->steps[b->track->slow[i]]);
	if (sum && indexes && sum->step_cnt >= STEPS_LEAST)
		found = is_even(b->blame, sum) && !has_rhythm(b, indexes, indexes + room);
	for (size_t i = 0; found && i < b->track->slow_cnt; i++) {
		if (!is_on_cpu(b, i))
			continue;
		b->slow[i].cause = CAUSE_UNKNOWN;
		b->slow[i].phase = ANY_PHASE;
		b->slow[i].ns = 0;
	}
	free(indexes);
	free(sum);
	return indexes && sum ? 0 : -ENOMEM;
}
