/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ranks of a job against each other: which one the others wait for. */
#ifndef STEPFLAME_USER_ANALYSIS_RANKS_H
#define STEPFLAME_USER_ANALYSIS_RANKS_H

#include "user/analysis/blame.h"
#include "user/analysis/place.h"

struct rank {
	const struct step_track *track;
	int rank;            /* of its target; -1: not known */
	struct step_sum sum; /* of all steps, without samples */
	uint64_t comm_ns;    /* of it in collectives, or waiting for them */
};

/* Of tracks in their order, malloc'ed. NULL: no memory. */
struct rank *ranks__new(const struct job *job, const struct step_track *tracks, size_t cnt);
/* The rank that the others wait for, and what its steps have more than theirs. */
struct straggler {
	long index; /* into the ranks; -1: there is none, or it is not known, and nothing below */
	int rank;
	double more_ns;     /* of a step, outside of collectives: most of it is */
	unsigned int cause; /* enum sample_cause; CAUSE_NONE: on the CPU */
	enum phase phase;
	struct place place; /* outer.code 0: not known */
	char *why;          /* malloc'ed */
};

/*
 * The rank that waits least in collectives, where the others wait for 5 % of a step longer. 0 or -ENOMEM. Free with
 * straggler__release.
 */
int ranks__straggler(struct job *job, const struct steps *steps, const struct rank *ranks, size_t cnt,
		     struct straggler *straggler);
void straggler__release(struct straggler *straggler);

#endif
