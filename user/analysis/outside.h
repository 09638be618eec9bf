/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The time of a window that is in no step of a track: before the first and after the last boundary. What the thread that makes
 * the steps did there, by its samples.
 */
#ifndef STEPFLAME_USER_ANALYSIS_OUTSIDE_H
#define STEPFLAME_USER_ANALYSIS_OUTSIDE_H

#include "user/analysis/blame.h"

enum outside_side { OUTSIDE_BEFORE, OUTSIDE_AFTER, OUTSIDE__COUNT };

struct outside_part {
	uint64_t ns;
	uint64_t compile_ns; /* of it in torch.compile */
	struct spot spot;    /* the line in which half of what samples met of it was; .ns 0: in none */
};

struct outside {
	struct outside_part parts[OUTSIDE__COUNT];
};

/* Of the main thread of a process that made no step: the whole window. 0 or -ENOMEM. */
int outside__all(struct job *job, uint32_t pid, struct outside_part *part);
/* 0 or -ENOMEM. */
int outside__find(struct job *job, const struct step_track *track, struct outside *outside);

#endif
