// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The rows of the summary: the longest actions or operators, added up over the main processes. */
#include <errno.h>
#include <stdlib.h>

#include "user/model/labels.h"
#include "user/report/common.h"
#include "user/report/ops_rows.h"
#include "user/report/rows.h"
#include "user/report/summary.h"

#define SHOWN_SHARE 0.001 /* of the time: rows with less are left out */
#define OWN_SHARE   0.2   /* of a row's time: one with less merely contains others */
#define WIDE        56    /* columns from which on calls and means have room */

static void add_row(struct summary_rows *rows, const char *name, const char *kind, uint64_t calls, uint64_t ns)
{
	if (calls && ns >= SHOWN_SHARE * rows->window_ns)
		rows->items[rows->cnt++] = (struct summary_row){name, kind, calls, ns};
}

static int collect_ops(struct job *job, size_t limit, struct summary_rows *out)
{
	const struct report_options options = {.sort = "self_cpu_time_total", .limit = -1};
	struct ops_rows ops;
	int err = ops_rows__collect(job, &options, PROCESSES_ALL_MAIN, false, &ops);
	double all_ns = 0;

	if (err)
		return err;
	for (size_t i = 0; i < ops.cnt; i++)
		all_ns += ops.items[i].val.self_ns;
	out->window_ns = all_ns;
	for (size_t i = 0; i < ops.cnt && out->cnt < limit; i++)
		if (ops.items[i].kind != SPAN_NONE)
			add_row(out, ops.items[i].name, "op", ops.items[i].val.calls, ops.items[i].val.self_ns);
	out->of_ops = out->cnt;
	ops_rows__release(&ops);
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	const struct summary_row *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

/* What the steps know to be data or other is no forward, although the kernel counted it as such. */
static void add_forward(const struct steps_view *view, const struct row *row, struct summary_rows *out)
{
	uint64_t ns = row->val.self_ns, moved_ns = 0, data_ns = 0;

	for (size_t i = 0; i < view->track_cnt; i++) {
		for (int phase = 0; phase < PHASE__COUNT; phase++)
			moved_ns += view->tracks[i].moved_ns[phase];
		data_ns += view->tracks[i].moved_ns[PHASE_DATA];
	}
	add_row(out, row->name, labels__kind(row->kind), row->val.calls, ns > moved_ns ? ns - moved_ns : 0);
	add_row(out, "data, in front of the model", "data", row->val.calls, data_ns);
}

static int collect_actions(struct job *job, const struct steps_view *view, size_t limit, struct summary_rows *out)
{
	const struct report_options options = {.all = true};
	struct rows rows;
	int err = rows__collect(job, &options, PROCESSES_ALL_MAIN, "self", &rows);

	if (err)
		return err;
	out->window_ns = 1e9 * rows__window_s(job) * (rows.processes ?: 1);
	for (size_t i = 0; i < rows.cnt && out->cnt <= limit; i++) {
		const struct row *row = &rows.items[i];

		if (row->kind == SPAN_FORWARD)
			add_forward(view, row, out);
		else if (row->val.self_ns >= OWN_SHARE * row->val.total_ns)
			add_row(out, row->name, labels__kind(row->kind), row->val.calls, row->val.self_ns);
	}
	rows__release(&rows);
	qsort(out->items, out->cnt, sizeof(*out->items), compare_rows);
	out->cnt = out->cnt < limit ? out->cnt : limit;
	return 0;
}

int summary_rows__collect(struct job *job, const struct steps_view *view, size_t limit, struct summary_rows *out)
{
	int err;

	*out = (struct summary_rows){.items = calloc(limit + 2, sizeof(*out->items))};
	if (!out->items)
		return -ENOMEM;
	err = collect_ops(job, limit, out);
	if (!err && !out->cnt)
		err = collect_actions(job, view, limit, out);
	if (err)
		summary_rows__release(out);
	return err;
}

void summary_rows__release(struct summary_rows *rows)
{
	free(rows->items);
	*rows = (struct summary_rows){0};
}

int summary_rows__print(const struct summary_rows *rows, size_t columns, struct table *table)
{
	bool wide = columns >= WIDE;
	int err = 0;

	for (size_t i = 0; i < rows->cnt && !err; i++) {
		const struct summary_row *row = &rows->items[i];
		double share = rows->window_ns ? 100 * row->ns / rows->window_ns : 0;
		const struct cell cells[] = {
			cell__json("name:s", json_string(row->name)),
			cell__json("kind:s", json_string(row->kind)),
			cell__if(wide || !table->out,
				 cell__new("count:I", 3, "calls", 8, 0, common__json_integer(row->calls))),
			cell__new("self_s:f", 1, "own s", 8, -4, json_integer(row->ns)),
			cell__new(NULL, 2, "share", 7, 0,
				  rows->window_ns ? json_sprintf("%.1f %%", share) : json_string("-")),
			cell__json("percent:f?", common__json_real(rows->window_ns, share)),
			cell__if(wide || !table->out,
				 cell__new("self_mean_s:f", 4, "each ms", 9, -4, json_integer(row->ns / row->calls))),
			cell__new(NULL, 5, rows->of_ops ? "operator" : "action", 0, 0, json_string(row->name)),
		};

		err = TABLE_ADD(table, cells);
	}
	return err;
}
