/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a diff is made, shared by its files only: diff.c (steps, functions, and all together), diff_rows.c, diff_gpu.c. */
#ifndef STEPFLAME_USER_ANALYSIS_DIFF_PRIVATE_H
#define STEPFLAME_USER_ANALYSIS_DIFF_PRIVATE_H

#include "user/analysis/blocks.h"
#include "user/analysis/diff.h"
#include "user/analysis/history.h"
#include "user/analysis/steps.h"

#define SURE 1.96 /* standard deviations of a normal distribution that 95 % lie within */

struct making {
	struct diff *diff;
	struct map entry_names, entries; /* texts; struct diff_entry, see diff.c */
	struct job *job;
	const struct history *history;
	const struct steps *steps;
	int side;
	struct blocks blocks;      /* of the side: of its steps, or of its time */
	struct blocks watched;     /* the same of what CUPTI watched */
	double units[DIFF__SIDES]; /* of blocks */
	int err;
};

/* Adds to what a row has in a block of the side's; block -1 and an err of before: nothing. */
void diff__add(struct making *m, enum diff_section section, const char *name, int block, double seconds);
/* Another way to the same: what a row of that name is made of on this side. val: what it came to in all, NULL: not known. */
void diff__add_row(struct making *m, enum diff_section section, const char *name, const struct history_row *row,
		   const struct agg_val *val);

/* Calls diff__add_row. */
void diff__add_actions(struct making *m);
void diff__add_ops(struct making *m);
/* The section's grid of time: snapshots, and how many units had passed by then. NULL: no memory. */
struct grid *grid__new(struct making *m, enum diff_section section);
void grid__free(struct grid *grid); /* accepts NULL */
/* Steps, or seconds, over which rows are compared. */
double grid__units(const struct grid *grid);
/* Seconds per unit, and what they are off by (as struct diff_row). rows: const struct history_row *; val: empty: not known. */
void grid__measure(struct grid *grid, const struct array *rows, const struct agg_val *val, double *s, double *error_s);

/* Calls diff__add; cuts what was watched into blocks. */
void diff__add_gpu(struct making *m, struct blocks *blocks);

#endif
