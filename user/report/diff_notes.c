// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/diff_notes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/report/common.h"

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

int diff_notes__make(const struct diff *diff, struct array *notes)
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

void diff_notes__free(struct array *notes)
{
	for (size_t i = 0; i < notes->cnt; i++)
		free(((char **)notes->items)[i]);
	free(notes->items);
	*notes = (struct array){0};
}
