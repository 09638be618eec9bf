/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The rows of the operator report: those of the recording added up over what the options do not tell apart, in order.
 */
#ifndef STEPFLAME_USER_REPORT_OPS_ROWS_H
#define STEPFLAME_USER_REPORT_OPS_ROWS_H

#include "user/analysis/gpu_ops.h"
#include "user/model/processes.h"
#include "user/report/report.h"

#define OPS_NO_ACTION "(none)" /* the action of what lies in no action */

/* Texts are the job's, and NULL where they are not told apart or not known. */
struct ops_row {
	const char *name;
	const char *overload;
	const char *action;
	const char *source;
	const char *module;
	char *shapes; /* words__shapes, owned */
	/* Of the first call; NULL without shapes. */
	const uint64_t *words;
	size_t word_cnt;
	bool same_words;            /* all calls had these: dtypes too, which are not in shapes */
	bool shaped;                /* some call has words, whether or not they are told apart */
	enum span_kind kind;        /* SPAN_NONE: work of a GPU by itself */
	enum gpu_activity activity; /* then: which */
	uint64_t device_ns, self_device_ns;
	bool device_unknown; /* calls of several rows asked for it, and which for how much is not known */
	uint32_t pid;        /* PROCESSES_ALL_MAIN when several processes are in it */
	struct op_val val;
	uint64_t flops;          /* of all calls */
	size_t order;            /* of first record */
	uint64_t action_self_ns; /* of all rows of its action */
};

struct ops_rows {
	struct ops_row *items; /* malloc'ed */
	size_t cnt;
	size_t processes;
	bool has_rows;      /* the recording has rows of these processes, perhaps not of this action */
	bool has_device;    /* some device time */
	struct gpu_ops gpu; /* whose texts the names of kernels are */
};

/*
 * Names as torch's sort_by, where it has them; the first is the default, as in Lightning's PyTorchProfiler: of a table
 * with device times the second.
 */
extern const char *const ops_rows__sort_keys[];

/*
 * Rows of one process, or those of PROCESSES_ALL_MAIN added together. by_action: rows of different actions stay apart;
 * with options->by_action they are also sorted by action, the one with most self time first. 0 or -ENOMEM.
 */
int ops_rows__collect(struct job *job, const struct report_options *options, uint32_t pid, bool by_action,
		      struct ops_rows *out);
bool ops_rows__same_action(const struct ops_row *x, const struct ops_row *y);
void ops_rows__release(struct ops_rows *rows);

/* Processes that have a table of their own with --per-rank. malloc'ed into *out. 0 or -ENOMEM. */
int ops_rows__processes(struct job *job, struct rec_target **out, size_t *cnt);

#endif
