/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One struct report_ops per report. To add a report, add a file, and a line in report.c's table. */
#ifndef STEPFLAME_USER_REPORT_REPORT_H
#define STEPFLAME_USER_REPORT_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "user/model/job.h"

struct report_options {
	bool all;      /* every row, also torch's own labels and derived ones; advanced: also tables of few samples */
	bool leaf;     /* simple: only rows that contain no other; advanced: also symbols */
	bool per_rank; /* one table per process */
	bool json;
	bool csv;       /* of the rows of the main table */
	bool lightning; /* simple: Lightning's own layout, however wide */
	/* Operator report: what else, besides the name, splits rows; and FLOPs. */
	bool overloads;
	bool shapes;
	bool stacks;
	bool modules;
	bool by_action; /* one table per action; GPU report: split rows by action */
	bool by_op;     /* GPU report: split rows by operator */
	bool flops;
	bool cpu;           /* advanced report: without waits */
	bool native;        /* advanced report: as leaf, and also the interpreter's own functions */
	const char *sort;   /* NULL: the report's own order */
	const char *action; /* only actions of this name; NULL: all */
	int limit;          /* rows; 0: all; below 0: the report's default */
	/* Summary: */
	const char *file; /* name of the recording, for the commands that it suggests; NULL: none */
	bool colour;      /* of the terminal */
};

struct report_ops {
	const char *name;             /* "simple" */
	const char *const *sort_keys; /* NULL-terminated; the first is the default */
	bool by_action;               /* --action chooses its rows */
	/* Prints to out. 0 or -errno (of the write, or -ENOMEM). */
	int (*text)(struct job *job, const struct report_options *options, FILE *out);
	int (*json)(struct job *job, const struct report_options *options, FILE *out); /* with options->csv: CSV */
	/*
	 * Returns why the main table has no row, in a sentence, malloc'ed; NULL: it has some, or no
	 * memory. NULL function: not known.
	 */
	char *(*why_empty)(struct job *job, const struct report_options *options);
};

extern const struct report_ops report_summary;
extern const struct report_ops report_simple;
extern const struct report_ops report_ops;
extern const struct report_ops report_io;
extern const struct report_ops report_gpu;
extern const struct report_ops report_advanced;
extern const struct report_ops report_steps;

/*
 * Returns how many rows of a table to show; SIZE_MAX for all, which a default_limit of 0 also
 * means.
 */
size_t report_options__limit(const struct report_options *options, int default_limit);

/* Returns a report of the table, by its index; NULL: the table has no more. */
const struct report_ops *report__at(size_t index);
/* Returns NULL for an unknown name. */
const struct report_ops *report__find(const char *name);

#endif
