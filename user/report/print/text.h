/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Text for terminals. Output is the only place that escapes what comes from a target. */
#ifndef STEPFLAME_USER_REPORT_PRINT_TEXT_H
#define STEPFLAME_USER_REPORT_PRINT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS  80
#define TEXT_LAST_MIN 20 /* columns; a text that is cut to fewer is hardly readable */

/* Returns the number of code points of UTF-8 text, as Python's len() does. */
size_t text__width(const char *text);
/* Prints text and spaces up to `width` code points, as Python's f"{text:<{width}}" does. */
void text__pad(FILE *out, const char *text, size_t width);
/* Returns what Python's len(text.expandtabs()) does, for text of one-byte characters. */
size_t text__expanded_width(const char *text);
/*
 * If fd is a terminal, tables that are printed from now on fit into its columns, or into as many as
 * the environment's COLUMNS says. Else they may have any width.
 */
void text__use_terminal(int fd);
/* Returns the number of these columns; SIZE_MAX: any. */
size_t text__columns(void);
/* Tables fit into so many columns from now on; SIZE_MAX: they may have any width. */
void text__use_columns(size_t cnt);
/*
 * Whether the terminal, or the file that replaces it, takes UTF-8: LC_ALL, LC_CTYPE and LANG say
 * so. Else texts that are not ASCII may not be readable.
 */
bool text__utf8(void);
/*
 * Returns escaped text, malloc'ed, of at most `width` (at least 1) columns. In a longer text,
 * "…" stands for the middle; of a path, the end is longer than the beginning. NULL: no memory.
 */
char *text__fit(const char *text, size_t width);
/*
 * Ends a line, which has `used` columns so far, with gap and text. Text that does not fit is cut; if
 * fewer than TEXT_LAST_MIN columns are left, it has a line of its own.
 */
void text__last(FILE *out, size_t used, const char *gap, const char *text);
/* Prints one escaped line, however long. */
void text__line(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, but in a terminal broken at spaces to its width, with all lines but the first indented by hang. */
void text__wrapped(FILE *out, size_t hang, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/*
 * Prints one escaped paragraph: broken at spaces to TEXT_COLUMNS, or to the width of a narrower
 * terminal, with all lines but the first indented by 2.
 */
void text__paragraph(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
