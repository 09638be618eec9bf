// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/print/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/columns.h"
#include "user/lib/utf8.h"

static size_t columns = SIZE_MAX; /* of the terminal */

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

void text__use_terminal(int fd)
{
	columns = columns__of_terminal(fd);
}

void text__use_columns(size_t cnt)
{
	columns = cnt;
}

bool text__utf8(void)
{
	setlocale(LC_CTYPE, "");
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

size_t text__columns(void)
{
	return columns;
}

/* Returns the end of so many columns, or fewer before a wide character. */
static const char *after(const char *text, size_t cells)
{
	const char *end = text + strlen(text), *at = text;

	while (at < end) {
		size_t needs = columns__of_code(utf8__next(&at, end, NULL));

		if (needs > cells)
			break;
		cells -= needs;
		text = at;
	}
	return text;
}

/* Returns the beginning of the last so many columns, or fewer behind a wide character. */
static const char *last_cells(const char *text, size_t cells)
{
	const char *end = text + strlen(text);
	size_t all = columns__of_text(text);

	while (text < end && all > cells)
		all -= columns__of_code(utf8__next(&text, end, NULL));
	return text;
}

char *text__fit(const char *text, size_t width)
{
	char *whole = utf8__escape(text), *cut;
	size_t length = whole ? columns__of_text(whole) : 0, head;

	if (length <= width)
		return whole;
	head = (width - 1) / (strchr(whole, '/') ? 4 : 2);
	if (asprintf(&cut, "%.*s…%s", (int)(after(whole, head) - whole), whole, last_cells(whole, width - 1 - head)) <
	    0)
		cut = NULL;
	free(whole);
	return cut;
}

void text__last(FILE *out, size_t used, const char *gap, const char *text)
{
	char *whole = utf8__escape(text), *fitting = NULL;
	size_t from = used + strlen(gap);

	if (whole && from + TEXT_LAST_MIN > columns && from + columns__of_text(whole) > columns) {
		gap = "\n    ";
		from = 4;
	}
	if (whole)
		fitting = text__fit(whole, columns > from ? columns - from : 1);
	fprintf(out, "%s%s\n", gap, fitting ?: "");
	free(fitting);
	free(whole);
}

/* malloc'ed; NULL: no memory. */
static char *escape_format(const char *fmt, va_list ap)
{
	char *raw, *text;

	if (vasprintf(&raw, fmt, ap) < 0)
		return NULL;
	text = utf8__escape(raw);
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

void text__wrapped(FILE *out, size_t hang, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = escape_format(fmt, ap);
	va_end(ap);
	columns__print(out, 0, text ?: "", columns, hang);
	free(text);
}

void text__paragraph(FILE *out, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = escape_format(fmt, ap);
	va_end(ap);
	columns__print(out, 0, text ?: "", columns < TEXT_COLUMNS ? columns : TEXT_COLUMNS, 2);
	free(text);
}
