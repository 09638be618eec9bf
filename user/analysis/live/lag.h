/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sees, while a recording grows, that one rank of a job holds the others up. In: steps as they end, and which job a process is of. Ranks
 * that wait for each other have steps of one length; what differs is their own work, the time outside of collectives, validation and
 * checkpoints. Time is cut into blocks of LAG_NS in which each rank ends LAG_STEPS_MIN steps or more. A rank is a straggler when its own
 * work per step is above the mean of the others' by the given percentage in LAG_BLOCKS blocks together, by half of that in each of them,
 * and by half of that percentage of a whole step; and the others wait in collectives for half of the difference, or more.
 */
#ifndef STEPFLAME_USER_ANALYSIS_LIVE_LAG_H
#define STEPFLAME_USER_ANALYSIS_LIVE_LAG_H

#include <stdbool.h>
#include <stdint.h>

#include "include/resource_records.h"
#include "user/lib/array.h"
#include "user/model/step_times.h"

#define LAG_NS        4000000000ull
#define LAG_BLOCKS    4
#define LAG_STEPS_MIN 4

/* All zeros: no process is known. */
struct lag {
	struct array members; /* struct lag_member, see lag.c */
};

struct lag_found {
	uint32_t pid;
	uint64_t since_ns, since_step; /* end of its first step in the blocks, and its index */
	uint64_t own_ns, others_ns;    /* own work per step, and the mean of the others' */
};

/* Takes which job the process is of. Processes of a job without a name are not compared. 0 or -ENOMEM. */
int lag__add_process(struct lag *lag, const struct rec_job *job);
/* Takes a step. True: it shows a straggler, which is told once, until it is one no longer. */
bool lag__add_step(struct lag *lag, const struct timed_step *step, uint32_t percent, struct lag_found *found);
void lag__end_process(struct lag *lag, uint32_t pid);
void lag__free(struct lag *lag);

#endif
