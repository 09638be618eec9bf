/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A short text for one screen: lines that begin with a label, fit in a width, and are at most so
 * many; in colours, if the terminal has them. All texts that come in are escaped here.
 */
#ifndef STEPFLAME_USER_REPORT_PRINT_LINES_H
#define STEPFLAME_USER_REPORT_PRINT_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "user/lib/array.h"

#define LINES_NARROW 60 /* columns; with fewer, a label stands in the text, not in a column of its own */

enum line_style { LINE_PLAIN, LINE_HOT, LINE_DIM };

struct lines {
	size_t width;       /* columns of a line */
	bool colour, utf8;  /* what the terminal has; else ASCII */
	struct array items; /* struct line, in lines.c */
	int err;            /* of the first line that failed */
};

/* A text that lines__add breaks. */
struct line_text {
	const char *label; /* "": none */
	enum line_style style;
	size_t max;  /* lines, twice as many in a narrow terminal; the last of them is cut to its width */
	int spare;   /* where the screen is full, lines with a larger number go first */
	size_t hang; /* further columns by which all lines but the first are indented */
};

/* A part of a bar. */
struct bar_part {
	const char *name; /* a static text of ours, ASCII */
	double share;     /* 0 to 1 */
};

void lines__add(struct lines *lines, const struct line_text *how, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds the lines of a text as they are, but cut to the width. how->max counts them, too. */
void lines__add_block(struct lines *lines, const struct line_text *how, const char *text);
/* Adds a bar with these parts, largest first, and its legend below it. */
void lines__add_bar(struct lines *lines, const struct line_text *how, const struct bar_part *parts, size_t cnt);
/* Returns the columns that a text has beside its label. */
size_t lines__room(const struct lines *lines);
/* Prints at most max lines. 0 or -ENOMEM. Then lines__release. */
int lines__print(const struct lines *lines, size_t max, FILE *out);
void lines__release(struct lines *lines);

#endif
