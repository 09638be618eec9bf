/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steps: what REC_STEP says of each, and what the samples of the thread that makes them tell of it. Made of a job
 * once; its texts are those of the job, so it ends before the job does, and takes no record in between.
 */
#ifndef STEPFLAME_USER_ANALYSIS_STEPS_H
#define STEPFLAME_USER_ANALYSIS_STEPS_H

#include "user/analysis/slow.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct steps;

/* Time that the thread waited, or was on the CPU (CAUSE_NONE), in a phase of a step. */
struct step_part {
	enum phase phase;
	unsigned int cause; /* enum wait_cause or enum sample_cause */
	uint64_t ns;
};

struct step {
	uint64_t start_ns, end_ns;
	uint64_t index;                  /* as in REC_STEP: of the boundary that ended it */
	uint64_t phase_ns[PHASE__COUNT]; /* add up to end_ns - start_ns */
	const struct step_part *parts;   /* add up likewise; by phase, then cause */
	uint32_t part_cnt;
	uint32_t gc_generation; /* the highest of the collections in it */
	uint64_t gc_ns;         /* of these; part of what is above */
};

/* The steps of one process: between boundaries of one thread by one rule (boundaries.h). They do not overlap. */
struct step_track {
	uint32_t pid, tid;        /* tid: the thread that makes them */
	uint32_t rule;            /* enum step_rule */
	uint32_t thread;          /* number of that thread in samples.h; 0: it has no samples */
	const struct step *steps; /* in the order of time */
	size_t step_cnt;
	uint64_t lost;      /* steps of which boundaries did not come */
	uint64_t total_ns;  /* of all steps */
	uint64_t misfit_ns; /* waits, and phases, that are longer than what they lie in: they are in no part */
	bool has_phases;    /* else all is in PHASE_OTHER */
	struct slow_rule rule_of_slow;
	const uint32_t *slow; /* indexes into steps of those that are slow (slow.h), ascending */
	size_t slow_cnt;
};

struct steps *steps__new(struct job *job); /* NULL: no memory */
void steps__free(struct steps *steps);     /* accepts NULL */
/* Main processes that made steps, by pid; one without has no track. NULL only with *cnt == 0. */
const struct step_track *steps__tracks(const struct steps *steps, size_t *cnt);
/* The phase that a thread is in which has these spans open: a number for stacks__path. */
enum phase steps__phase(const struct steps *steps, uint32_t path);
const char *phase__name(enum phase phase); /* "data" */

/* The step in which an instant lies, as an index into track->steps; -1: in none. O(log). */
long step_track__at(const struct step_track *track, uint64_t time_ns);
/* The phase in which a sample of the track's thread is counted. */
enum phase step_track__phase(const struct step_track *track, const struct steps *steps, const struct sample *sample);

static inline uint64_t step__ns(const struct step *step)
{
	return step->end_ns - step->start_ns;
}

#endif
