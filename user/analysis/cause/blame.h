/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Why steps were slow: how each slow step of a track exceeds the average ordinary step, and what
 * the slow steps have in common.
 */
#ifndef STEPFLAME_USER_ANALYSIS_CAUSE_BLAME_H
#define STEPFLAME_USER_ANALYSIS_CAUSE_BLAME_H

#include "user/analysis/place/place.h"
#include "user/analysis/steps/slow.h"
#include "user/analysis/steps/steps.h"

/*
 * What a step is blamed on: a wait (enum sample_cause), or one of these. The last four correspond
 * to enum cpu_class.
 */
#define STEPFLAME_BLAMES(X)                                                                          \
	X(GC, "gc")                  /* garbage collections, on any thread */                        \
	X(CHECKPOINT, "checkpoint")  /* the whole phase, with its waits */                           \
	X(VALIDATION, "validation")  /* likewise */                                                  \
	X(COMPILE, "compile")        /* the phase of XLA; for torch.compile, judged by the stacks */ \
	X(SKIPPED, "skipped_update") /* more than one iteration: an update was left out */           \
	X(EXTRA, "extra_work")       /* in a function that ordinary steps do not call */             \
	X(PYTHON, "python")          /* on the CPU, judged by timer samples: Python */               \
	X(OP, "op")                  /* torch's operators, and the libraries below them */           \
	X(NATIVE, "native")          /* other native code */                                         \
	X(KERNEL, "kernel")

enum blame_cause {
	BLAME__BEFORE = CAUSE__END - 1,
#define X(id, name) BLAME_##id,
	STEPFLAME_BLAMES(X)
#undef X
		BLAME__END,
};

const char *blame_cause__name(unsigned int cause); /* "data_wait", "gc" */

/* Totals over several steps. */
struct step_sum {
	size_t step_cnt;
	uint64_t total_ns, gc_ns;
	uint64_t ns[PHASE__COUNT][CAUSE__END];      /* CAUSE_NONE: on the CPU */
	uint64_t samples[PHASE__COUNT][CPU__COUNT]; /* timer samples of the thread that makes the steps */
	uint64_t sampled_ns;                        /* their weight */
};

void step_sum__add(struct step_sum *sum, const struct step *step);

#define BLAME_HOTSPOTS 3

/* Slow steps that share cause and phase; with extra work, that share the function. */
struct blame_group {
	unsigned int cause; /* enum blame_cause or enum sample_cause; CAUSE_UNKNOWN: no single cause, or no samples */
	int phase;          /* enum phase; -1: any */
	uint32_t step_cnt;
	uint64_t over_ns;  /* the time by which these steps exceed an ordinary one */
	uint64_t cause_ns; /* the part of over_ns by this cause */
	uint64_t queue_ns; /* the part of over_ns in waits for a CPU, whatever the cause of the steps */
	uint32_t gc_generation;
	unsigned int wait;  /* for a phase: its longest wait; CAUSE_NONE: no waits */
	struct place place; /* where the time beyond that of ordinary steps is; place.outer.code 0: not known */
	struct hotspot hotspots[BLAME_HOTSPOTS]; /* the hotspot of `place` first, then the longest */
	uint32_t waker_pid, waker_tid; /* who ended most of the waiting time with a known waker; 0: not known */
	uint64_t waker_ns, wait_ns;    /* waker_ns of the wait_ns with a known waker */
	uint64_t passed_ns;            /* of wait_ns, for threads that waited by that cause themselves */
	struct rhythm rhythm;
};

struct blame_step {
	uint32_t step;  /* index into track->steps */
	uint32_t group; /* index into groups */
	uint64_t over_ns, cause_ns;
	struct hotspot hotspot;
};

/*
 * Time in torch.compile. It comes from the stacks of samples, so it has the error of sampled CPU
 * time.
 */
struct compile_sum {
	uint64_t ns;            /* in steps */
	size_t step_cnt;        /* steps that have some of it */
	struct hotspot hotspot; /* the line that called most of what was compiled; .code 0: not known */
};

struct blame {
	struct step_sum all, slow;  /* steps; those that are not slow are ordinary */
	struct blame_group *groups; /* by over_ns, longest first */
	size_t group_cnt;
	struct blame_step *steps;   /* track->slow_cnt of them, in time order */
	struct compile_sum compile; /* by torch.compile */
	struct places places;       /* all samples of the track's thread that lie in its steps */
	uint32_t *lines;            /* its places__lines; NULL: the thread has no samples */
};

/* By stack: whether torch.compile is at work in it. malloc'ed; NULL: no memory. */
bool *blame__compiles(const struct job *job);
/* 0 or -ENOMEM. Free with blame__release. */
int blame__new(struct job *job, const struct steps *steps, const struct step_track *track, struct blame *blame);
void blame__release(struct blame *blame);

/*
 * Whether the time on the CPU is longer in each phase by about the same factor, in the optimizer's, too, whose work is the
 * same whatever the batch is: then the CPU was slower.
 */
bool slower_cpu__is_even(const double ordinary[PHASE__COUNT], const double now[PHASE__COUNT]);

#endif
