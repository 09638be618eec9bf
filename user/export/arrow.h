/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A table as an Arrow IPC file (https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format). Rows go in, value by value in the order
 * of the columns; they are written in batches, so that memory is bounded by ARROW_BATCH_ROWS rows and the distinct texts.
 */
#ifndef STEPFLAME_USER_EXPORT_ARROW_H
#define STEPFLAME_USER_EXPORT_ARROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum arrow_type {
	ARROW_INT32,
	ARROW_INT64,
	ARROW_DOUBLE,
	ARROW_BOOL,
	ARROW_TIME,  /* microseconds since 1970, UTC */
	ARROW_TEXT,  /* UTF-8, each distinct one once */
	ARROW_TEXTS, /* a list of them */
};

struct arrow_column {
	const char *name;
	enum arrow_type type;
	bool nullable;
};

struct arrow;

/* columns: must outlive it. out: stays the caller's, who checks it for errors. NULL: no memory. */
struct arrow *arrow__new(const struct arrow_column *columns, size_t cnt, FILE *out);
void arrow__free(struct arrow *arrow); /* accepts NULL */

/*
 * Put the value of the next column, of a fitting type; what does not fit, a missing value at the end of a row, or no memory, is an error that
 * arrow__finish returns.
 */
void arrow__int(struct arrow *arrow, int64_t value); /* INT32, INT64, BOOL, TIME */
void arrow__double(struct arrow *arrow, double value);
void arrow__text(struct arrow *arrow, const char *text); /* NULL: null. What is not UTF-8 becomes U+FFFD */
void arrow__null(struct arrow *arrow);
/* Adds an item to a list; arrow__end_list puts the list. */
void arrow__item(struct arrow *arrow, const char *text);
void arrow__end_list(struct arrow *arrow);
void arrow__end_row(struct arrow *arrow);

/* Writes what is left, the texts and the footer. 0, -ENOMEM or -EINVAL. */
int arrow__finish(struct arrow *arrow);

#endif
