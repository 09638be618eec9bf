// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/diff.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/compare/diff.h"
#include "user/lib/columns.h"
#include "user/report/common.h"
#include "user/report/print/csv.h"
#include "user/report/print/text.h"

/* ---- notes: what the comparison covers, and what it leaves out ---- */

__attribute__((format(printf, 2, 3))) static int add_note(struct array *notes, const char *format, ...)
{
	va_list ap;
	char *text, **slot;
	int bytes;

	va_start(ap, format);
	bytes = vasprintf(&text, format, ap);
	va_end(ap);
	slot = bytes >= 0 ? array__add(notes, sizeof(*slot)) : NULL;
	if (slot)
		*slot = text;
	else if (bytes >= 0)
		free(text);
	return slot ? 0 : -ENOMEM;
}

/* Says that only one recording has something. */
static int say_missing(struct array *notes, const char *what, bool a, bool b, const char *how)
{
	if (a == b)
		return 0;
	return add_note(notes, "%s are not compared: %s has none%s.", what, a ? "B" : "A", how);
}

/* Says why the comparison is per second. */
static int say_per_second(struct array *notes, const struct diff_side *a, const struct diff_side *b)
{
	const char *who = !a->steps && !b->steps ? "neither has" : !a->steps ? "A has no" : "B has no";
	bool sampled = (a->steps || a->sampled) && (b->steps || b->sampled);

	return add_note(notes, "Figures are time per second, not per step: %s steps%s.", who,
			sampled ? "" : ", which only a recording with samples has (not with record -F 0)");
}

/* Says how much of each recording a figure covers. */
static int say_amount(struct array *notes, const char *what, const char *unit, double a, double b)
{
	return a > 0 && b > 0 ? add_note(notes, "%s: in %.4g %s of A and %.4g of B.", what, a, unit, b) : 0;
}

/* Adds a sentence, char *, for each thing that the reader has to know. 0 or -ENOMEM. */
static int diff_notes__make(const struct diff *diff, struct array *notes)
{
	const struct diff_side *a = &diff->sides[DIFF_A], *b = &diff->sides[DIFF_B];
	const char *unit = diff->per_step ? "steps" : "seconds";
	int err = 0;

	if (!diff->per_step)
		err = say_per_second(notes, a, b);
	else if (a->rule != b->rule)
		err = add_note(notes,
			       "Steps may not be comparable, because different rules end them: in A %s, in B %s.",
			       common__step_rule(a->rule), common__step_rule(b->rule));
	if (!err && a->ranks != b->ranks && diff->per_step)
		err = add_note(notes, "A has %zu process%s, B has %zu: figures are per process, on average.", a->ranks,
			       a->ranks == 1 ? "" : "es", b->ranks);
	return err ?:
	       say_missing(notes, "Waits and functions", a->sampled, b->sampled, " (no samples)") ?:
	       say_missing(notes, "Actions", a->action_units > 0, b->action_units > 0,
			   " (the file was cut before its first snapshot)") ?:
	       say_missing(notes, "Operators", a->op_units > 0, b->op_units > 0, " (record --ops)") ?:
	       say_missing(notes, "GPUs", a->gpu_units > 0, b->gpu_units > 0, " that CUPTI watched") ?:
	       say_amount(notes, "Actions are compared as counted", unit, a->action_units, b->action_units) ?:
	       say_amount(notes, "Operators as counted", unit, a->op_units, b->op_units) ?:
	       say_amount(notes, "GPUs as CUPTI watched them", unit, a->gpu_units, b->gpu_units);
}

static void diff_notes__free(struct array *notes)
{
	for (size_t i = 0; i < notes->cnt; i++)
		free(((char **)notes->items)[i]);
	free(notes->items);
	*notes = (struct array){0};
}

#define NAME_WIDTH_MIN 30
#define NAME_WIDTH_MAX 70
#define TERMINAL_MIN   12 /* width of names in a narrow terminal */
#define SIDE_HANG      3  /* "A  " */
#define NUMBERS_WIDTH  68 /* what a row has besides the name */

static const char *const titles[] = {
	[DIFF_STEP] = "A step",
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

static int print_diff_row(const struct diff_row *row, size_t width, FILE *out)
{
	double change = row->s[DIFF_B] - row->s[DIFF_A];
	char a[32], b[32], by[32], percent[32] = "new", error[32] = "?";
	char *name = text__fit(row->name, text__columns() == SIZE_MAX ? SIZE_MAX : width);

	if (!name)
		return -ENOMEM;
	if (row->in[DIFF_A])
		percent[0] = 0;
	if (row->s[DIFF_A] > 0)
		snprintf(percent, sizeof(percent), "%+.1f %%", 100 * change / row->s[DIFF_A]);
	if (!row->in[DIFF_B])
		snprintf(percent, sizeof(percent), "gone");
	if (!isnan(row->error_s))
		print_s(error, sizeof(error), "", row->error_s);
	fputs(diff__is_chance(row) ? "~ " : "  ", out);
	text__pad(out, name, width + text__width(name) - columns__of_text(name));
	fprintf(out, " %12s %12s %13s %10s  +- %s\n", print_s(a, sizeof(a), "", row->s[DIFF_A]),
		print_s(b, sizeof(b), "", row->s[DIFF_B]), print_s(by, sizeof(by), change >= 0 ? "+" : "", change),
		percent, error);
	free(name);
	return 0;
}

/* Returns the width of the longest name shown that fits. */
static size_t name_width(const struct diff *diff, const struct diff_options *options)
{
	size_t width = NAME_WIDTH_MIN;

	for (int section = 0; section < DIFF__SECTIONS; section++) {
		const struct diff_row *rows = diff->rows[section].items;
		size_t shown = 0;

		for (size_t i = 0; i < diff->rows[section].cnt; i++) {
			size_t length = columns__of_text(rows[i].name);

			if (is_shown(diff, options, &rows[i], shown) && ++shown && length > width)
				width = length;
		}
	}
	if (width > NAME_WIDTH_MAX)
		width = NAME_WIDTH_MAX;
	if (text__columns() < TERMINAL_MIN + NUMBERS_WIDTH)
		return TERMINAL_MIN;
	return width < text__columns() - NUMBERS_WIDTH ? width : text__columns() - NUMBERS_WIDTH;
}

static int print_section(const struct diff *diff, const struct diff_options *options, enum diff_section section,
			 size_t width, size_t *chances, FILE *out)
{
	const struct diff_row *rows = diff->rows[section].items;
	size_t shown = 0;
	int err = 0;

	for (size_t i = 0; i < diff->rows[section].cnt && !err; i++) {
		if (!is_shown(diff, options, &rows[i], shown))
			continue;
		if (!shown++)
			fprintf(out, "\n%s\n", titles[section]);
		*chances += diff__is_chance(&rows[i]);
		err = print_diff_row(&rows[i], width, out);
	}
	return err;
}

static int print_side(const struct diff_side *side, const char *letter, const char *path, FILE *out)
{
	size_t columns = text__columns(), room = columns > TERMINAL_MIN + SIDE_HANG ? columns - SIDE_HANG - 1 : 1;
	char median[32], p99[32], *file = text__fit(path, room);

	if (!file)
		return -ENOMEM;
	if (!side->steps)
		text__wrapped(out, SIDE_HANG, "%s  %s: no steps, in %.4g s", letter, file, side->window_s);
	else
		text__wrapped(out, SIDE_HANG, "%s  %s: %zu steps of %zu process%s in %.4g s, median %s, p99 %s", letter,
			      file, side->steps, side->ranks, side->ranks == 1 ? "" : "es", side->window_s,
			      print_s(median, sizeof(median), "", side->median_s),
			      print_s(p99, sizeof(p99), "", side->p99_s));
	free(file);
	return 0;
}

static void print_slower(const struct diff *diff, FILE *out)
{
	double error, slower = diff__slower_percent(diff, &error);
	const char *how = slower >= 0 ? "longer" : "less";

	if (isnan(slower))
		return;
	if (fabs(slower) > error)
		text__wrapped(out, 2, "B's median step takes %.1f %% %s, +- %.1f %%.", fabs(slower), how, error);
	else if (isnan(error))
		text__wrapped(out, 2, "B's median step takes %.1f %% %s; how much of that is chance is not known.",
			      fabs(slower), how);
	else
		text__wrapped(
			out, 2,
			"B's median step takes as long as A's: the difference, %+.1f %%, may be chance (+- %.1f %%).",
			slower, error);
}

int report_diff__text(const struct diff *diff, const struct diff_options *options, FILE *out)
{
	struct array notes = {0};
	size_t width = name_width(diff, options), chances = 0, changes = 0;
	int err = diff_notes__make(diff, &notes);

	err = err ?: print_side(&diff->sides[DIFF_A], "A", options->files[DIFF_A], out);
	err = err ?: print_side(&diff->sides[DIFF_B], "B", options->files[DIFF_B], out);
	print_slower(diff, out);
	for (size_t i = 0; i < notes.cnt; i++)
		text__wrapped(out, 2, "%s", ((char **)notes.items)[i]);
	diff_notes__free(&notes);
	for (int i = 0; i < DIFF__SECTIONS; i++)
		for (size_t r = 0; r < diff->rows[i].cnt; r++)
			changes += diff__is_change(diff, &((const struct diff_row *)diff->rows[i].items)[r]);
	if (!changes)
		text__wrapped(out, 2, "No row changed by more than chance and more than a hundredth of %s.",
			      diff->per_step ? "a step" : "the time");
	if (changes || options->all)
		fprintf(out, "\n%-*s %12s %12s %13s\n", (int)width + 2,
			diff->per_step ? "Time per step" : "Time per second", "A", "B", "change");
	for (int i = 0; i < DIFF__SECTIONS && !err; i++)
		err = print_section(diff, options, i, width, &chances, out);
	if (chances)
		fputs("\n~ may be chance: the change is no more than twice its error (+-, 95 %)\n", out);
	return err ?: common__flush(out);
}

/* ---- JSON ---- */

static json_t *json_number(double value)
{
	return common__json_real(!isnan(value), value);
}

static json_t *json_diff_rows(const struct diff *diff, const struct diff_options *options, enum diff_section section)
{
	const struct diff_row *rows = diff->rows[section].items;
	json_t *list = json_array();

	for (size_t i = 0; i < diff->rows[section].cnt; i++) {
		const struct diff_row *row = &rows[i];

		if (!is_shown(diff, options, row, json_array_size(list)))
			continue;
		common__json_append(&list,
				    json_pack("{s:s, s:o, s:o, s:f, s:o, s:b, s:b}", "name", row->name, "a_s",
					      row->in[DIFF_A] ? json_real(row->s[DIFF_A]) : json_null(), "b_s",
					      row->in[DIFF_B] ? json_real(row->s[DIFF_B]) : json_null(), "change_s",
					      row->s[DIFF_B] - row->s[DIFF_A], "error_s", json_number(row->error_s),
					      "chance", diff__is_chance(row), "changed", diff__is_change(diff, row)));
	}
	return list;
}

static json_t *json_side(const struct diff_side *side, const char *file)
{
	return json_pack("{s:o, s:I, s:I, s:f, s:f, s:o, s:f, s:f, s:o, s:f, s:f, s:f}", "file",
			 common__json_text(file), "steps", (json_int_t)side->steps, "processes",
			 (json_int_t)side->ranks, "window_s", side->window_s, "median_s", side->median_s,
			 "median_error_s", json_number(side->steps ? side->median_error_s : NAN), "p99_s", side->p99_s,
			 "mean_s", side->mean_s, "mean_error_s", json_number(side->steps ? side->mean_error_s : NAN),
			 "actions_of", side->action_units, "ops_of", side->op_units, "gpu_of", side->gpu_units);
}

static json_t *json_diff_notes(const struct diff *diff)
{
	struct array notes = {0};
	int failed = diff_notes__make(diff, &notes);
	json_t *list = json_array();

	for (size_t i = 0; i < notes.cnt; i++)
		failed |= json_array_append_new(list, common__json_text(((char **)notes.items)[i]));
	diff_notes__free(&notes);
	return common__json_unless_failed(list, failed);
}

int report_diff__json(const struct diff *diff, const struct diff_options *options, FILE *out)
{
	double error, slower = diff__slower_percent(diff, &error);
	json_t *object = json_pack(
		"{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "report", "diff", "stepflame", STEPFLAME_VERSION, "per",
		diff->per_step ? "step" : "second", "a", json_side(&diff->sides[DIFF_A], options->files[DIFF_A]), "b",
		json_side(&diff->sides[DIFF_B], options->files[DIFF_B]), "slower_percent", json_number(slower),
		"slower_error_percent", json_number(error), "notes", json_diff_notes(diff));
	int failed = !object;

	for (int i = 0; i < DIFF__SECTIONS && !failed; i++)
		failed = json_object_set_new(object, diff__section_name(i), json_diff_rows(diff, options, i));
	return common__print_json(common__json_unless_failed(object, failed), out);
}

/* ---- CSV ---- */

static int print_csv_section(const struct diff *diff, const struct diff_options *options, enum diff_section section,
			     struct csv *csv)
{
	json_t *rows = json_diff_rows(diff, options, section);
	int err = rows ? 0 : -ENOMEM;

	for (size_t i = 0; i < json_array_size(rows) && !err; i++) {
		json_t *row = json_pack("{s:s}", "section", diff__section_name(section));
		int failed = json_object_update(row, json_array_get(rows, i));

		err = csv__row(csv, common__json_unless_failed(row, failed));
	}
	json_decref(rows);
	return err;
}

int report_diff__csv(const struct diff *diff, const struct diff_options *options, FILE *out)
{
	struct csv csv = {.out = out};
	int err = 0;

	for (int i = 0; i < DIFF__SECTIONS && !err; i++)
		err = print_csv_section(diff, options, i, &csv);
	csv__release(&csv);
	return err ?: common__flush(out);
}
