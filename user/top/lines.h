/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A frame as lines: of a screen, which has a size and a state that keys change; all lines, for a
 * file; of JSON or CSV, for programs. All are made of the columns of top_views. This is where texts
 * of the job are escaped.
 */
#ifndef STEPFLAME_USER_TOP_LINES_H
#define STEPFLAME_USER_TOP_LINES_H

#include <stdio.h>

#include "user/report/print/csv.h"
#include "user/top/top.h"

#define TOP_FILTER_MAX 64

enum top_style {
	STYLE_PLAIN,
	STYLE_TITLE,
	STYLE_TABS,
	STYLE_COLUMNS, /* titles of a table */
	STYLE_HOT,     /* a row with a large share of the time */
	STYLE_WARN,
};

struct top_line {
	char *text; /* owned; UTF-8, or ASCII */
	enum top_style style;
	size_t mark_at, mark_cnt; /* highlighted columns: the tab shown, the column sorted by */
};

struct top_state {
	enum top_view view;
	int sort[TOP__VIEWS];        /* column to sort by; one past the last: by name */
	size_t scroll;               /* rows above the screen; making lines limits it to the rows that exist */
	char filter[TOP_FILTER_MAX]; /* show only rows whose name contains it, in any case; "": all */
	bool typing;                 /* the user is typing the filter */
	bool paused, help;
	bool utf8;         /* else the terminal takes ASCII only */
	int width, height; /* of the screen; width 0: unlimited */
};

void top_state__init(struct top_state *state);

/*
 * Adds struct top_line items to lines: at most height lines, of which the last shows the keys. 0 or
 * -ENOMEM.
 */
int top_lines__screen(const struct top_frame *frame, struct top_state *state, struct array *lines);
/*
 * Adds the header and the tables: that of state->view, or all for TOP__VIEWS. limit: rows per
 * table; 0: all. 0 or -ENOMEM.
 */
int top_lines__batch(const struct top_frame *frame, const struct top_state *state, size_t limit, struct array *lines);
void top_lines__release(struct array *lines);

/* ---- for programs ---- */

/*
 * Prints a frame as one line of JSON, for each view a list of rows: that of `view`, or all for
 * TOP__VIEWS. limit: rows of each; 0: all. 0 or -errno.
 */
int top_lines__json(const struct top_frame *frame, enum top_view view, size_t limit, FILE *out);
/*
 * Prints the rows of a view as CSV, each with the time of the frame; above the first frame also the
 * heads. csv: of all frames. 0 or -errno.
 */
int top_lines__csv(const struct top_frame *frame, enum top_view view, size_t limit, struct csv *csv);

/* ---- what keys do to the state of the screen ---- */

/* Keys that are not ASCII characters. */
enum top_key {
	TOP_KEY_NONE = 0,
	TOP_KEY_ESCAPE = 27,
	TOP_KEY_BACKSPACE = 127,
	TOP_KEY_UP = 256,
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_BACK_TAB,
	TOP_KEY_RESIZE,
};

enum top_command { TOP_GO_ON, TOP_QUIT, TOP_RESET };

enum top_command top_state__key(struct top_state *state, int key);

#endif
