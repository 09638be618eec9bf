/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What changed between two recordings, in time per step (per second of recording if one of them has
 * no steps): steps and their phases, waits and functions of the thread that makes the steps,
 * actions, operators, GPUs. Adds up the main processes.
 */
#ifndef STEPFLAME_USER_ANALYSIS_COMPARE_DIFF_H
#define STEPFLAME_USER_ANALYSIS_COMPARE_DIFF_H

#include <stdbool.h>

#include "include/records.h"
#include "user/lib/array.h"
#include "user/model/job.h"

#define STEPFLAME_DIFF_SECTIONS(X) \
	X(STEP, "step")            \
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
	char *name; /* UTF-8, control characters unchanged; owned */
	double s[DIFF__SIDES];
	double error_s; /* error of s[DIFF_B] - s[DIFF_A] at 95 % confidence; NAN: not known */
	bool in[DIFF__SIDES];
};

struct diff_side {
	size_t steps, ranks;
	uint32_t rule; /* enum step_rule */
	bool sampled;
	bool dropped; /* record --max-size or --last has kept the last steps alone */
	double window_s;
	double median_s, p99_s, mean_s;      /* of steps; 0 without steps */
	double median_error_s, mean_error_s; /* as error_s */
	/*
	 * Steps, or seconds, over which actions, operators and GPUs are compared; for GPUs, only
	 * those wholly watched by CUPTI.
	 */
	double action_units, op_units, gpu_units;
};

struct diff {
	struct diff_side sides[DIFF__SIDES];
	bool per_step;
	struct array rows[DIFF__SECTIONS]; /* struct diff_row, by size of the change, largest first */
	size_t common;                     /* number of names in both recordings */
};

/*
 * How the cumulative rows of actions and operators grew from snapshot to snapshot. A job (job.h) keeps only the last snapshot.
 */
struct history;

struct history *history__new(void);          /* NULL: no memory */
void history__free(struct history *history); /* accepts NULL */
/* Takes one record. 0 or -ENOMEM. */
int history__add(struct history *history, const struct rec_hdr *record);

/* Both objects have taken all records of a recording. */
struct diff_input {
	struct job *job;
	struct history *history;
};

/* 0 or -ENOMEM. Free with diff__release. */
int diff__make(const struct diff_input inputs[DIFF__SIDES], struct diff *diff);
void diff__release(struct diff *diff);

/* "functions" */
const char *diff__section_name(enum diff_section section);
/*
 * Whether the change may be chance: it is within twice its error (with so many rows, some exceed
 * their error once), or the error is not known.
 */
bool diff__is_chance(const struct diff_row *row);
/*
 * Whether the change is not chance, and at least a hundredth of A's mean step (or of the time
 * observed).
 */
bool diff__is_change(const struct diff *diff, const struct diff_row *row);
/*
 * How much longer B's median step is, in percent of A's; *error becomes the error of that. NAN when
 * one has no steps.
 */
double diff__slower_percent(const struct diff *diff, double *error);

#endif
