// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/print/csv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/json.h"
#include "user/lib/utf8.h"

#define LINE_END "\r\n"

/* ---- rows ---- */

/* Adds what row has to flat, objects inside by the names of their keys. Nonzero: no memory. */
static int flatten(const json_t *row, const char *prefix, json_t *flat)
{
	const char *key;
	json_t *value;
	int failed = 0;

	json_object_foreach((json_t *)row, key, value)
	{
		bool nested = json_is_object(value);
		char name[128];

		snprintf(name, sizeof(name), "%s%s%s", prefix, key, nested ? "." : "");
		failed |= nested ? flatten(value, name, flat) : json_object_set(flat, name, value);
	}
	return failed;
}

static void print_field(const char *text, FILE *out)
{
	if (*text && !strpbrk(text, "\",")) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

/*
 * malloc'ed; NULL: no memory. A spreadsheet takes a text that begins like a formula as one, and
 * calculates it.
 */
static char *escape_field(const char *string)
{
	char *text = utf8__escape(string), *quoted = NULL;

	if (!text || !*text || !strchr("=+-@", *text))
		return text;
	if (asprintf(&quoted, "'%s", text) < 0)
		quoted = NULL;
	free(text);
	return quoted;
}

/* A NULL value: the row has no such key. */
static int print_value(const json_t *value, FILE *out)
{
	const char *string = json_string_value(value);
	char *text;

	if (!value || json_is_null(value))
		return 0;
	text = string ? escape_field(string) : json__text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	if (text)
		print_field(text, out);
	free(text);
	return text ? 0 : -ENOMEM;
}

int csv__heads(struct csv *csv, json_t *row)
{
	const char *key, *separator = "";
	json_t *value;
	int failed;

	csv->columns = json_object();
	failed = row ? flatten(row, "", csv->columns) : 1;
	json_decref(row);
	json_object_foreach(csv->columns, key, value)
	{
		fputs(separator, csv->out);
		print_field(key, csv->out);
		separator = ",";
	}
	fputs(LINE_END, csv->out);
	return failed ? -ENOMEM : 0;
}

int csv__row(struct csv *csv, json_t *row)
{
	json_t *flat = json_object(), *value;
	const char *key, *separator = "";
	int failed = row ? flatten(row, "", flat) : 1;

	if (!failed && !csv->columns)
		failed = csv__heads(csv, json_incref(row));
	json_object_foreach(csv->columns, key, value)
	{
		fputs(separator, csv->out);
		failed |= print_value(json_object_get(flat, key), csv->out);
		separator = ",";
	}
	fputs(LINE_END, csv->out);
	json_decref(flat);
	json_decref(row);
	return failed ? -ENOMEM : 0;
}

void csv__release(struct csv *csv)
{
	json_decref(csv->columns);
}

/* ---- lists of rows ---- */

/* Sets what a row has of an object around it; NULL: the keys alone. Nonzero: no memory. */
static int add_outer(json_t *row, const char *list, const json_t *object)
{
	static const struct {
		const char *list, *key, *name;
	} outer[] = {
		{"processes", "pid", "pid"},
		{"processes", "role", "role"},
		{"processes", "rank", "rank"},
		{"actions", "name", "action"},
	};
	int failed = 0;

	for (size_t i = 0; i < sizeof(outer) / sizeof(*outer); i++)
		if (!strcmp(outer[i].list, list))
			failed |= object ? json_object_set(row, outer[i].name, json_object_get(object, outer[i].key))
					 : json_object_set_new(row, outer[i].name, json_null());
	return failed;
}

static int print_level(struct csv *csv, const json_t *object, const char *const *path, json_t *outer)
{
	size_t i;
	json_t *item;
	int failed = 0;

	json_array_foreach(json_object_get(object, *path), i, item)
	{
		json_t *row = json_copy(outer);

		if (!path[1]) {
			failed |= json_object_update(row, item);
			failed |= csv__row(csv, row);
			continue;
		}
		failed |= add_outer(row, *path, item);
		failed |= print_level(csv, item, path + 1, row);
		json_decref(row);
	}
	return failed;
}

static int print_heads_alone(struct csv *csv, const char *const *path, json_t *blank)
{
	json_t *row = json_object();
	int failed = 0;

	for (; path[1]; path++)
		failed |= add_outer(row, *path, NULL);
	failed |= json_object_update(row, blank);
	return csv__heads(csv, row) || failed;
}

int csv__print(const json_t *report, const char *const *path, json_t *blank, FILE *out)
{
	struct csv csv = {.out = out};
	json_t *outer = json_object();
	int failed = print_level(&csv, report, path, outer);

	if (!failed && !csv.columns)
		failed = print_heads_alone(&csv, path, blank);
	json_decref(outer);
	csv__release(&csv);
	return failed ? -ENOMEM : 0;
}
