/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A frame as lines of text: those of a screen, which has a size and what its keys have set, or all of them for a file.
 * Texts of the job are escaped here.
 */
#ifndef STEPFLAME_USER_TOP_LINES_H
#define STEPFLAME_USER_TOP_LINES_H

#include "user/top/top.h"

#define TOP_FILTER_MAX 64

enum top_style {
	STYLE_PLAIN,
	STYLE_TITLE,
	STYLE_TABS,
	STYLE_COLUMNS, /* titles of a table */
	STYLE_HOT,     /* a row with much of the time */
	STYLE_WARN,
};

struct top_line {
	char *text; /* owned; UTF-8, or ASCII */
	enum top_style style;
	size_t mark_at, mark_cnt; /* columns that stand out: the tab shown, the column sorted by */
};

struct top_state {
	enum top_view view;
	int sort[TOP__VIEWS];        /* column; that behind the last one: by name */
	size_t scroll;               /* rows above the screen; set to what there is when lines are made */
	char filter[TOP_FILTER_MAX]; /* rows whose name has it, in upper or lower case; "": all */
	bool typing;                 /* the filter */
	bool paused, help;
	bool utf8;         /* else ASCII */
	int width, height; /* of the screen; width 0: as wide as need be */
};

void top_state__init(struct top_state *state);
void top_state__next_sort(struct top_state *state, int by); /* by: 1 or -1 */

/* Adds struct top_line to lines: height of them at most, the last one the keys. 0 or -ENOMEM. */
int top_lines__screen(const struct top_frame *frame, struct top_state *state, struct array *lines);
/* Header and tables: of state->view, or of all for TOP__VIEWS; limit: rows of each, 0: all. 0 or -ENOMEM. */
int top_lines__batch(const struct top_frame *frame, const struct top_state *state, size_t limit, struct array *lines);
void top_lines__release(struct array *lines);

#endif
