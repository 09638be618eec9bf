/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tables that are described once. A row comes as cells; a cell says what its column is called in JSON and in the text, how wide it
 * is there, and what is in it. Out: lines of text below the heads of the columns, or a list of JSON objects.
 */
#ifndef STEPFLAME_USER_REPORT_TABLE_H
#define STEPFLAME_USER_REPORT_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct cell {
	const char *key; /* in JSON, where cells come in their order; NULL: not there */
	/* In the text, where cells come by their places, from 1; 0: not there. The last column is as wide as need be. */
	int place;
	const char *head;
	int width, digits; /* digits: behind the point of a number that is not whole */
	/*
	 * Owned; NULL: no memory. An integer with a head is a uint64_t, and JSON's ends at INT64_MAX. Where key and head end with a unit of
	 * time ("total_us", "total ms"), it is in nanoseconds, and printed in that unit.
	 */
	json_t *value;
};

struct cell cell__new(const char *key, int place, const char *head, int width, int digits, json_t *value);
/* The last column of the text, and not in JSON. Takes text over. */
struct cell cell__last(int place, const char *head, char *text);
/* In JSON alone. */
struct cell cell__json(const char *key, json_t *value);

/* The cell, or one that is nowhere. */
struct cell cell__if(bool there, struct cell cell);

struct table {
	FILE *out;           /* of text; NULL: of JSON */
	json_t *list;        /* then; borrowed */
	const char *title;   /* the line above; NULL: none */
	const char *gap;     /* before the last column */
	const char *unknown; /* the text of null */
	bool ruled;          /* set before the next row is added: dashes above it */
	size_t row_cnt;
};

/* A list under a key of object; the object owns it. */
struct table table__json(json_t *object, const char *key);
/* Adds a row, and takes over the values of its cells. Text gets title and heads above the first one. 0 or -ENOMEM. */
int table__add(struct table *table, const struct cell *cells, size_t cnt);
#define TABLE_ADD(table, cells) table__add(table, cells, sizeof(cells) / sizeof(*(cells)))

#endif
