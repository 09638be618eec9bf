// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/print/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/columns.h"
#include "user/lib/digits.h"
#include "user/lib/utf8.h"
#include "user/report/print/text.h"

#define LAST_RULE   16 /* length of the dashes below the last column */
#define NAME_BYTES  64 /* of a key in JSON */
#define NARROW_TEXT 24 /* width of a column of text in a narrow terminal; most causes of slow steps fit */

struct cell cell__new(const char *key, int place, const char *head, int width, int digits, json_t *value)
{
	return (struct cell){key, place, head, width, digits, value};
}

struct cell cell__last(int place, const char *head, char *text)
{
	json_t *value = text ? json_string_nocheck(text) : NULL;

	free(text);
	return cell__new(NULL, place, head, 0, 0, value);
}

struct cell cell__text(int place, int width, json_t *value)
{
	return cell__new(NULL, place, "", width, 0, value);
}

struct cell cell__json(const char *key, json_t *value)
{
	return cell__new(key, 0, NULL, 0, 0, value);
}

struct cell cell__if(bool there, struct cell cell)
{
	return there ? cell : cell__new(NULL, 0, NULL, 0, 0, cell.value);
}

struct table table__json(json_t *object, const char *key)
{
	json_t *list = json_array();

	return (struct table){.list = json_object_set_new(object, key, list) ? NULL : list};
}

/* ---- text ---- */

enum table_line { LINE_HEAD, LINE_RULE, LINE_VALUES };

/*
 * Returns the ns in the unit that ends a column's name; 0: the name does not end with a unit of
 * time.
 */
static double unit_ns(const char *name)
{
	static const struct {
		const char *word;
		double ns;
	} units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"seconds", 1e9}};
	const char *word = name + strlen(name);

	while (word > name && word[-1] != '_' && word[-1] != ' ')
		word--;
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (!strcmp(word, units[i].word))
			return units[i].ns;
	return 0;
}

static const char *cell_text(const struct table *table, const struct cell *cell, char buffer[64])
{
	bool is_integer = json_is_integer(cell->value);
	uint64_t integer = json_integer_value(cell->value);
	double unit = unit_ns(cell->head), real = is_integer ? integer / unit : json_real_value(cell->value);

	if (json_is_string(cell->value))
		return json_string_value(cell->value);
	if (json_is_null(cell->value))
		return table->unknown;
	if (is_integer && !unit)
		snprintf(buffer, 64, "%" PRIu64, integer);
	else if (cell->digits < 0)
		digits__put(buffer, real, -cell->digits);
	else
		snprintf(buffer, 64, "%.*f", cell->digits, real);
	return buffer;
}

/* Returns the next cell of the text after `last` (NULL: the first); NULL: no more. */
static const struct cell *next_cell(const struct cell *cells, size_t cnt, const struct cell *last)
{
	const struct cell *next = NULL;

	for (size_t i = 0; i < cnt; i++)
		if (cells[i].place > (last ? last->place : 0) && (!next || cells[i].place < next->place))
			next = &cells[i];
	return next;
}

static const char dashes[] = "----------------------------------------";

static bool is_narrow(const struct cell *cells, size_t cnt)
{
	size_t width = 0;

	for (size_t i = 0; i < cnt; i++)
		if (cells[i].place)
			width += 1 + (cells[i].width ? abs(cells[i].width) : TEXT_LAST_MIN);
	return width > text__columns();
}

static void print_last_rule(const struct table *table, size_t used)
{
	size_t from = used + strlen(table->gap), room = text__columns() > from ? text__columns() - from : 0;

	fprintf(table->out, "%s%.*s\n", table->gap, room < LAST_RULE ? (int)room : LAST_RULE, dashes);
}

static void print_wrapped(FILE *out, size_t used, const char *gap, const char *text)
{
	char *shown = utf8__escape(text);
	size_t from = used + strlen(gap);

	fputs(gap, out);
	columns__print(out, from, shown ?: "", text__columns(), from);
	free(shown);
}

/* Prints a text, escaped, in its column (width below 0: to the left). Returns the columns taken. */
static int print_cell(FILE *out, const char *text, int width)
{
	char *shown = utf8__escape(text);
	int cells = shown ? (int)columns__of_text(shown) : 0, pad = abs(width) > cells ? abs(width) - cells : 0;

	fprintf(out, "%*s%s%*s", width > 0 ? pad : 0, "", shown ?: "", width > 0 ? 0 : pad, "");
	free(shown);
	return cells + pad;
}

static void print_table_line(const struct table *table, const struct cell *cells, size_t cnt, enum table_line line)
{
	bool wide_rule = line == LINE_RULE && table->rules == RULES_WIDE;
	const struct cell *cell = NULL;
	char buffer[64];
	int used = 0;

	while ((cell = next_cell(cells, cnt, cell))) {
		int width = table->narrow && cell->width < -NARROW_TEXT ? -NARROW_TEXT : cell->width;
		const char *gap = width > 0 ? " " : table->gap;
		const char *text = line == LINE_VALUES ? cell_text(table, cell, buffer) : cell->head;

		if (!width) {
			if (line == LINE_RULE)
				print_last_rule(table, used);
			else if (table->wraps)
				print_wrapped(table->out, used, gap, text);
			else
				text__last(table->out, used, gap, text);
			return;
		}
		if (used)
			used += fprintf(table->out, "%.*s", (int)strlen(gap), wide_rule ? dashes : gap);
		if (line == LINE_RULE)
			used += fprintf(table->out, "%.*s", abs(width), dashes);
		else
			used += print_cell(table->out, text, width);
	}
	fputc('\n', table->out);
}

/* Prints title and heads above the first row. */
static void print_row(struct table *table, const struct cell *cells, size_t cnt)
{
	bool first = !table->row_cnt, wide = table->rules == RULES_WIDE;

	if (first)
		table->narrow = is_narrow(cells, cnt);
	if (first && table->title)
		fprintf(table->out, "%s\n", table->title);
	if (first && wide)
		print_table_line(table, cells, cnt, LINE_RULE);
	if (first && !table->headless)
		print_table_line(table, cells, cnt, LINE_HEAD);
	if (table->ruled || (first && table->rules != RULES_NONE))
		print_table_line(table, cells, cnt, LINE_RULE);
	print_table_line(table, cells, cnt, LINE_VALUES);
	if (table->ruled && wide)
		print_table_line(table, cells, cnt, LINE_RULE);
}

/* ---- rows ---- */

static json_t *cell_json(const struct cell *cell, const char *name)
{
	uint64_t integer = json_integer_value(cell->value);
	double unit = unit_ns(name);

	if (!json_is_integer(cell->value) || (!unit && (!cell->head || integer <= INT64_MAX)))
		return json_incref(cell->value);
	return unit ? json_real(integer / unit) : json_integer(INT64_MAX);
}

static int append_object(struct table *table, const struct cell *cells, size_t cnt)
{
	json_t *row = json_object();
	int failed = 0;

	for (size_t i = 0; i < cnt; i++) {
		char name[NAME_BYTES];

		if (!cells[i].key)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(cells[i].key, ":"), cells[i].key);
		failed |= json_object_set_new(row, name, cell_json(&cells[i], name));
	}
	failed |= json_array_append_new(table->list, row);
	return failed ? -ENOMEM : 0;
}

static void print_fields(FILE *out, const struct cell *cells, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		if (cells[i].key)
			fprintf(out, "%s ", cells[i].key);
}

int table__add(struct table *table, const struct cell *cells, size_t cnt)
{
	int err = 0;

	for (size_t i = 0; i < cnt; i++)
		if (!cells[i].value)
			err = -ENOMEM;
	if (!err && table->fields)
		print_fields(table->fields, cells, cnt);
	else if (!err && !table->out)
		err = append_object(table, cells, cnt);
	if (!err && table->out)
		print_row(table, cells, cnt);
	table->row_cnt++;
	for (size_t i = 0; i < cnt; i++)
		json_decref(cells[i].value);
	return err;
}
