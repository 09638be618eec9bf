/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The rows of the operator report: the recording's rows, merged where the options do not split
 * them, and sorted.
 */
#ifndef STEPFLAME_USER_REPORT_OPS_ROWS_H
#define STEPFLAME_USER_REPORT_OPS_ROWS_H

#include "user/analysis/gpu/gpu_ops.h"
#include "user/model/processes.h"
#include "user/report/report.h"

#define OPS_NO_ACTION "(none)" /* the action of operators outside any action */

/* The job owns the texts. A text is NULL where it is unknown or rows are not split by it. */
struct ops_row {
	const char *name;
	const char *overload;
	const char *action;
	const char *source;
	const char *module;
	char *shapes; /* from words__shapes; owned */
	/* Of the first call; NULL unless rows are split by shapes. */
	const uint64_t *words;
	size_t word_cnt;
	bool same_words;            /* all calls had these words, which include dtypes; shapes does not */
	bool shaped;                /* some call has words, whether or not rows are split by shapes */
	enum span_kind kind;        /* SPAN_NONE: the row is GPU work */
	enum gpu_activity activity; /* for GPU work: which kind */
	uint64_t device_ns, self_device_ns;
	bool device_unknown; /* several rows share the device time, and each row's part is unknown */
	uint32_t pid;        /* PROCESSES_ALL_MAIN where the row is of several processes */
	struct op_val val;
	uint64_t flops;          /* sum over all calls */
	size_t order;            /* of the row's first record */
	uint64_t action_self_ns; /* self time of all rows of the row's action */
};

struct ops_rows {
	struct ops_row *items; /* malloc'ed */
	size_t cnt;
	size_t processes;
	bool has_rows;      /* the recording has rows of these processes, perhaps of another action */
	bool has_device;    /* some row has device time */
	struct gpu_ops gpu; /* owns the names of kernels */
};

/*
 * Keys have the names of torch's sort_by where torch has them. The first is the default, as in
 * Lightning's PyTorchProfiler; the second is the default of a table with device times.
 */
extern const char *const ops_rows__sort_keys[];

/*
 * Collects the rows of one process, or those of PROCESSES_ALL_MAIN added up. by_action splits rows
 * by action; options->by_action also sorts rows by action, the action with most self time first. 0
 * or -ENOMEM.
 */
int ops_rows__collect(struct job *job, const struct report_options *options, uint32_t pid, bool by_action,
		      struct ops_rows *out);
bool ops_rows__same_action(const struct ops_row *x, const struct ops_row *y);
void ops_rows__release(struct ops_rows *rows);

/*
 * Lists the processes that have a table of their own with --per-rank. *out is malloc'ed. 0 or
 * -ENOMEM.
 */
int ops_rows__processes(struct job *job, struct rec_target **out, size_t *cnt);

#endif
