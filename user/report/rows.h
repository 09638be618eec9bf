/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rows of the simple report: the actions that it lists, added up over processes, and sorted. */
#ifndef STEPFLAME_USER_REPORT_ROWS_H
#define STEPFLAME_USER_REPORT_ROWS_H

#include "user/model/processes.h"
#include "user/report/report.h"

struct row {
	const char *name;
	enum span_kind kind;
	uint32_t pid; /* PROCESSES_ALL_MAIN where the row is of several processes */
	bool leaf;    /* no other listed row occurs inside this one */
	struct agg_val val;
	size_t order; /* of the first occurrence */
};

struct rows {
	struct row *items; /* malloc'ed */
	size_t cnt;
	size_t left_out; /* rows that options->limit cuts off */
	size_t unlisted; /* rows of these processes that the options do not choose */
	size_t processes;
	bool lightning;    /* the job has Lightning's actions */
	const char *stage; /* labels__stage */
};

extern const char *const rows__sort_keys[];

/*
 * Collects the rows of one process, or for PROCESSES_ALL_MAIN adds up rows of the same name and
 * kind. `order` ("first" or "percent") is the sort key where options->sort is NULL. 0 or -ENOMEM.
 */
int rows__collect(struct job *job, const struct report_options *options, uint32_t pid, const char *order,
		  struct rows *out);
void rows__release(struct rows *rows);

/*
 * Lists the processes that have a table of their own with --per-rank: targets in their order, then
 * unknown pids. *out is malloc'ed.
 */
int rows__processes(struct job *job, struct rec_target **out, size_t *cnt);

/*
 * Return the observed time in s, 0 when unknown; and a row's percentage of that time, NAN when
 * unknown.
 */
double rows__window_s(const struct job *job);
double rows__percent(const struct row *row, double window_s);

#endif
