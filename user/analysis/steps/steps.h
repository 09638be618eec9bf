/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steps: what REC_STEP and the samples of the thread that makes the steps say about each one. Built
 * from a job once; uses the job's texts, so free it before the job; the job must not take records
 * meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_STEPS_STEPS_H
#define STEPFLAME_USER_ANALYSIS_STEPS_STEPS_H

#include "user/analysis/steps/slow.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct steps;

/* Time in one phase of a step that the thread waited, by cause, or ran on the CPU (CAUSE_NONE). */
struct step_part {
	enum phase phase;
	unsigned int cause; /* enum wait_cause or enum sample_cause */
	uint64_t ns;
};

struct step {
	uint64_t start_ns, end_ns;
	uint64_t index;                  /* as in REC_STEP, of the boundary that ended the step */
	uint64_t phase_ns[PHASE__COUNT]; /* add up to end_ns - start_ns */
	const struct step_part *parts;   /* add up to the same; by phase, then cause */
	uint32_t part_cnt;
	uint32_t gc_generation; /* the highest generation collected in the step */
	uint64_t gc_ns;         /* time of these collections; included in the times above */
};

/*
 * The steps of one process: between boundaries of one thread by one rule (boundaries.h). They do
 * not overlap.
 */
struct step_track {
	uint32_t pid, tid;        /* tid: the thread that makes the steps */
	uint32_t rule;            /* enum step_rule */
	uint32_t thread;          /* number of that thread in samples.h; 0: the thread has no samples */
	const struct step *steps; /* in time order */
	size_t step_cnt;
	uint64_t lost;                   /* steps without all their boundaries */
	uint64_t total_ns;               /* of all steps */
	uint64_t misfit_ns;              /* waits and phases longer than what contains them; in no part */
	bool has_phases;                 /* else all time is in PHASE_OTHER */
	const uint8_t *in_front;         /* struct in_front's phases; NULL: none */
	uint64_t moved_ns[PHASE__COUNT]; /* counted by the kernel as forward, and here as what it is */
	struct slow_rule rule_of_slow;
	const uint32_t *slow; /* ascending indexes into steps of the slow ones (slow.h) */
	size_t slow_cnt;
};

struct steps *steps__new(struct job *job); /* NULL: no memory */
void steps__free(struct steps *steps);     /* accepts NULL */
/* Tracks of the main processes that made steps, by pid. NULL only with *cnt == 0. */
const struct step_track *steps__tracks(const struct steps *steps, size_t *cnt);
/* The phase of a thread while the spans of a path (a number for stacks__path) are open. */
enum phase steps__phase(const struct steps *steps, uint32_t path);
const char *phase__name(enum phase phase); /* "data" */

/* The step that contains an instant, as an index into track->steps; -1: no step. O(log). */
long step_track__at(const struct step_track *track, uint64_t time_ns);
/* The phase to which a sample of the track's thread counts. */
enum phase step_track__phase(const struct step_track *track, const struct steps *steps, const struct sample *sample);

static inline uint64_t step__ns(const struct step *step)
{
	return step->end_ns - step->start_ns;
}

#endif
