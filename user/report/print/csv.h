/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rows of a report's JSON as CSV (RFC 4180): the keys of the first row are the heads, and numbers
 * are those of the JSON. A key inside an object is "gpu.busy_s", as in pandas.json_normalize. null
 * is an empty field, "" a quoted one, a list is JSON. Text is escaped as in the text reports; one
 * that begins with = + - or @ gets an apostrophe before it, so that no spreadsheet calculates it.
 */
#ifndef STEPFLAME_USER_REPORT_PRINT_CSV_H
#define STEPFLAME_USER_REPORT_PRINT_CSV_H

#include <jansson.h>
#include <stdio.h>

struct csv {
	FILE *out;
	json_t *columns; /* an object with their names as keys; owned */
};

/* Both drop row, which is NULL where there was no memory. 0 or -ENOMEM. */
/* Prints the heads; the rows that follow have at most the keys of this one. */
int csv__heads(struct csv *csv, json_t *row);
/* Prints a row, above the first one also the heads. */
int csv__row(struct csv *csv, json_t *row);
void csv__release(struct csv *csv);

/*
 * Prints the rows that a report has at the end of a path of lists, such as {"processes", "files",
 * NULL}: each row begins with what tells its process or its action. If there are none, the heads
 * alone, as a row `blank` has them. 0 or -ENOMEM.
 */
int csv__print(const json_t *report, const char *const *path, json_t *blank, FILE *out);

#endif
