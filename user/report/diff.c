// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common.h"
#include "text.h"

#define NAME_WIDTH_MIN 30
#define NAME_WIDTH_MAX 70

static const char *const titles[] = {
	[DIFF_PHASES] = "Phases of a step",
	[DIFF_WAITS] = "What its thread waited for",
	[DIFF_FUNCTIONS] = "Python functions of its thread: own time, waits included",
	[DIFF_ACTIONS] = "Actions, with what is inside",
	[DIFF_OPS] = "Operators: own time",
	[DIFF_GPU] = "GPUs, in steps that CUPTI watched: busy, and idle by reason",
	[DIFF_GPU_WORK] = "Kernels and copies in these steps",
};

static bool is_shown(const struct diff *diff, const struct diff_options *options, const struct diff_row *row,
		     size_t shown)
{
	return (options->all || diff__is_change(diff, row)) && (!options->limit || shown < (size_t)options->limit);
}

/* ---- text ---- */

/* "1.234 ms" */
static const char *print_s(char *text, size_t bytes, const char *sign, double s)
{
	double size = fabs(s);

	if (size >= 1)
		snprintf(text, bytes, "%s%.3f s", sign, s);
	else if (size >= 1e-3)
		snprintf(text, bytes, "%s%.3f ms", sign, s * 1e3);
	else
		snprintf(text, bytes, "%s%.3f us", sign, s * 1e6);
	return text;
}

static int print_row(const struct diff_row *row, size_t width, FILE *out)
{
	double change = row->s[DIFF_B] - row->s[DIFF_A];
	char a[32], b[32], by[32], percent[32] = "new", error[48] = "";
	char *name = text__escape(row->name);

	if (!name)
		return -ENOMEM;
	if (row->in[DIFF_A])
		snprintf(percent, sizeof(percent), "%+.1f %%", 100 * change / row->s[DIFF_A]);
	if (!row->in[DIFF_B])
		snprintf(percent, sizeof(percent), "gone");
	if (row->error_s > 0) {
		print_s(by, sizeof(by), "", row->error_s);
		snprintf(error, sizeof(error), "  +- %s", by);
	}
	fputs("  ", out);
	text__pad(out, name, width);
	fprintf(out, " %12s %12s %13s %10s%s\n", print_s(a, sizeof(a), "", row->s[DIFF_A]),
		print_s(b, sizeof(b), "", row->s[DIFF_B]), print_s(by, sizeof(by), change >= 0 ? "+" : "", change),
		percent, error);
	free(name);
	return 0;
}

/* Of the longest name that is shown. */
static size_t name_width(const struct diff *diff, const struct diff_options *options)
{
	size_t width = NAME_WIDTH_MIN;

	for (int section = 0; section < DIFF__SECTIONS; section++) {
		const struct diff_row *rows = diff->rows[section].items;
		size_t shown = 0;

		for (size_t i = 0; i < diff->rows[section].cnt; i++) {
			size_t length = text__width(rows[i].name);

			if (is_shown(diff, options, &rows[i], shown) && ++shown && length > width)
				width = length;
		}
	}
	return width < NAME_WIDTH_MAX ? width : NAME_WIDTH_MAX;
}

static int print_section(const struct diff *diff, const struct diff_options *options, enum diff_section section,
			 size_t width, FILE *out)
{
	const struct diff_row *rows = diff->rows[section].items;
	size_t shown = 0;
	int err = 0;

	for (size_t i = 0; i < diff->rows[section].cnt && !err; i++) {
		if (!is_shown(diff, options, &rows[i], shown))
			continue;
		if (!shown++)
			fprintf(out, "\n%s\n", titles[section]);
		err = print_row(&rows[i], width, out);
	}
	return err;
}

static void print_side(const struct diff_side *side, const char *letter, const char *file, FILE *out)
{
	char median[32], p99[32];

	if (!side->steps)
		text__line(out, "%s  %s: no steps", letter, file);
	else
		text__line(out, "%s  %s: %zu steps of %zu process%s, median %s, p99 %s", letter, file, side->steps,
			   side->ranks, side->ranks == 1 ? "" : "es",
			   print_s(median, sizeof(median), "", side->median_s),
			   print_s(p99, sizeof(p99), "", side->p99_s));
}

int report_diff__text(const struct diff *diff, const struct diff_options *options, FILE *out)
{
	double slower = diff__slower_percent(diff);
	size_t width = name_width(diff, options);
	int err = 0;

	print_side(&diff->sides[DIFF_A], "A", options->files[DIFF_A], out);
	print_side(&diff->sides[DIFF_B], "B", options->files[DIFF_B], out);
	if (!isnan(slower))
		text__line(out, "B's median step takes %.1f %% %s.", fabs(slower), slower >= 0 ? "longer" : "less");
	fprintf(out, "\n%-*s %12s %12s %13s\n", (int)width + 2, diff->per_step ? "Time per step" : "Time per second",
		"A", "B", "change");
	for (int i = 0; i < DIFF__SECTIONS && !err; i++)
		err = print_section(diff, options, i, width, out);
	return err ?: common__flush(out);
}

/* ---- JSON ---- */

static json_t *json_number(double value)
{
	return isnan(value) ? json_null() : json_real(value);
}

static json_t *json_rows(const struct diff *diff, const struct diff_options *options, enum diff_section section)
{
	const struct diff_row *rows = diff->rows[section].items;
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < diff->rows[section].cnt; i++) {
		const struct diff_row *row = &rows[i];

		if (!is_shown(diff, options, row, json_array_size(list)))
			continue;
		failed |= json_array_append_new(
			list, json_pack("{s:s, s:o, s:o, s:f, s:f, s:b}", "name", row->name, "a_s",
					row->in[DIFF_A] ? json_real(row->s[DIFF_A]) : json_null(), "b_s",
					row->in[DIFF_B] ? json_real(row->s[DIFF_B]) : json_null(), "change_s",
					row->s[DIFF_B] - row->s[DIFF_A], "error_s", row->error_s, "changed",
					diff__is_change(diff, row)));
	}
	return common__json_unless_failed(list, failed);
}

static json_t *json_side(const struct diff_side *side, const char *file)
{
	return json_pack("{s:o, s:I, s:I, s:f, s:f, s:f, s:f}", "file", common__json_text(file), "steps",
			 (json_int_t)side->steps, "processes", (json_int_t)side->ranks, "median_s", side->median_s,
			 "p99_s", side->p99_s, "mean_s", side->mean_s, "mean_error_s", side->mean_error_s);
}

int report_diff__json(const struct diff *diff, const struct diff_options *options, FILE *out)
{
	json_t *object = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "report", "diff", "stepflame", STEPFLAME_VERSION,
				   "per", diff->per_step ? "step" : "second", "a",
				   json_side(&diff->sides[DIFF_A], options->files[DIFF_A]), "b",
				   json_side(&diff->sides[DIFF_B], options->files[DIFF_B]), "slower_percent",
				   json_number(diff__slower_percent(diff)));
	int failed = !object;

	for (int i = 0; i < DIFF__SECTIONS && !failed; i++)
		failed = json_object_set_new(object, diff__section_name(i), json_rows(diff, options, i));
	return common__print_json(common__json_unless_failed(object, failed), out);
}
