// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The simple report: Lightning's SimpleProfiler table of the actions seen, and below it what the
 * table is made from.
 *
 * A table is byte for byte what lightning/pytorch/profilers/simple.py (2.6, summary() with
 * extended=True) returns for the same rows, including tabs, dash lines and rounding, except that
 * control characters in names are escaped.
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/pyfloat.h"
#include "user/lib/utf8.h"
#include "user/model/labels.h"
#include "user/report/common.h"
#include "user/report/rows.h"
#include "user/report/text.h"

/* Rows of the text, unless --limit or --all say otherwise; JSON and CSV have all. */
#define DEFAULT_LIMIT 15

/* ---- the table ---- */

static void print_cells(FILE *out, size_t width, const char *action, const char *mean, const char *calls,
			const char *total, const char *percent)
{
	fputs("\n|  ", out);
	text__pad(out, action, width);
	fprintf(out, "\t|  %-15s\t|  %-15s\t|  %-15s\t|  %-15s\t|", mean, calls, total, percent);
}

static void print_simple_dashes(FILE *out, size_t cnt)
{
	fputc('\n', out);
	while (cnt--)
		fputc('-', out);
}

static void print_simple_row(FILE *out, const struct row *row, const char *name, size_t width, double window_s)
{
	char mean[PYFLOAT_MAX], total[PYFLOAT_MAX], percent[PYFLOAT_MAX], calls[24];
	double total_s = row->val.total_ns / 1e9;

	snprintf(calls, sizeof(calls), "%" PRIu64, (uint64_t)row->val.calls);
	print_cells(out, width, name, pyfloat__format(total_s / row->val.calls, 5, mean), calls,
		    pyfloat__format(total_s, 5, total),
		    window_s > 0 ? pyfloat__format(rows__percent(row, window_s), 5, percent) : "-");
}

/*
 * Lightning's dash lines are as long as the header with its tabs expanded, including the leading
 * newline.
 */
static int header_width(size_t width, size_t *dashes)
{
	char *header = NULL;
	size_t bytes;
	FILE *text = open_memstream(&header, &bytes);

	if (!text)
		return -ENOMEM;
	print_cells(text, width, "Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %");
	if (fclose(text)) {
		free(header);
		return -ENOMEM;
	}
	*dashes = text__expanded_width(header);
	free(header);
	return 0;
}

/* Prints Lightning's table alone. 0 or -ENOMEM; the caller checks out for errors. */
static int simple__table(const struct rows *rows, double window_s, FILE *out)
{
	char **names = calloc(rows->cnt + 1, sizeof(*names)), total[PYFLOAT_MAX], calls[24];
	size_t width = 0, dashes;
	uint64_t call_cnt = 0;
	int err = -ENOMEM;

	if (!names)
		goto out;
	for (size_t i = 0; i < rows->cnt; i++) {
		names[i] = utf8__escape(rows->items[i].name);
		if (!names[i])
			goto out;
		if (text__width(names[i]) > width)
			width = text__width(names[i]);
		call_cnt += rows->items[i].val.calls;
	}
	err = header_width(width, &dashes);
	if (err)
		goto out;
	fprintf(out, "%s%sProfiler Report\n", rows->stage ? rows->stage : "", rows->stage ? " " : "");
	if (rows->cnt) {
		snprintf(calls, sizeof(calls), "%" PRIu64, call_cnt);
		print_simple_dashes(out, dashes);
		print_cells(out, width, "Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %");
		print_simple_dashes(out, dashes);
		print_cells(out, width, "Total", "-", calls, window_s > 0 ? pyfloat__format(window_s, 5, total) : "-",
			    "100 %");
		print_simple_dashes(out, dashes);
		for (size_t i = 0; i < rows->cnt; i++)
			print_simple_row(out, &rows->items[i], names[i], width, window_s);
		print_simple_dashes(out, dashes);
	}
	fputc('\n', out);
out:
	for (size_t i = 0; names && i < rows->cnt; i++)
		free(names[i]);
	free(names);
	return err;
}

/* ---- text ---- */

static void explain_no_actions(const struct rows *rows, const struct report_options *options, const char *where,
			       FILE *out)
{
	if (options->action)
		text__paragraph(out, "No action%s is named \"%s\". Names are matched exactly; --all lists every one.",
				where, options->action);
	else if (rows->unlisted)
		text__paragraph(out, "No row to list%s, but %zu that %s not listed by default: see --all.", where,
				rows->unlisted, rows->unlisted == 1 ? "is" : "are");
	else
		text__paragraph(
			out,
			"No action was seen%s. Is the job training, past its imports and set-up? Then record for "
			"longer, so that whole steps fall into the window. `stepflame doctor -p PID` says what can "
			"be seen of a process; --per-rank lists what its children did.",
			where);
}

static int print_simple_table(struct job *job, const struct report_options *options, uint32_t pid, FILE *out)
{
	struct report_options shown = *options;
	struct rows rows;
	int err;

	if (shown.limit < 0 && !shown.all)
		shown.limit = DEFAULT_LIMIT;
	err = rows__collect(job, &shown, pid, "percent", &rows);
	if (err)
		return err;
	err = simple__table(&rows, rows__window_s(job), out);
	if (!err && !rows.cnt)
		explain_no_actions(&rows, options, pid == PROCESSES_ALL_MAIN ? "" : " in this process", out);
	if (!err)
		common__left_out(rows.cnt + rows.left_out, rows.cnt, "row", out);
	if (!err && rows.processes > 1)
		text__paragraph(out, "rows: added over %zu processes (--per-rank: one table each)", rows.processes);
	rows__release(&rows);
	return err;
}

/* ---- JSON ---- */

static json_t *json_action_row(struct job *job, const struct row *row)
{
	const struct agg_val *val = &row->val;
	const struct rec_window *window = job__window(job);
	double percent = rows__percent(row, rows__window_s(job));
	double first_s = (int64_t)(val->first_ns - window->start_ns) / 1e9;

	return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:s, s:b, s:o}", "name", row->name, "count",
			 (json_int_t)val->calls, "total_s", val->total_ns / 1e9, "mean_s",
			 val->total_ns / 1e9 / val->calls, "min_s", val->min_ns / 1e9, "max_s", val->max_ns / 1e9,
			 "percent", isnan(percent) ? json_null() : json_real(percent), "first_s",
			 window->hdr.type ? json_real(first_s) : json_null(), "self_s", val->self_ns / 1e9, "kind",
			 labels__kind(row->kind), "leaf", row->leaf, "pid",
			 row->pid == PROCESSES_ALL_MAIN ? json_null() : json_integer(row->pid));
}

/* NULL: no memory. */
static json_t *json_action_rows(struct job *job, const struct report_options *options, uint32_t pid)
{
	struct rows rows;
	json_t *list;

	if (rows__collect(job, options, pid, "first", &rows))
		return NULL;
	list = json_array();
	for (size_t i = 0; i < rows.cnt; i++)
		common__json_append(&list, json_action_row(job, &rows.items[i]));
	rows__release(&rows);
	return list;
}

/* ---- together ---- */

static const struct common_tables tables = {
	.processes = rows__processes,
	.print = print_simple_table,
	.rows = json_action_rows,
	.key = "actions",
};

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	return common__end(common__print_tables(&tables, job, options, out), job, out);
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "actions", NULL};

	return common__print_object(common__json_tables(report_simple.name, &tables, job, options), options, path, out);
}

const struct report_ops report_simple = {
	.name = "simple",
	.sort_keys = rows__sort_keys,
	.text = print_text,
	.json = print_json,
};
