/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Text for terminals. Output is the only place that escapes what comes from a target. */
#ifndef STEPFLAME_USER_REPORT_TEXT_H
#define STEPFLAME_USER_REPORT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS 80

/*
 * Returns UTF-8 text, malloc'ed, in which characters that could steer a terminal or hide text are
 * visible: C0 and C1 control characters and DEL as \x1b, line and paragraph separators and the
 * bidirectional controls as \u202e. NULL: no memory.
 */
char *text__escape(const char *text);
/* Does text__escape escape this character? */
bool text__steers(uint32_t code_point);
/* Returns the number of code points of UTF-8 text, as Python's len() does. */
size_t text__width(const char *text);
/* Prints text and spaces up to `width` code points, as Python's f"{text:<{width}}" does. */
void text__pad(FILE *out, const char *text, size_t width);
/* Returns what Python's len(text.expandtabs()) does, for text of one-byte characters. */
size_t text__expanded_width(const char *text);
/* Prints one escaped line, however long. */
void text__line(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * Prints one escaped paragraph: broken at spaces to TEXT_COLUMNS, with all lines but the first
 * indented by 2.
 */
void text__paragraph(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
