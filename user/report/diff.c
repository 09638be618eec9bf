// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/diff.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/compare/diff.h"
#include "user/lib/columns.h"
#include "user/lib/digits.h"
#include "user/report/common.h"
#include "user/report/print/csv.h"
#include "user/report/print/table.h"
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
	return a > 0 && b > 0
		       ? add_note(notes, "%s: in %s %s of A and %s of B.", what, DIGITS(a, 4), unit, DIGITS(b, 4))
		       : 0;
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
			   (a->action_units > 0 ? b : a)->dropped
				   ? " of the steps that record --max-size or --last has kept"
				   : " (the file was cut before its first snapshot)") ?:
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
	[DIFF_STEP] = "\nA step",
	[DIFF_PHASES] = "\nPhases of a step",
	[DIFF_WAITS] = "\nWhat its thread waited for",
	[DIFF_FUNCTIONS] = "\nPython functions of its thread: own time, waits included",
	[DIFF_ACTIONS] = "\nActions, with what is inside",
	[DIFF_OPS] = "\nOperators: own time",
	[DIFF_GPU] = "\nGPUs, in steps that CUPTI watched: busy, and idle by reason",
	[DIFF_GPU_WORK] = "\nKernels and copies in these steps",
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

static json_t *json_number(double value)
{
	return common__json_real(!isnan(value), value);
}

/* "12.3 %", "new" or "gone". */
static json_t *text_of_change(const struct diff_row *row)
{
	if (!row->in[DIFF_B])
		return json_string("gone");
	if (row->s[DIFF_A] > 0)
		return json_sprintf("%+.1f %%", 100 * (row->s[DIFF_B] - row->s[DIFF_A]) / row->s[DIFF_A]);
	return json_string(row->in[DIFF_A] ? "" : "new");
}

/* The name, marked where the change may be chance. */
static json_t *text_of_name(const struct diff_row *row, size_t width)
{
	char *name = text__fit(row->name, text__columns() == SIZE_MAX ? SIZE_MAX : width);
	json_t *text = name ? json_sprintf("%c %s", diff__is_chance(row) ? '~' : ' ', name) : NULL;

	free(name);
	return text;
}

static json_t *text_of_s(const char *sign, double s)
{
	char text[48];

	return json_string(print_s(text, sizeof(text), sign, s));
}

/* Text: each figure in a unit of its own. width: of the names. section: it has a column of its own. */
static int add_diff_row(const struct diff *diff, const struct diff_row *row, size_t width, const char *section,
			struct table *table)
{
	const double a = row->s[DIFF_A], b = row->s[DIFF_B], change = b - a;
	char text[48];
	const char *error = isnan(row->error_s) ? "?" : print_s(text, sizeof(text), "", row->error_s);
	struct cell cells[] = {
		cell__if(section, cell__json("section:s", json_string(section ?: ""))),
		cell__json("name:s", json_string(row->name)),
		cell__text(1, -(int)(width + 2), text_of_name(row, width)),
		cell__json("a_s:f?", row->in[DIFF_A] ? json_real(a) : json_null()),
		cell__text(2, 12, text_of_s("", a)),
		cell__json("b_s:f?", row->in[DIFF_B] ? json_real(b) : json_null()),
		cell__text(3, 12, text_of_s("", b)),
		cell__json("change_s:f", json_real(change)),
		cell__text(4, 13, text_of_s(change >= 0 ? "+" : "", change)),
		cell__text(5, 10, text_of_change(row)),
		cell__json("error_s:f?", json_number(row->error_s)),
		cell__text(6, -1, json_sprintf("+- %s", error)),
		cell__json("chance:b", json_boolean(diff__is_chance(row))),
		cell__json("changed:b", json_boolean(diff__is_change(diff, row))),
	};

	return TABLE_ADD(table, cells);
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

static int add_section(const struct diff *diff, const struct diff_options *options, enum diff_section section,
		       size_t width, bool csv, struct table *table)
{
	const struct diff_row *rows = diff->rows[section].items;
	int err = 0;

	for (size_t i = 0; i < diff->rows[section].cnt && !err; i++)
		if (is_shown(diff, options, &rows[i], table->row_cnt))
			err = add_diff_row(diff, &rows[i], width, csv ? diff__section_name(section) : NULL, table);
	return err;
}

/* *chances: how many of its rows may be chance. */
static int print_section(const struct diff *diff, const struct diff_options *options, enum diff_section section,
			 size_t width, size_t *chances, FILE *out)
{
	struct table table = {.out = out, .title = titles[section], .gap = "  ", .rules = RULES_NONE, .headless = true};
	const struct diff_row *rows = diff->rows[section].items;
	size_t shown = 0;

	for (size_t i = 0; i < diff->rows[section].cnt; i++)
		if (is_shown(diff, options, &rows[i], shown) && ++shown)
			*chances += diff__is_chance(&rows[i]);
	return add_section(diff, options, section, width, false, &table);
}

static int print_side(const struct diff_side *side, const char *letter, const char *path, FILE *out)
{
	size_t columns = text__columns(), room = columns > TERMINAL_MIN + SIDE_HANG ? columns - SIDE_HANG - 1 : 1;
	char median[32], p99[32], *file = text__fit(path, room);

	if (!file)
		return -ENOMEM;
	if (!side->steps)
		text__wrapped(out, SIDE_HANG, "%s  %s: no steps, in %s s", letter, file, DIGITS(side->window_s, 4));
	else
		text__wrapped(out, SIDE_HANG, "%s  %s: %zu steps of %zu process%s in %s s, median %s, p99 %s", letter,
			      file, side->steps, side->ranks, side->ranks == 1 ? "" : "es", DIGITS(side->window_s, 4),
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

	for (int i = 0; i < DIFF__SECTIONS && !failed; i++) {
		struct table table = table__json(object, diff__section_name(i));

		failed = !table.list || add_section(diff, options, i, NAME_WIDTH_MIN, false, &table);
	}
	return common__print_json(common__json_unless_failed(object, failed), out);
}

/* ---- CSV ---- */

static int print_csv_section(const struct diff *diff, const struct diff_options *options, enum diff_section section,
			     struct csv *csv)
{
	struct table table = {.list = json_array()};
	int err = table.list ? add_section(diff, options, section, NAME_WIDTH_MIN, true, &table) : -ENOMEM;

	for (size_t i = 0; i < json_array_size(table.list) && !err; i++)
		err = csv__row(csv, json_incref(json_array_get(table.list, i)));
	json_decref(table.list);
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
