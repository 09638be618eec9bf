/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A report describes each table once, as cells, from which both text and JSON come. A cell has the
 * name of its column in JSON and in the text, its width in the text, and its value. Out: lines of
 * text below the titles of the columns, or a list of JSON objects.
 */
#ifndef STEPFLAME_USER_REPORT_PRINT_TABLE_H
#define STEPFLAME_USER_REPORT_PRINT_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct cell {
	const char *key; /* field in JSON (shape.h), "rank:I?", in the order given; NULL: not in JSON */
	int place;       /* position in the text, from 1; 0: not in the text */
	const char *head;
	int width;  /* in the text; below 0: aligned to the left; 0: any, of the last column only */
	int digits; /* after the point, for numbers that are not whole; below 0: so many significant ones */
	/*
	 * Owned; NULL: no memory. An integer with a head holds the bits of a uint64_t, as JSON's
	 * integers end at INT64_MAX. Where key and head end with a unit of time ("total_us", "total
	 * ms"), the value is in nanoseconds and printed in that unit.
	 */
	json_t *value;
};

struct cell cell__new(const char *key, int place, const char *head, int width, int digits, json_t *value);
/* A cell of the last column, of any width, of the text, and not in JSON. Takes text over. */
struct cell cell__last(int place, const char *head, char *text);
/* A cell that is in the text only, in a table that prints no heads. */
struct cell cell__text(int place, int width, json_t *value);
/* A cell that is in JSON only. */
struct cell cell__json(const char *key, json_t *value);

/* Returns the cell, or where `there` is false one that is in neither output. */
struct cell cell__if(bool there, struct cell cell);

enum table_rules {
	RULES_COLUMNS, /* dashes below each head */
	RULES_WIDE,    /* lines as wide as the table, above and below the heads */
	RULES_NONE,
};

struct table {
	FILE *out;           /* for text; NULL: for JSON */
	FILE *fields;        /* for the fields of a shape (shape.h), and nothing else */
	json_t *list;        /* for JSON; borrowed */
	const char *title;   /* line above the text; NULL: none */
	const char *gap;     /* text before columns that are aligned to the left */
	const char *unknown; /* text for null */
	enum table_rules rules;
	bool headless; /* without a line of heads */
	bool wraps;    /* a text of the last column that does not fit is broken, not cut */
	bool ruled;    /* the caller sets it to get a line of dashes above the next row; RULES_WIDE: below it, too */
	bool narrow;   /* set by the first row: the terminal is too narrow for all columns */
	size_t row_cnt;
};

/* Returns a table that fills a list under a key of object, which owns the list. */
struct table table__json(json_t *object, const char *key);
/*
 * Adds a row and takes over the values of its cells. In text, prints title and heads above the
 * first row. 0 or -ENOMEM.
 */
int table__add(struct table *table, const struct cell *cells, size_t cnt);
#define TABLE_ADD(table, cells) table__add(table, cells, sizeof(cells) / sizeof(*(cells)))

#endif
