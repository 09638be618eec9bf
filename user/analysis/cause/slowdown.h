/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds that the steps of a track have become longer for good, from which step on, and what took the time. In: all steps that a recording
 * has; a trigger (pace.h) sees the same while it grows. The steps are cut into blocks of equally many; what counts is a block's median.
 * They have become longer where the medians of at least SLOWDOWN_BLOCKS_MIN blocks up to the end are all above those of all blocks before,
 * but for one in twenty, and above the median of these by SLOWDOWN_PERCENT; both sides last for SLOWDOWN_NS. Time in validation and
 * checkpoints does not count.
 */
#ifndef STEPFLAME_USER_ANALYSIS_CAUSE_SLOWDOWN_H
#define STEPFLAME_USER_ANALYSIS_CAUSE_SLOWDOWN_H

#include "user/analysis/cause/blame.h"

#define SLOWDOWN_PERCENT    10
#define SLOWDOWN_NS         10000000000ull
#define SLOWDOWN_STEPS_MIN  20 /* in a block */
#define SLOWDOWN_BLOCKS_MIN 3  /* on either side */
#define SLOWDOWN_BLOCKS_MAX 256

struct slowdown {
	size_t at; /* index into track->steps of the first longer one; 0: there is no slowdown, and nothing below */
	uint64_t before_ns, after_ns; /* medians */
	/*
	 * The longer steps as if they were the slow ones, against those before: the first group says what most of the time is. Steps of
	 * more than twice the median are left out.
	 */
	struct step_track track;
	struct blame blame;
};

/* 0 or -ENOMEM. Free with slowdown__release. */
int slowdown__find(struct job *job, const struct steps *steps, const struct step_track *track, struct slowdown *out);
void slowdown__release(struct slowdown *slowdown);

#endif
