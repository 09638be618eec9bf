/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ranks of a job against each other: which one the others wait for. */
#ifndef STEPFLAME_RANKS_H
#define STEPFLAME_RANKS_H

#include "blame.h"

struct rank {
	const struct step_track *track;
	int rank;            /* of its target; -1: not known */
	struct step_sum sum; /* of all steps, without samples */
	uint64_t comm_ns;    /* of it in collectives, or waiting for them */
};

/* Of tracks in their order, malloc'ed. NULL: no memory. */
struct rank *ranks__new(const struct job *job, const struct step_track *tracks, size_t cnt);
/*
 * The rank that waits least in collectives, where the others wait for 5 % of a step longer: an index. -1: none, or
 * not known. *why, where there is one: malloc'ed; NULL: no memory.
 */
long ranks__straggler(const struct rank *ranks, size_t cnt, char **why);

#endif
