// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The simple report: a table of the actions seen that fits the terminal, or with --simple that of
 * Lightning's SimpleProfiler, and below it what the table is made from.
 *
 * Lightning's table is byte for byte what lightning/pytorch/profilers/simple.py (2.6, summary() with
 * extended=True) returns for the same rows, including tabs, dash lines and rounding, except that
 * control characters in names are escaped.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"
#include "user/model/labels.h"
#include "user/report/common.h"
#include "user/report/print/shape.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"
#include "user/report/rows.h"

/* ---- numbers ---- */

#define PYFLOAT_MAX 40 /* bytes for any result with a precision up to 17, with its terminating 0 */

/*
 * Formats as CPython's format(value, '.N'), N = precision, 1 to 17. Unlike C's %.Ng, the result
 * keeps a digit after the point (100.0) and switches to an exponent one power of ten earlier.
 * Source: format_float_short() in CPython's Python/pystrtod.c with format code 'g' and
 * Py_DTSF_ADD_DOT_0, which is what a missing presentation type means. Returns buffer.
 */
static char *pyfloat__format(double value, int precision, char buffer[PYFLOAT_MAX])
{
	char c_text[PYFLOAT_MAX], digits[PYFLOAT_MAX];
	char *exponent, *out = buffer;
	int point, cnt = 0;

	if (isnan(value))
		return strcpy(buffer, "nan");
	if (signbit(value))
		*out++ = '-';
	if (isinf(value)) {
		strcpy(out, "inf");
		return buffer;
	}
	/*
	 * glibc's %e is exact and rounds half to even, so it gives the digits of CPython's dtoa in
	 * mode 2.
	 */
	snprintf(c_text, sizeof(c_text), "%.*e", precision - 1, fabs(value));
	exponent = strchr(c_text, 'e');
	for (const char *c = c_text; c < exponent; c++)
		if (*c >= '0' && *c <= '9')
			digits[cnt++] = *c;
	while (cnt > 1 && digits[cnt - 1] == '0')
		cnt--;
	/* Digits before the point; at 0 and below, zeros follow the point. */
	point = atoi(exponent + 1) + 1;
	if (point <= -4 || point > precision - 1) {
		*out++ = digits[0];
		if (cnt > 1)
			*out++ = '.';
		for (int i = 1; i < cnt; i++)
			*out++ = digits[i];
		sprintf(out, "e%+03d", point - 1);
		return buffer;
	}
	if (point <= 0)
		*out++ = '0';
	for (int i = 0; i < point; i++)
		*out++ = i < cnt ? digits[i] : '0';
	*out++ = '.';
	for (int i = point; i < 0; i++)
		*out++ = '0';
	for (int i = point > 0 ? point : 0; i < cnt; i++)
		*out++ = digits[i];
	if (cnt <= point)
		*out++ = '0';
	*out = 0;
	return buffer;
}

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

/* ---- no rows ---- */

/* malloc'ed; NULL: no memory. */
static char *no_actions_text(const struct rows *rows, const struct report_options *options, uint32_t pid)
{
	const char *where = pid == PROCESSES_ALL_MAIN ? "" : " in this process";
	char *text;
	int bytes;

	if (options->action)
		bytes = asprintf(&text,
				 "No action%s is named \"%s\". Names are matched exactly; --all lists every one.",
				 where, options->action);
	else if (rows->unlisted)
		bytes = asprintf(&text, "No row to list%s, but %zu that %s not listed by default: see --all.", where,
				 rows->unlisted, rows->unlisted == 1 ? "is" : "are");
	else
		bytes = asprintf(
			&text,
			"No action was seen%s. Is the job training, past its imports and set-up? Then record for "
			"longer, so that whole steps fall into the window. `stepflame doctor -p PID` says what can "
			"be seen of a process; --per-rank lists what its children did.",
			where);
	return bytes < 0 ? NULL : text;
}

static char *why_no_actions(struct job *job, const struct report_options *options, uint32_t pid)
{
	struct rows rows;
	char *text;

	if (rows__collect(job, options, pid, "percent", &rows))
		return NULL;
	text = rows.cnt ? NULL : no_actions_text(&rows, options, pid);
	rows__release(&rows);
	return text;
}

static int explain_no_actions(const struct rows *rows, const struct report_options *options, uint32_t pid, FILE *out)
{
	char *text = no_actions_text(rows, options, pid);

	if (text)
		text__paragraph(out, "%s", text);
	free(text);
	return text ? 0 : -ENOMEM;
}

/* ---- rows for JSON, and for a table that fits the terminal ---- */

static int add_action_row(struct job *job, const struct row *row, struct table *table)
{
	const struct agg_val *val = &row->val;
	const struct rec_window *window = job__window(job);
	double percent = rows__percent(row, rows__window_s(job)), mean_s = val->total_ns / 1e9 / val->calls;
	double first_s = (int64_t)(val->first_ns - window->start_ns) / 1e9;
	json_t *pid = row->pid == PROCESSES_ALL_MAIN ? json_null() : json_integer(row->pid);

	return TABLE_ADD(
		table, ((const struct cell[]){
			       cell__new("name:s", 5, "action", 0, 0, json_string(row->name)),
			       cell__new("count:I", 4, "calls", 9, 0, json_integer(val->calls)),
			       cell__new("total_s:f", 2, "total s", 11, 4, json_integer(val->total_ns)),
			       cell__json("mean_s:f", json_real(mean_s)),
			       cell__new(NULL, 3, "mean ms", 11, 3, json_real(mean_s * 1e3)),
			       cell__json("min_s:f", json_real(val->min_ns / 1e9)),
			       cell__json("max_s:f", json_real(val->max_ns / 1e9)),
			       cell__new("percent:f?", 1, "% time", 6, 2, common__json_real(!isnan(percent), percent)),
			       cell__json("first_s:f?", common__json_real(window->hdr.type, first_s)),
			       cell__json("self_s:f", json_real(val->self_ns / 1e9)),
			       cell__json("kind:s", json_string(labels__kind(row->kind))),
			       cell__json("leaf:b", json_boolean(row->leaf)),
			       cell__json("pid:I?", pid),
		       }));
}

static int add_action_rows(struct job *job, const struct rows *rows, struct table *table)
{
	int err = 0;

	for (size_t i = 0; i < rows->cnt && !err; i++)
		err = add_action_row(job, &rows->items[i], table);
	return err;
}

/* NULL: no memory. */
static json_t *json_action_rows(struct job *job, const struct report_options *options, uint32_t pid)
{
	json_t *list = json_array();
	struct table table = {.list = list};
	struct rows rows;
	int err = rows__collect(job, options, pid, "first", &rows);

	if (err) {
		json_decref(list);
		return NULL;
	}
	err = add_action_rows(job, &rows, &table);
	rows__release(&rows);
	return common__json_unless_failed(list, err);
}

static int add_blank_row(struct job *job, struct table *table)
{
	const struct row row = {.name = "", .val.calls = 1};

	return add_action_row(job, &row, table);
}

SHAPE_ROW(action_shape, "action", add_blank_row);
SHAPE(actions_shape, "actions_of_process", "@process actions:[action]");
SHAPE_REPORT(simple_shape, "simple", "simple", "@report actions:[action] processes?:[actions_of_process]");

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_action(struct job *job)
{
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, add_blank_row(job, &table));
}

/* ---- text ---- */

static int print_simple_table(struct job *job, const struct report_options *options, uint32_t pid, FILE *out)
{
	struct report_options shown = *options;
	struct table table = {.out = out, .gap = " ", .unknown = "-"};
	struct rows rows;
	int err;

	if (shown.limit < 0 && !shown.all)
		shown.limit = DEFAULT_LIMIT;
	err = rows__collect(job, &shown, pid, "percent", &rows);
	if (err)
		return err;
	err = options->lightning ? simple__table(&rows, rows__window_s(job), out) : add_action_rows(job, &rows, &table);
	if (!err && !rows.cnt)
		err = explain_no_actions(&rows, options, pid, out);
	if (!err)
		common__left_out(rows.cnt + rows.left_out, rows.cnt, "row", out);
	if (!err && rows.processes > 1)
		text__paragraph(out, "rows: added over %zu processes (--per-rank: one table each)", rows.processes);
	rows__release(&rows);
	return err;
}

/* ---- together ---- */

static const struct common_tables tables = {
	.processes = rows__processes,
	.print = print_simple_table,
	.rows = json_action_rows,
	.why_empty = why_no_actions,
	.key = "actions",
};

static char *why_empty(struct job *job, const struct report_options *options)
{
	return common__why_empty(&tables, job, options);
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	return common__end(common__print_tables(&tables, job, options, out), job, out);
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "actions", NULL};

	return common__print_object(common__json_tables(report_simple.name, &tables, job, options), options, path,
				    blank_action(job), out);
}

const struct report_ops report_simple = {
	.name = "simple",
	.sort_keys = rows__sort_keys,
	.by_action = true,
	.text = print_text,
	.json = print_json,
	.why_empty = why_empty,
};
