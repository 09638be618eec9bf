/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What changed between two recordings, in time per step (per second of recording where one of them has no steps): steps
 * and their phases, waits of the thread that makes them, functions on it, actions, operators, GPUs. Of main processes, all
 * together.
 */
#ifndef STEPFLAME_DIFF_H
#define STEPFLAME_DIFF_H

#include <stdbool.h>

#include "array.h"
#include "job.h"

#define STEPFLAME_DIFF_SECTIONS(X) \
	X(PHASES, "phases")        \
	X(WAITS, "waits")          \
	X(FUNCTIONS, "functions")  \
	X(ACTIONS, "actions")      \
	X(OPS, "ops")              \
	X(GPU, "gpu")              \
	X(GPU_WORK, "gpu_work")

enum diff_section {
#define X(id, name) DIFF_##id,
	STEPFLAME_DIFF_SECTIONS(X)
#undef X
		DIFF__SECTIONS,
};

enum { DIFF_A, DIFF_B, DIFF__SIDES };

struct diff_row {
	char *name; /* UTF-8, control characters as they came; owned */
	double s[DIFF__SIDES];
	double error_s; /* that s[DIFF_B] - s[DIFF_A] may be off by, with a probability of 95 %; 0: counted, not sampled */
	bool in[DIFF__SIDES];
};

struct diff_side {
	size_t steps, ranks;
	double median_s, p99_s; /* of steps; 0 without */
	double mean_error_s;    /* of the mean, as above */
	double mean_s;
	double op_steps;  /* in which operators were counted */
	double gpu_units; /* steps, or seconds, that CUPTI watched as a whole */
};

struct diff {
	struct diff_side sides[DIFF__SIDES];
	bool per_step;
	struct array rows[DIFF__SECTIONS]; /* struct diff_row, by how much time the change is, most first */
	size_t common;                     /* names that both have */
};

/* Both jobs have all their records. 0 or -ENOMEM. Leave with diff__release. */
int diff__make(struct job *a, struct job *b, struct diff *diff);
void diff__release(struct diff *diff);

/* "functions" */
const char *diff__section_name(enum diff_section section);
/*
 * The change is more than chance, beyond twice the error (of so many rows some pass it once), and a hundredth of A's mean
 * step (or of the time observed) or more.
 */
bool diff__is_change(const struct diff *diff, const struct diff_row *row);
/* How much longer B's median step is, in percent of A's; NAN when one has no steps. */
double diff__slower_percent(const struct diff *diff);

#endif
