// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/columns.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <wchar.h>

#include "user/lib/utf8.h"

size_t columns__of_terminal(int fd)
{
	const char *said = getenv("COLUMNS");
	size_t cnt = said ? strtoul(said, NULL, 10) : 0;
	struct winsize size;
	int failed = ioctl(fd, TIOCGWINSZ, &size);

	/* Elsewhere COLUMNS means nothing: GNU readline exports it to all that a Python starts. */
	if (failed)
		return SIZE_MAX;
	return cnt ? cnt : size.ws_col ? size.ws_col : SIZE_MAX;
}

/* glibc's tables, in any locale; a character that they do not know takes one column. */
size_t columns__of_code(uint32_t code)
{
	static locale_t utf8;
	locale_t before;
	int cells;

	if (code < 0x300)
		return 1;
	utf8 = utf8 ?: newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
	before = utf8 ? uselocale(utf8) : NULL;
	cells = wcwidth((wchar_t)code);
	if (before)
		uselocale(before);
	return cells < 0 ? 1 : (size_t)cells;
}

static size_t columns_between(const char *text, const char *end)
{
	size_t cells = 0;

	while (text < end)
		cells += columns__of_code(utf8__next(&text, end, NULL));
	return cells;
}

size_t columns__of_text(const char *text)
{
	return columns_between(text, text + strlen(text));
}

/* Spaces inside of a line stay as they are: they may align something. */
void columns__print(FILE *out, size_t used, const char *text, size_t width, size_t hang)
{
	const char *word = text;
	size_t column = used;

	while (*word) {
		const char *from = word + strspn(word, " "), *end = from + strcspn(from, " ");
		size_t gap = from - word, needs = columns_between(from, end);

		if (column > hang && column + gap + needs > width) {
			fprintf(out, "\n%*s", (int)hang, "");
			column = hang;
			gap = 0;
		}
		fprintf(out, "%*s%.*s", (int)gap, "", (int)(end - from), from);
		column += gap + needs;
		word = end;
	}
	fputc('\n', out);
}
