// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"

static bool is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

bool text__steers(uint32_t code)
{
	return is_control(code) || code == 0x61c || code == 0x200e || code == 0x200f ||
	       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

char *text__escape(const char *text)
{
	const char *at = text, *end = text + strlen(text);
	/* One byte becomes at most "\x1b", three bytes "\u202e", an invalid byte U+FFFD. */
	char *escaped = malloc(4 * (end - text) + 1), *out = escaped;

	if (!escaped)
		return NULL;
	while (at < end) {
		uint32_t code = utf8__next(&at, end, NULL);

		if (is_control(code))
			out += sprintf(out, "\\x%02x", code);
		else if (text__steers(code))
			out += sprintf(out, "\\u%04x", code);
		else
			out += utf8__put(out, code);
	}
	*out = 0;
	return escaped;
}

size_t text__width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

void text__pad(FILE *out, const char *text, size_t width)
{
	size_t have = text__width(text);

	fprintf(out, "%s%*s", text, have < width ? (int)(width - have) : 0, "");
}

size_t text__expanded_width(const char *text)
{
	size_t width = 0, column = 0;

	for (; *text; text++) {
		size_t step = *text == '\t' ? 8 - column % 8 : 1;

		column = *text == '\n' ? 0 : column + step;
		width += step;
	}
	return width;
}

/* malloc'ed; NULL: no memory. */
static char *escape_format(const char *fmt, va_list ap)
{
	char *raw, *text;

	if (vasprintf(&raw, fmt, ap) < 0)
		return NULL;
	text = text__escape(raw);
	free(raw);
	return text;
}

void text__line(FILE *out, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = escape_format(fmt, ap);
	va_end(ap);
	fprintf(out, "%s\n", text ? text : "");
	free(text);
}

void text__paragraph(FILE *out, const char *fmt, ...)
{
	char *text, *rest = NULL;
	size_t column = 0;
	va_list ap;

	va_start(ap, fmt);
	text = escape_format(fmt, ap);
	va_end(ap);
	for (char *word = text ? strtok_r(text, " ", &rest) : NULL; word; word = strtok_r(NULL, " ", &rest)) {
		size_t width = text__width(word);

		if (!column) {
			fputs(word, out);
			column = width;
		} else if (column + 1 + width > TEXT_COLUMNS) {
			fprintf(out, "\n  %s", word);
			column = 2 + width;
		} else {
			fprintf(out, " %s", word);
			column += 1 + width;
		}
	}
	fputc('\n', out);
	free(text);
}
