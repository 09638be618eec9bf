// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/print/lines.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/columns.h"
#include "user/lib/utf8.h"
#include "user/report/print/text.h"

#define LABEL_COLUMNS 12
#define INDENT        2      /* of what follows a label in the text */
#define CUT           0x2026 /* the character that text__fit puts where it cuts */
#define LEGEND_MIN    0.005  /* share of the bar: no name for less */

#define RESET         "\033[0m"

struct line {
	char *text; /* owned; escaped, in the characters of the terminal; with colours in a bar */
	const char *label;
	enum line_style style;
	int spare;
};

static bool is_narrow(const struct lines *lines)
{
	return lines->width < LINES_NARROW;
}

static size_t indent_of(const struct lines *lines)
{
	return is_narrow(lines) ? INDENT : LABEL_COLUMNS;
}

size_t lines__room(const struct lines *lines)
{
	return lines->width - indent_of(lines);
}

/* Takes text over; NULL: no memory. */
static void append_line(struct lines *lines, const struct line_text *how, bool first, char *text)
{
	struct line *line = text ? array__add(&lines->items, sizeof(*line)) : NULL;

	if (!line) {
		free(text);
		lines->err = -ENOMEM;
		return;
	}
	for (size_t end = strlen(text); end && text[end - 1] == ' '; end--)
		text[end - 1] = 0;
	*line = (struct line){text, first ? how->label : "", how->style, how->spare};
}

/* In ASCII if the terminal has no more, in place. */
static char *in_characters_of(const struct lines *lines, char *text)
{
	const char *from = text, *end = text ? text + strlen(text) : NULL;
	char *to = text;

	if (!text || lines->utf8)
		return text;
	while (from < end) {
		uint32_t code = utf8__next(&from, end, NULL);

		*to++ = code < 0x80 ? (char)code : code == CUT ? '~' : '?';
	}
	*to = 0;
	return text;
}

/* Columns that the label takes in the text itself, with what follows it. */
static size_t label_in_text(const struct lines *lines, const char *label)
{
	return is_narrow(lines) && *label ? strlen(label) + 2 : 0;
}

static size_t room_of(const struct lines *lines, const struct line_text *how, bool first)
{
	return first && is_narrow(lines) && *how->label ? lines->width - label_in_text(lines, how->label)
							: lines__room(lines);
}

/*
 * Returns the end of the words that fit into room columns; *rest is where the next line begins. A
 * word that does not fit into any line is a line of its own.
 */
static const char *break_line(const char *text, size_t room, const char **rest)
{
	const char *end = text + strlen(text), *at = text, *fits = NULL;
	size_t used = 0;

	while (at < end) {
		const char *before = at;
		uint32_t code = utf8__next(&at, end, NULL);

		if (code == ' ' && *at != '%') {
			fits = before;
			*rest = at;
		}
		used += columns__of_code(code);
		if (used > room && fits)
			return fits;
	}
	*rest = end;
	if (used > room && (fits = strchr(text, ' '))) {
		*rest = fits + 1;
		return fits;
	}
	return end;
}

/* Adds the lines of an escaped text. */
static void add_wrapped(struct lines *lines, const struct line_text *how, const char *text)
{
	size_t max = is_narrow(lines) && how->max > 1 ? 2 * how->max : how->max, cnt = 0;

	do {
		size_t hang = cnt ? how->hang : 0, room = room_of(lines, how, !cnt) - hang;
		const char *rest = text, *end = break_line(text, room, &rest);
		char *part = cnt + 1 < max ? strndup(text, end - text) : strdup(text);
		char *shown = part ? text__fit(part, room) : NULL, *line = NULL;

		if (shown && asprintf(&line, "%*s%s", (int)hang, "", shown) < 0)
			line = NULL;
		append_line(lines, how, !cnt, in_characters_of(lines, line));
		free(shown);
		free(part);
		text = rest;
	} while (*text && ++cnt < max && !lines->err);
}

void lines__add(struct lines *lines, const struct line_text *how, const char *fmt, ...)
{
	char *raw, *escaped = NULL;
	va_list ap;
	int bytes;

	va_start(ap, fmt);
	bytes = vasprintf(&raw, fmt, ap);
	va_end(ap);
	if (bytes >= 0) {
		escaped = utf8__escape(raw);
		free(raw);
	}
	if (!escaped)
		lines->err = -ENOMEM;
	else
		add_wrapped(lines, how, escaped);
	free(escaped);
}

void lines__add_block(struct lines *lines, const struct line_text *how, const char *text)
{
	bool first = true;

	/* In a narrow terminal the label is a line of its own. */
	if (is_narrow(lines) && *how->label) {
		append_line(lines, how, true, strdup(""));
		first = false;
	}
	for (size_t cnt = 0; *text && cnt < how->max && !lines->err; cnt++) {
		size_t bytes = strcspn(text, "\n");
		char *line = strndup(text, bytes);

		append_line(lines, how, first,
			    line ? in_characters_of(lines, text__fit(line, lines__room(lines))) : NULL);
		free(line);
		text += bytes + (text[bytes] == '\n');
		first = false;
	}
}

/* ---- bars ---- */

/* Both tell neighbours apart without colours. */
static const char *const blocks[] = {"█", "▒", "▓", "░", "▚", "▞"};
static const char ascii_blocks[] = "#=+-:.";
static const int colours[] = {34, 33, 32, 35, 36, 31};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void write_blocks(const struct lines *lines, size_t part, size_t cnt, FILE *out)
{
	if (lines->colour)
		fprintf(out, "\033[%dm", colours[part % COUNT(colours)]);
	for (size_t i = 0; i < cnt; i++)
		if (lines->utf8)
			fputs(blocks[part % COUNT(blocks)], out);
		else
			fputc(ascii_blocks[part % (COUNT(ascii_blocks) - 1)], out);
	if (lines->colour)
		fputs(RESET, out);
}

static void add_bar(struct lines *lines, const struct line_text *how, const struct bar_part *parts, size_t cnt)
{
	size_t room = room_of(lines, how, true), bytes, drawn = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &bytes);
	double sum = 0;

	for (size_t i = 0; out && i < cnt; i++) {
		size_t until;

		sum += parts[i].share;
		until = (size_t)fmin(room, lround(sum * room));
		if (until > drawn)
			write_blocks(lines, i, until - drawn, out);
		drawn = until > drawn ? until : drawn;
	}
	if (out && fclose(out)) {
		free(text);
		text = NULL;
	}
	append_line(lines, how, true, text);
}

/* Adds the names of parts from `from` on that fit in one line. Returns the next part. */
static size_t add_names(struct lines *lines, const struct line_text *how, const struct bar_part *parts, size_t from,
			size_t cnt)
{
	size_t room = lines__room(lines), bytes, used = 0, i = from;
	char *text = NULL;
	FILE *out = open_memstream(&text, &bytes);

	for (; out && i < cnt && parts[i].share >= LEGEND_MIN; i++) {
		const char *gap = used ? "  " : "";
		char name[64];

		snprintf(name, sizeof(name), " %s %.*f %%", parts[i].name, parts[i].share < 0.0995,
			 100 * parts[i].share);
		if (used && used + strlen(gap) + 1 + strlen(name) > room)
			break;
		used += strlen(gap) + 1 + strlen(name);
		fputs(gap, out);
		write_blocks(lines, i, 1, out);
		fputs(name, out);
	}
	if (out && fclose(out)) {
		free(text);
		text = NULL;
	}
	append_line(lines, how, false, text);
	return i;
}

void lines__add_bar(struct lines *lines, const struct line_text *how, const struct bar_part *parts, size_t cnt)
{
	size_t at = 0;

	add_bar(lines, how, parts, cnt);
	do
		at = add_names(lines, how, parts, at, cnt);
	while (at < cnt && parts[at].share >= LEGEND_MIN && !lines->err);
}

/* ---- out ---- */

static void print_styled(const struct lines *lines, enum line_style style, const char *text, FILE *out)
{
	static const char *const codes[] = {[LINE_HOT] = "\033[1;33m", [LINE_DIM] = "\033[2m"};

	if (lines->colour && style != LINE_PLAIN && *text)
		fprintf(out, "%s%s" RESET, codes[style], text);
	else
		fputs(text, out);
}

static void print_line(const struct lines *lines, const struct line *line, FILE *out)
{
	int pad = is_narrow(lines) ? (*line->label ? 0 : INDENT) : LABEL_COLUMNS - (int)strlen(line->label);
	const char *on = lines->colour && *line->label ? "\033[1m" : "", *off = *on ? RESET : "";

	fprintf(out, "%s%s%s%s", on, line->label, is_narrow(lines) && *line->label ? ":" : "", off);
	if (is_narrow(lines) && *line->label && *line->text)
		pad = 1;
	if (*line->text)
		fprintf(out, "%*s", pad, "");
	print_styled(lines, line->style, line->text, out);
	fputc('\n', out);
}

int lines__print(const struct lines *lines, size_t max, FILE *out)
{
	const struct line *items = lines->items.items;
	size_t cnt = lines->items.cnt, left_out = cnt > max ? cnt - max : 0;
	bool *gone = calloc(cnt + 1, sizeof(*gone));

	if (!gone)
		return -ENOMEM;
	while (left_out) {
		size_t worst = cnt - 1;

		for (size_t i = cnt; i-- > 0;)
			if (!gone[i] && (gone[worst] || items[i].spare > items[worst].spare))
				worst = i;
		gone[worst] = true;
		left_out--;
	}
	for (size_t i = 0; i < cnt && !lines->err; i++)
		if (!gone[i])
			print_line(lines, &items[i], out);
	free(gone);
	return lines->err;
}

void lines__release(struct lines *lines)
{
	struct line *items = lines->items.items;

	for (size_t i = 0; i < lines->items.cnt; i++)
		free(items[i].text);
	free(items);
	lines->items = (struct array){0};
}
