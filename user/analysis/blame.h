/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Why steps were slow: what each slow step of a track has more than the ordinary ones have on average, and what the
 * slow steps have in common.
 */
#ifndef STEPFLAME_USER_ANALYSIS_BLAME_H
#define STEPFLAME_USER_ANALYSIS_BLAME_H

#include "user/analysis/cpu_class.h"
#include "user/analysis/place.h"
#include "user/analysis/rhythm.h"
#include "user/analysis/steps.h"

/*
 * What a step is blamed on: what it waited for (enum sample_cause), or one of these; the last four by enum cpu_class.
 */
#define STEPFLAME_BLAMES(X)                                                             \
	X(GC, "gc")                 /* collections of garbage, on whatever thread */    \
	X(CHECKPOINT, "checkpoint") /* its phase, with all its waits */                 \
	X(VALIDATION, "validation") /* likewise */                                      \
	X(COMPILE, "compile")       /* XLA's phase; of torch.compile, by the stacks */  \
	X(EXTRA, "extra_work")      /* in a function that ordinary steps do not call */ \
	X(PYTHON, "python")         /* on the CPU, as told by timer samples: Python */  \
	X(OP, "op")                 /* torch's operators, and libraries of theirs */    \
	X(NATIVE, "native")         /* other native code */                             \
	X(KERNEL, "kernel")

enum blame_cause {
	BLAME__BEFORE = CAUSE__END - 1,
#define X(id, name) BLAME_##id,
	STEPFLAME_BLAMES(X)
#undef X
		BLAME__END,
};

const char *blame_cause__name(unsigned int cause); /* "data_wait", "gc" */

/* Of steps, together. */
struct step_sum {
	size_t step_cnt;
	uint64_t total_ns, gc_ns;
	uint64_t ns[PHASE__COUNT][CAUSE__END];      /* CAUSE_NONE: on the CPU */
	uint64_t samples[PHASE__COUNT][CPU__COUNT]; /* of the timer, of the thread that makes the steps */
	uint64_t sampled_ns;                        /* their weight */
};

void step_sum__add(struct step_sum *sum, const struct step *step);

#define BLAME_SPOTS 3

/* Slow steps that have the same cause, in the same phase; those with extra work, in the same function. */
struct blame_group {
	unsigned int
		cause; /* enum blame_cause or enum sample_cause; CAUSE_UNKNOWN: no single one, or no sample tells */
	int phase;     /* enum phase; -1: any */
	uint32_t step_cnt;
	uint64_t over_ns;  /* what these steps took longer than an ordinary one */
	uint64_t cause_ns; /* of it by this cause */
	uint64_t queue_ns; /* of over_ns in waits for a CPU, of whatever cause the steps are */
	uint32_t gc_generation;
	unsigned int wait;  /* of a phase: what it waited for most; CAUSE_NONE: nothing */
	struct place place; /* where the time is that ordinary steps have not; place.outer.code 0: not known */
	struct spot spots[BLAME_SPOTS]; /* the place's first, then the longest */
	uint32_t waker_pid, waker_tid;  /* who ended most of the time waited, of those known; 0: not known */
	uint64_t waker_ns, wait_ns;     /* so much, of so much */
	struct rhythm rhythm;
};

struct blame_step {
	uint32_t step;  /* index into track->steps */
	uint32_t group; /* index into groups */
	uint64_t over_ns, cause_ns;
	struct spot spot;
};

/* Told by the stacks of samples, so of time on the CPU with their error. */
struct compile_sum {
	uint64_t ns;      /* in steps */
	size_t step_cnt;  /* that have some of it */
	struct spot spot; /* the line that called what was compiled, of most of it; .code 0: not known */
};

struct blame {
	struct step_sum all, slow;  /* steps; what is not slow is ordinary */
	struct blame_group *groups; /* that of the longest over_ns first */
	size_t group_cnt;
	struct blame_step *steps;   /* track->slow_cnt, in the order of time */
	struct compile_sum compile; /* by torch.compile */
	struct places places;       /* all samples of the track's thread in its steps */
	uint32_t *lines;            /* its places__lines; NULL: the thread has no samples */
};

/* By stack: is torch.compile at work in it? malloc'ed; NULL: no memory. */
bool *blame__compiles(const struct job *job);
/* 0 or -ENOMEM. Free with blame__release. */
int blame__new(struct job *job, const struct steps *steps, const struct step_track *track, struct blame *blame);
void blame__release(struct blame *blame);

#endif
