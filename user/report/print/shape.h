/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the objects of the reports' JSON have. A shape stands where its object is packed, and says
 * its keys once: packing takes them from it, and `report --json-schema` is made of all shapes.
 *
 * Fields are words, "pid:I rank:I? where:[hotspot] waits:{f} host?:s":
 *   I, f, s, b    an integer, a number, a text, true or false
 *   name          an object of the shape with that name
 *   [T]           a list
 *   {T}           an object with any keys
 *   T?            the same, or null
 *   key?:T        not always there; whoever packs the object sets it afterwards
 *   @name         all fields of another shape
 */
#ifndef STEPFLAME_USER_REPORT_PRINT_SHAPE_H
#define STEPFLAME_USER_REPORT_PRINT_SHAPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "user/report/print/table.h"

struct job;

struct shape {
	const char *name;
	const char *fields; /* NULL: those of the cells of a row */
	const char *report; /* value of its key "report"; NULL: it is no report */
	/* Adds a row with any values. 0 or -ENOMEM; NULL: not made of cells. */
	int (*row)(struct job *job, struct table *table);
};

#define SHAPE__LISTED(id, ...)                        \
	static const struct shape id = {__VA_ARGS__}; \
	static const struct shape *const id##_listed __attribute__((used, section("stepflame_shapes"))) = &(id)

#define SHAPE(id, shape_name, shape_fields) SHAPE__LISTED(id, .name = shape_name, .fields = (shape_fields))
#define SHAPE_ROW(id, shape_name, row_fn)   SHAPE__LISTED(id, .name = shape_name, .row = (row_fn))
#define SHAPE_REPORT(id, shape_name, report_name, shape_fields) \
	SHAPE__LISTED(id, .name = shape_name, .report = report_name, .fields = (shape_fields))

/*
 * Returns an object with the values of those fields that are always there, in their order, and
 * takes these over. NULL: no memory, also where a value is NULL for that reason.
 */
json_t *shape__pack(const struct shape *shape, json_t *const *values, size_t cnt);
#define SHAPE_PACK(shape, ...) \
	shape__pack(&(shape), (json_t *const[]){__VA_ARGS__}, sizeof((json_t *const[]){__VA_ARGS__}) / sizeof(json_t *))

/* Returns a shape of the program, by its index; NULL: it has no more. The linker gathers them. */
const struct shape *shape__at(size_t index);

#define SHAPE_WORD_BYTES 64

/* A word of a shape's fields. */
struct shape_field {
	char key[SHAPE_WORD_BYTES]; /* "": the fields of another shape, which `type` names */
	char type[SHAPE_WORD_BYTES];
	bool optional;
};

/* Returns what follows the first word of fields; NULL: there is none. */
const char *shape_field__next(const char *fields, struct shape_field *field);

#endif
