/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Text for terminals. What comes from a target is escaped here, on its way out, and nowhere else. */
#ifndef STEPFLAME_USER_REPORT_TEXT_H
#define STEPFLAME_USER_REPORT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS 80

/*
 * UTF-8 text, malloc'ed, with what could steer a terminal or hide text made visible: C0 and C1 control characters and
 * DEL as \x1b, line and paragraph separators and the bidirectional controls as \u202e. NULL: no memory.
 */
char *text__escape(const char *text);
/* Is it one of these? */
bool text__steers(uint32_t code_point);
/* Code points of UTF-8 text, what Python's len() says. */
size_t text__width(const char *text);
/* text and spaces up to `width` code points, what Python's f"{text:<{width}}" gives. */
void text__pad(FILE *out, const char *text, size_t width);
/* Python's len(text.expandtabs()) of one-byte text. */
size_t text__expanded_width(const char *text);
/* Prints, escaped, as one line, however long. */
void text__line(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints, escaped, as one paragraph: broken at spaces to TEXT_COLUMNS, further lines indented by 2. */
void text__paragraph(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
