/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rows of the simple report: which of the job's actions are listed, added over processes, in order. */
#ifndef STEPFLAME_USER_REPORT_ROWS_H
#define STEPFLAME_USER_REPORT_ROWS_H

#include "user/model/processes.h"
#include "user/report/report.h"

struct row {
	const char *name;
	enum span_kind kind;
	uint32_t pid; /* PROCESSES_ALL_MAIN when several processes are in it */
	bool leaf;    /* no other listed row was seen inside it */
	struct agg_val val;
	size_t order; /* of first occurrence */
};

struct rows {
	struct row *items; /* malloc'ed */
	size_t cnt;
	size_t left_out; /* by options->limit */
	size_t unlisted; /* seen in these processes, but not chosen by the options */
	size_t processes;
	bool lightning;    /* the job has Lightning's actions */
	const char *stage; /* labels__stage */
};

extern const char *const rows__sort_keys[];

/*
 * Rows of one process; of PROCESSES_ALL_MAIN: those of the same name and kind added together. options->sort NULL:
 * `order` ("first" or "percent"). 0 or -ENOMEM.
 */
int rows__collect(struct job *job, const struct report_options *options, uint32_t pid, const char *order,
		  struct rows *out);
void rows__release(struct rows *rows);

/*
 * Processes that have a table of their own with --per-rank: targets in their order, then unknown pids. malloc'ed into
 * *out.
 */
int rows__processes(struct job *job, struct rec_target **out, size_t *cnt);

/* Observed time in s, 0 when unknown; and a row's share of it in percent, NAN then. */
double rows__window_s(const struct job *job);
double rows__percent(const struct row *row, double window_s);

#endif
