/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Compares the ranks of a job: which one the others wait for. */
#ifndef STEPFLAME_USER_ANALYSIS_COMPARE_RANKS_H
#define STEPFLAME_USER_ANALYSIS_COMPARE_RANKS_H

#include <stdbool.h>

#include "user/analysis/cause/blame.h"
#include "user/analysis/place/place.h"

struct rank {
	const struct step_track *track;
	int rank;            /* of its target; -1: not known */
	struct step_sum sum; /* of all steps, without samples */
	uint64_t comm_ns;    /* the part in collectives, or in waits for them */
};

/* One for each track, in the same order; malloc'ed. NULL: no memory. */
struct rank *ranks__new(const struct job *job, const struct step_track *tracks, size_t cnt);
/* The rank that the others wait for, and what its steps have beyond theirs. */
struct straggler {
	bool compared;  /* at least two ranks were in collectives */
	long index;     /* into the ranks; -1: no straggler, or not known, and the fields below but `turns` are unset */
	int rank;       /* -1: not known */
	char name[24];  /* "rank 1"; "process 4711" where that says no rank, or several */
	double more_ns; /* excess per step outside collectives, in that phase by that cause */
	double slower;  /* the excess is on the CPU, in all phases, which take so many times as long; 0: not so */
	unsigned int cause; /* enum sample_cause; CAUSE_NONE: on the CPU */
	enum phase phase;
	struct place place; /* outer.code 0: not known */
	char *why;          /* malloc'ed */
	/* Without a straggler: in each step another rank is last. */
	struct turns {
		double waits_ns;       /* for it, in collectives, per step and rank; 0: not so, or not known */
		double collectives_ns; /* what they take themselves */
		enum phase phase;      /* what the last one has most beyond the others */
		unsigned int cause;    /* enum sample_cause; CAUSE_NONE: on the CPU */
	} turns;
};

/*
 * Finds the rank that waits the least in collectives, if the others wait longer by 5 % of a step.
 * Processes that are in no collective are not compared: they belong to another job. Of several jobs, each by itself, the rank
 * with the largest part of a step counts. 0 or -ENOMEM.
 * Free with straggler__release.
 */
int ranks__straggler(struct job *job, const struct steps *steps, const struct rank *ranks, size_t cnt,
		     struct straggler *straggler);
void straggler__release(struct straggler *straggler);

#endif
