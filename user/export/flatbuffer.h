/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writes the parts of a FlatBuffers message (https://flatbuffers.dev/internals/), from front to back: a table is written before what its
 * fields refer to, since such an offset counts forward.
 */
#ifndef STEPFLAME_USER_EXPORT_FLATBUFFER_H
#define STEPFLAME_USER_EXPORT_FLATBUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zeros: empty. A position is an offset from its start. */
struct flatbuffer {
	uint8_t *bytes; /* malloc'ed; the owner frees it */
	size_t cnt, room;
	bool failed; /* no memory; later calls do nothing */
};

#define FLATBUFFER_FIELDS 8
#define FLATBUFFER_OFFSET 4 /* bytes of a field that refers to something */

/* A table whose values are all 0 until they are set. */
struct flatbuffer_table {
	size_t at;
	uint16_t fields[FLATBUFFER_FIELDS]; /* from `at`; 0: left out */
};

/* Begins an empty buffer: room for the reference to its root. */
void flatbuffer__begin(struct flatbuffer *buffer);
/* What flatbuffer__refer is to be called with for the root. */
#define FLATBUFFER_ROOT 0

/* bytes: of each field, 1, 2, 4 or 8, in the order of the schema; 0: left out. */
struct flatbuffer_table flatbuffer__table(struct flatbuffer *buffer, const uint8_t *bytes, size_t field_cnt);
/* Sets a value of 1, 2, 4 or 8 bytes. */
void flatbuffer__set(struct flatbuffer *buffer, size_t at, uint64_t value, size_t bytes);
/* Makes the field at a position refer to what begins at another one, behind it. */
void flatbuffer__refer(struct flatbuffer *buffer, size_t at, size_t to);
/* A vector of zeros, for items of item_bytes, of which 4 or 8 are aligned. Returns where it begins; its items follow after 4 bytes. */
size_t flatbuffer__vector(struct flatbuffer *buffer, size_t item_cnt, size_t item_bytes, size_t align);
size_t flatbuffer__text(struct flatbuffer *buffer, const char *text);

#define FLATBUFFER_ITEMS 4 /* from the start of a vector to its first item */

static inline size_t flatbuffer_table__field(const struct flatbuffer_table *table, unsigned int field)
{
	return table->at + table->fields[field];
}

#endif
