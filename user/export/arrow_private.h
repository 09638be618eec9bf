/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A table in memory: arrow.c puts values into its columns, arrow_file.c writes batches of them. */
#ifndef STEPFLAME_USER_EXPORT_ARROW_PRIVATE_H
#define STEPFLAME_USER_EXPORT_ARROW_PRIVATE_H

#include "user/export/arrow.h"
#include "user/export/flatbuffer.h"
#include "user/lib/map.h"

#define ARROW_COLUMNS_MAX 64

/* Values of a column in the batch, back to back. */
struct arrow_bytes {
	uint8_t *items;
	size_t cnt, room;
};

struct arrow_data {
	const struct arrow_column *is;
	struct arrow_bytes values;  /* an index into the texts for a TEXT; of TEXTS the index of each item */
	struct arrow_bytes present; /* a bit for each row */
	struct arrow_bytes ends;    /* TEXTS: int32_t, where the list of each row ends */
	size_t null_cnt;
	struct map texts; /* char * */
};

struct arrow {
	FILE *out;
	uint64_t written;
	struct arrow_data *columns;
	size_t column_cnt, at; /* at: the column whose value comes next */
	size_t row_cnt;        /* of the batch */
	struct flatbuffer message;
	struct array batches, dictionaries; /* struct block, see arrow_file.c */
	int err;
};

/* Keeps the first error. */
void arrow__fail(struct arrow *arrow, int err);
void arrow__add_bytes(struct arrow *arrow, struct arrow_bytes *to, const void *bytes, size_t cnt);
void arrow__add_int32(struct arrow *arrow, struct arrow_bytes *to, int32_t value);

/* Begins the file: its schema. */
void arrow__write_head(struct arrow *arrow);
/* An empty batch. */
void arrow__begin_batch(struct arrow *arrow);
/* Writes the batch, and begins another one. */
void arrow__write_batch(struct arrow *arrow);

#endif
