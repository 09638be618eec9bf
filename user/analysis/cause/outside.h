/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The time of a window outside the steps of a track: before the first and after the last boundary.
 * Samples show what the thread that makes the steps did in it.
 */
#ifndef STEPFLAME_USER_ANALYSIS_CAUSE_OUTSIDE_H
#define STEPFLAME_USER_ANALYSIS_CAUSE_OUTSIDE_H

#include "user/analysis/cause/blame.h"

enum outside_side { OUTSIDE_BEFORE, OUTSIDE_AFTER, OUTSIDE__COUNT };

/* What a thread does that makes no steps, as far as landmarks tell. */
enum outside_work {
	OUTSIDE_NO_WORK, /* that is not known */
	OUTSIDE_WORKS,   /* labels or actions begin and end */
	OUTSIDE_EVALUATES,
	OUTSIDE_SAVES, /* a checkpoint */
};

struct outside_part {
	uint64_t ns;
	uint64_t compile_ns;    /* the part in torch.compile */
	unsigned int cause;     /* that has most of the sampled time; CAUSE_NONE: the thread ran, or has no sample */
	struct hotspot hotspot; /* the line that has half of the sampled time; .ns 0: no such line */
	enum outside_work work; /* behind the last step only */
	/* Behind the last step, since a label, an action or the like last began or ended; without one: ns. */
	uint64_t still_ns;
	uint64_t longest_ns; /* without one before that */
};

struct outside {
	struct outside_part parts[OUTSIDE__COUNT];
};

/* The whole window, for the main thread of a process that made no step. 0 or -ENOMEM. */
int outside__all(struct job *job, uint32_t pid, struct outside_part *part);
/* 0 or -ENOMEM. */
int outside__find(struct job *job, const struct steps *steps, const struct step_track *track, struct outside *outside);

#endif
