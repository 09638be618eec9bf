// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/recording/dropped_steps.h"

#include <math.h>
#include <string.h>

#include "user/lib/percentile.h"
#include "user/lib/saturating.h"

static unsigned int bucket_of(uint64_t ns)
{
	double at = (log2((double)ns) - DROPPED_STEP_FIRST) * DROPPED_STEP_PARTS;

	if (at < 0)
		return 0;
	return at < DROPPED_STEP_BUCKETS ? at : DROPPED_STEP_BUCKETS - 1;
}

/* As user/analysis/steps/steps.c adds the phases of a step. */
static void add_open(struct rec_dropped_steps *steps, const struct rec_step *boundary)
{
	uint64_t forward_ns = boundary->rule == steps->rule ? boundary->forward_ns : 0;

	if (forward_ns > boundary->phase_ns[PHASE_OTHER])
		forward_ns = boundary->phase_ns[PHASE_OTHER];
	for (int p = 0; p < PHASE__COUNT; p++)
		steps->open_ns[p] =
			saturating__add(steps->open_ns[p], boundary->phase_ns[p] - (p == PHASE_OTHER ? forward_ns : 0));
	steps->open_ns[PHASE_FORWARD] = saturating__add(steps->open_ns[PHASE_FORWARD], forward_ns);
}

static void add_step(struct rec_dropped_steps *steps, uint64_t ns)
{
	uint32_t *cnt = &steps->cnt[bucket_of(ns)];

	*cnt += *cnt < UINT32_MAX;
	steps->min_ns = !steps->steps || ns < steps->min_ns ? ns : steps->min_ns;
	steps->max_ns = ns > steps->max_ns ? ns : steps->max_ns;
	steps->total_ns = saturating__add(steps->total_ns, ns);
	steps->steps = saturating__add(steps->steps, 1);
	for (int p = 0; p < PHASE__COUNT; p++)
		steps->phase_ns[p] = saturating__add(steps->phase_ns[p], steps->open_ns[p]);
}

void dropped_steps__add(struct rec_dropped_steps *steps, const struct rec_step *boundary)
{
	if (steps->time_ns && boundary->serial == steps->serial)
		return; /* recorded twice */
	/* Batches between which the process trains are no steps. */
	if (boundary->serial != steps->serial + 1 || boundary->hdr.flags & REC_RESTED ||
	    (steps->rule == STEP_LOADER && boundary->rule == STEP_BACKWARD))
		steps->open_cut = 1;
	steps->serial = boundary->serial;
	add_open(steps, boundary);
	if (boundary->rule != steps->rule)
		return;
	if (steps->time_ns && !steps->open_cut && boundary->index == steps->index + 1 &&
	    boundary->time_ns > steps->time_ns)
		add_step(steps, boundary->time_ns - steps->time_ns);
	steps->index = boundary->index;
	steps->time_ns = boundary->time_ns;
	steps->open_cut = 0;
	memset(steps->open_ns, 0, sizeof(steps->open_ns));
}

__u64 dropped_steps__percentile_ns(const struct rec_dropped_steps *steps, unsigned int percent)
{
	uint64_t cnt = 0, at = 0, ns;
	unsigned int i = 0;

	for (unsigned int k = 0; k < DROPPED_STEP_BUCKETS; k++)
		cnt += steps->cnt[k];
	if (!cnt)
		return 0;
	for (at = steps->cnt[0]; at <= percentile__index(cnt, percent); at += steps->cnt[i])
		i++;
	ns = exp2(DROPPED_STEP_FIRST + (i + 0.5) / DROPPED_STEP_PARTS);
	if (ns < steps->min_ns)
		return steps->min_ns;
	return ns < steps->max_ns ? ns : steps->max_ns;
}
