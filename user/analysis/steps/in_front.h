/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a plain loop does before it calls the model. No landmark says where a forward begins, so
 * the kernel counts as forward whatever lies between two steps and is nothing else: also a batch
 * from a generator, a queue or a function of one's own. The stacks of the samples tell them apart.
 *
 *	for batch in stream():      <- in front: data
 *		loss = model(batch)     <- the first call of the model in most steps
 *		loss.backward()
 *		optimizer.step()        <- the last call of a step
 *		log(loss)               <- behind: other
 */
#ifndef STEPFLAME_USER_ANALYSIS_STEPS_IN_FRONT_H
#define STEPFLAME_USER_ANALYSIS_STEPS_IN_FRONT_H

#include "user/analysis/steps/steps.h"
#include "user/model/samples.h"

struct in_front {
	uint8_t *phases; /* enum phase by stack: of a sample in a plain loop's forward; NULL: all are forward */
	double cpu[PHASE__COUNT]; /* the shares of the phases in the CPU time of the forwards; add up to 1 */
};

/*
 * Finds it for the thread of a track, whose steps are known. is_plain: by path, whether a forward
 * that the kernel only derived is the innermost phase. 0 or -ENOMEM. Free `phases`.
 */
int in_front__find(struct job *job, const struct by_thread *by_thread, const struct step_track *track,
		   const struct steps *steps, const bool *is_plain, struct in_front *front);

#endif
