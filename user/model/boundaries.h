/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which of a job's step boundaries (REC_STEP) end its steps: those by one rule, of one thread of each main process. The
 * kernel tells of boundaries by every rule that may be the one; what came later says which it is.
 */
#ifndef STEPFLAME_USER_MODEL_BOUNDARIES_H
#define STEPFLAME_USER_MODEL_BOUNDARIES_H

#include "user/model/job.h"

struct boundaries;

/* Of one process. */
struct boundary_track {
	uint32_t pid, tid;
	uint32_t rule;                     /* enum step_rule */
	const struct rec_step *const *all; /* that the thread made, by whichever rule, in their order */
	size_t cnt;
	const struct rec_step *last; /* by the rule */
	uint64_t lost;               /* boundaries by the rule that did not come, or with which others did not */
};

struct boundaries *boundaries__new(const struct job *job); /* NULL: no memory */
void boundaries__free(struct boundaries *boundaries);      /* accepts NULL */
/* By pid. NULL only with *cnt == 0. */
const struct boundary_track *boundaries__tracks(const struct boundaries *boundaries, size_t *cnt);

/*
 * A whole step: from all[from] to all[to], with the phases of all behind the first. *to: 0 at first, then as it was left.
 * false: there is none any more.
 */
bool boundaries__next(const struct boundaries *boundaries, const struct boundary_track *track, size_t *from,
		      size_t *to);

/*
 * Steps that ended in the window, of the process with most, and by which rule, as far as is known: where boundaries were
 * recorded, and there is memory to look at them, what these say, else what the kernel counted. The first of them may have
 * begun before the window; steps__new has those that lie in it as a whole.
 */
void boundaries__count(const struct job *job, uint64_t *steps, uint32_t *rule);

#endif
