/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What bounds the steps of a track, and what to try: judged from the times of all steps, and from
 * the blame of the slow ones. It abstains if data is missing or nothing stands out.
 */
#ifndef STEPFLAME_USER_ANALYSIS_VERDICT_VERDICT_H
#define STEPFLAME_USER_ANALYSIS_VERDICT_VERDICT_H

#include "user/analysis/cause/blame.h"
#include "user/analysis/compare/ranks.h"
#include "user/analysis/gpu/gpu_time.h"

#define STEPFLAME_VERDICTS(X)       \
	X(UNCLEAR, "unclear")       \
	X(INPUT, "input-bound")     \
	X(PYTHON, "Python-bound")   \
	X(CPU_OP, "CPU-op-bound")   \
	X(GPU, "GPU-bound")         \
	X(LAUNCH, "launch-bound")   \
	X(COMM, "comm-bound")       \
	X(CHECKPOINT, "checkpoint") \
	X(MEMORY, "memory")         \
	X(LOCK, "lock-bound")       \
	X(THREAD, "thread-bound")   \
	X(STARVED, "CPU-starved")   \
	X(COMPILE, "compile-bound") \
	X(COMPUTE, "compute-bound") \
	X(VALIDATION, "validation") \
	X(EXTRA, "extra-work")      \
	X(STRAGGLER, "straggler")

enum verdict_class {
#define X(id, name) VERDICT_##id,
	STEPFLAME_VERDICTS(X)
#undef X
		VERDICT__COUNT,
};

/* Texts are malloc'ed UTF-8, control characters unchanged. */
struct verdict {
	enum verdict_class class;
	char *why;
	double share;       /* of the time of all steps: the most that a fix could gain; 0: not known, or nothing */
	char *place;        /* as hotspot__text or place__text print it; NULL: not known */
	unsigned int cause; /* the cause it names, as in struct blame_group; CAUSE_NONE: on the CPU, or no cause */
	int phase;          /* the phase it names; -1: no phase */
	struct array evidence, next; /* char * */
};

const char *verdict_class__name(enum verdict_class class); /* "input-bound" */
/*
 * Judges one track. straggler: what its rank does while the others wait for it, which becomes the
 * headline unless something else takes more of its steps; without one, whether the ranks are last
 * in turn. May be NULL. 0 or -ENOMEM. Free with verdict__release.
 */
int verdict__new(struct job *job, const struct steps *steps, const struct step_track *track, const struct blame *blame,
		 const struct gpu_steps *gpu, const struct straggler *straggler, struct verdict *verdict);
void verdict__release(struct verdict *verdict);

#endif
