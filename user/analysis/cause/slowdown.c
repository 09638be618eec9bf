// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/cause/slowdown.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/percentile.h"

static uint64_t duration_ns(const struct step *step)
{
	return step__ns(step) - step->phase_ns[PHASE_VALIDATION] - step->phase_ns[PHASE_CHECKPOINT];
}

/*
 * Sets the medians before and after of the cut between blocks where they are furthest apart, and returns the number of blocks before; 0:
 * there is none such.
 */
static size_t find_cut(const uint64_t *medians, size_t cnt, struct slowdown *out)
{
	uint64_t sorted[SLOWDOWN_BLOCKS_MAX], best_ns = 0;
	size_t best = 0;

	for (size_t i = SLOWDOWN_BLOCKS_MIN; i + SLOWDOWN_BLOCKS_MIN <= cnt; i++) {
		uint64_t high_ns = percentile__of(medians, i, 95, sorted);
		uint64_t before_ns = sorted[percentile__index(i, 50)];
		uint64_t low_ns = percentile__of(medians + i, cnt - i, 5, sorted);
		uint64_t after_ns = sorted[percentile__index(cnt - i, 50)];

		if (low_ns <= high_ns || low_ns - high_ns <= best_ns ||
		    (double)after_ns * 100 < (double)before_ns * (100 + SLOWDOWN_PERCENT))
			continue;
		best_ns = low_ns - high_ns;
		best = i;
		out->before_ns = before_ns;
		out->after_ns = after_ns;
	}
	return best;
}

/* The first of the longer steps between two blocks: the one before which the most steps are short, and from which on the most are long. */
static size_t find_first(const uint64_t *ns, size_t from, size_t to, uint64_t limit_ns)
{
	long sum = 0, least = 0;
	size_t first = from;

	for (size_t i = from; i < to; i++) {
		sum += ns[i] > limit_ns ? 1 : -1;
		if (sum < least) {
			least = sum;
			first = i + 1;
		}
	}
	return first;
}

/* Sets out->at and the medians. */
static int find_where(const uint64_t *ns, size_t cnt, struct slowdown *out)
{
	size_t most = cnt / SLOWDOWN_STEPS_MIN, blocks = most < SLOWDOWN_BLOCKS_MAX ? most : SLOWDOWN_BLOCKS_MAX;
	size_t each = blocks ? cnt / blocks : 1;
	size_t skipped = cnt - blocks * each, cut; /* the first ones: what counts is the end */
	uint64_t medians[SLOWDOWN_BLOCKS_MAX], *sorted = calloc(each, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < blocks; i++)
		medians[i] = percentile__of(ns + skipped + i * each, each, 50, sorted);
	free(sorted);
	cut = find_cut(medians, blocks, out);
	if (cut)
		out->at = find_first(ns, skipped + (cut - 1) * each, skipped + (cut + 1) * each,
				     (out->before_ns + out->after_ns) / 2);
	return 0;
}

/* Do the steps before and those after last long enough? */
static bool lasts_from(const struct step_track *track, size_t at)
{
	const struct step *steps = track->steps;

	return steps[at].start_ns - steps[0].start_ns >= SLOWDOWN_NS &&
	       steps[track->step_cnt - 1].end_ns - steps[at].start_ns >= SLOWDOWN_NS;
}

/* What takes the time in the longer steps. */
static int find_why(struct job *job, const struct steps *steps, const struct step_track *track, const uint64_t *ns,
		    struct slowdown *out)
{
	uint32_t *longer = calloc(track->step_cnt, sizeof(*longer));

	if (!longer)
		return -ENOMEM;
	out->track = *track;
	out->track.slow = longer;
	out->track.slow_cnt = 0;
	out->track.rule_of_slow.ordinary_ns = out->before_ns;
	for (size_t i = out->at; i < track->step_cnt; i++)
		if (step__ns(&track->steps[i]) > out->before_ns && ns[i] <= 2 * out->after_ns)
			longer[out->track.slow_cnt++] = i;
	return blame__new(job, steps, &out->track, &out->blame);
}

int slowdown__find(struct job *job, const struct steps *steps, const struct step_track *track, struct slowdown *out)
{
	uint64_t *ns = calloc(track->step_cnt + 1, sizeof(*ns));
	int err;

	*out = (struct slowdown){};
	if (!ns)
		return -ENOMEM;
	for (size_t i = 0; i < track->step_cnt; i++)
		ns[i] = duration_ns(&track->steps[i]);
	err = find_where(ns, track->step_cnt, out);
	if (out->at && !lasts_from(track, out->at))
		out->at = 0;
	if (!err && out->at)
		err = find_why(job, steps, track, ns, out);
	free(ns);
	if (err)
		slowdown__release(out);
	return err;
}

void slowdown__release(struct slowdown *slowdown)
{
	if (slowdown->at) {
		free((void *)slowdown->track.slow);
		blame__release(&slowdown->blame);
	}
	*slowdown = (struct slowdown){};
}
