/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One struct report_ops per report; adding a report is adding a file and a line in report.c's table. */
#ifndef STEPFLAME_USER_REPORT_REPORT_H
#define STEPFLAME_USER_REPORT_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "user/model/job.h"

struct report_options {
	bool all; /* every row, torch's own labels and the derived ones too; of the advanced one tables of few samples, too */
	bool leaf;     /* of the simple report only rows that contain no other; of the advanced one symbols, too */
	bool per_rank; /* one table per process */
	bool json;
	/* Of the operator report: what rows are told apart by besides their name, and FLOPs. */
	bool overloads;
	bool shapes;
	bool stacks;
	bool modules;
	bool by_action; /* one table per action; of the GPU report: rows apart */
	bool by_op;     /* of the GPU report: rows apart */
	bool flops;
	bool cpu;           /* of the advanced report: without waits */
	bool native;        /* likewise: as leaf, and the interpreter's own functions */
	const char *sort;   /* NULL: the report's own order */
	const char *action; /* only actions of this name; NULL: all */
	int limit;          /* rows; 0: all; below 0: as many as the report shows by itself */
};

struct report_ops {
	const char *name;             /* "simple" */
	const char *const *sort_keys; /* NULL-terminated; the first is the default */
	/* Prints to out. 0 or -errno (of the write, or -ENOMEM). */
	int (*text)(struct job *job, const struct report_options *options, FILE *out);
	int (*json)(struct job *job, const struct report_options *options, FILE *out);
};

extern const struct report_ops report_simple;
extern const struct report_ops report_ops;
extern const struct report_ops report_io;
extern const struct report_ops report_gpu;
extern const struct report_ops report_advanced;
extern const struct report_ops report_steps;

/* How many rows of a table are shown: SIZE_MAX for all, which default_limit 0 is too. */
size_t report_options__limit(const struct report_options *options, int default_limit);

/* NULL when there is none of that name. */
const struct report_ops *report__find(const char *name);

#endif
