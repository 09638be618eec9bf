/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Selects the step boundaries (REC_STEP) that end the steps of a job: those by one rule, on one
 * thread of each main process. The kernel emits boundaries by every candidate rule; the later ones
 * decide which rule applies.
 */
#ifndef STEPFLAME_USER_MODEL_BOUNDARIES_H
#define STEPFLAME_USER_MODEL_BOUNDARIES_H

#include "user/model/job.h"

struct boundaries;

/*
 * A rule that only readers know, beside enum step_rule: of the backwards, the last one before a
 * zero_grad.
 */
#define STEP_ZERO_GRAD STEP__COUNT

/* The boundaries of one process. */
struct boundary_track {
	uint32_t pid, tid;
	uint32_t rule;                     /* enum step_rule, of its boundaries */
	bool by_zero_grad;                 /* not all of these end a step: STEP_ZERO_GRAD */
	const struct rec_step *const *all; /* all boundaries of the thread, by any rule, in recording order */
	size_t cnt;
	const struct rec_step *last; /* the last boundary by the rule */
	uint64_t lost; /* steps lost: a boundary by the rule is missing, or another boundary within the step is */
};

struct boundaries *boundaries__new(struct job *job);  /* NULL: no memory */
void boundaries__free(struct boundaries *boundaries); /* accepts NULL */
/* Sorted by pid. NULL only with *cnt == 0. */
const struct boundary_track *boundaries__tracks(const struct boundaries *boundaries, size_t *cnt);

/*
 * Whether calls of a jitted function, by which a process was recorded to make steps, are parts of longer ones: then it is not
 * known what its steps are.
 */
bool boundaries__has_parts(struct job *job);
#define BOUNDARIES_PARTS_TEXT                                                                                          \
	"not known: no jitted function is called once a step for sure (JAX's operators, called one by one, look so). " \
	"Mark steps with jax.profiler.StepTraceAnnotation, or record --step-at 'jit NAME'"

/* The rule of its steps: enum step_rule or STEP_ZERO_GRAD. */
uint32_t boundary_track__rule(const struct boundary_track *track);

/* Whether boundaries by that rule end steps of a process; and whether that thread makes them. */
bool boundaries__is_rule(uint32_t pid, uint32_t rule, void *boundaries);
bool boundaries__is_thread(uint32_t pid, uint32_t tid, void *boundaries);

/*
 * Finds the next whole step: from all[from] to all[to]. The boundaries after the first one carry
 * its phases. Set *to to 0 before the first call, and pass it back unchanged. false: no further
 * step.
 */
bool boundaries__next(const struct boundaries *boundaries, const struct boundary_track *track, size_t *from,
		      size_t *to);

/*
 * Counts the steps that ended in the window, of the process with the most steps, and names their
 * rule. Recorded boundaries decide on the rule; without them, or without memory to analyse them, the
 * kernel does. If it has counted more steps by that rule, boundaries were lost at the end. The first step may have begun before the window; steps__new returns only the steps
 * that lie wholly in it.
 */
void boundaries__count(struct job *job, uint64_t *steps, uint32_t *rule);

#endif
