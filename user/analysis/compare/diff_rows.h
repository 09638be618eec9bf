/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The rows of a diff. In: times by section and name, from diff.c; the counted rows of a job and their history. Out: entries, and
 * seconds per unit of counted rows with their error.
 */
#ifndef STEPFLAME_USER_ANALYSIS_COMPARE_DIFF_ROWS_H
#define STEPFLAME_USER_ANALYSIS_COMPARE_DIFF_ROWS_H

#include "user/analysis/compare/blocks.h"
#include "user/analysis/compare/diff.h"
#include "user/analysis/steps/steps.h"
#include "user/lib/map.h"

#define SURE 1.96 /* standard deviations that enclose 95 % of a normal distribution */

struct diff_entry {
	struct entry_key {
		uint32_t section, name; /* enum diff_section; a text */
	} key;
	struct diff_row row;       /* without its name */
	double totals[BLOCKS_MAX]; /* of the current side */
	struct array rows;         /* const struct history_row *, of the current side */
	struct agg_val val;        /* total of the rows, of the current side */
	double square;             /* squared errors, summed over both sides */
	double chance;             /* squared weights of timer samples, summed over both sides */
};

struct diff_maker {
	struct diff *diff;
	struct map entry_names, entries; /* texts; struct diff_entry */
	struct job *job;
	const struct history *history;
	const struct steps *steps;
	int side;
	struct blocks blocks;      /* of this side: of its steps, or of its time */
	struct blocks watched;     /* likewise, of what CUPTI watched */
	double units[DIFF__SIDES]; /* of blocks */
	int err;
};

/* Valid until the next call. NULL: no memory, now or earlier. */
struct diff_entry *diff__entry(struct diff_maker *m, enum diff_section section, const char *name);
/* Adds to a row's time in a block of this side. Does nothing for block -1, or after an error. */
void diff__add(struct diff_maker *m, enum diff_section section, const char *name, int block, double seconds);
void diff__free_entries(struct diff_maker *m);

/* Add the rows of actions, or of operators, with their histories. */
void diff__add_actions(struct diff_maker *m);
void diff__add_ops(struct diff_maker *m);
/*
 * The time grid of a section: its snapshots, with the units that had passed at each. NULL: no
 * memory.
 */
struct grid *grid__new(struct diff_maker *m, enum diff_section section);
void grid__free(struct grid *grid); /* accepts NULL */
/* Steps, or seconds, over which the rows are compared. */
double grid__units(const struct grid *grid);
/*
 * Computes seconds per unit, and their error (as in struct diff_row). rows: const struct
 * history_row *. val: empty if not known.
 */
void grid__measure(struct grid *grid, const struct array *rows, const struct agg_val *val, double *s, double *error_s);

#endif
