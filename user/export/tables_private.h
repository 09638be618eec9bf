/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of the tables share. Adding a table: a line in TABLES, its columns, and a function that puts its rows. */
#ifndef STEPFLAME_USER_EXPORT_TABLES_PRIVATE_H
#define STEPFLAME_USER_EXPORT_TABLES_PRIVATE_H

#include "user/analysis/cause/minutes.h"
#include "user/export/arrow.h"

/* What all rows of a process say. */
struct table_key {
	char job[160], host[72];
};

struct tables {
	struct job *job;
	struct steps *steps;
	struct minutes *minutes;
	struct table_key *keys; /* by index in minutes__all */
	uint32_t pid;           /* 0: all */
};

/* X(name): table_NAME is its struct table. */
#define TABLES(X) X(ranks) X(windows) X(steps) X(waits) X(samples) X(stacks) X(actions) X(ops) X(gpu)

struct table {
	const struct arrow_column *columns;
	size_t column_cnt;
	int (*put)(struct tables *tables, struct arrow *arrow); /* all rows. 0 or -ENOMEM */
};

#define X(name) extern const struct table table_##name;
TABLES(X)
#undef X

#define COLUMN(name, type)                \
	{                                 \
		name, ARROW_##type, false \
	}
#define NULLABLE(name, type)             \
	{                                \
		name, ARROW_##type, true \
	}

#define COLUMNS(list) .columns = (list), .column_cnt = sizeof(list) / sizeof(*(list))

/* The columns that say which process a row is of. */
#define KEY_COLUMNS                                                      \
	COLUMN("job", TEXT), COLUMN("host", TEXT), COLUMN("pid", INT32), \
	{                                                                \
		"rank", ARROW_INT32, true                                \
	}

#define PHASE_COLUMN(id, name) COLUMN(name "_ns", INT64),

/* The next process of the tables that is to be written; set *at to 0 before the first call. NULL: no more. */
const struct minutes_of *tables__next(const struct tables *tables, size_t *at);
/* NULL: the process has no rows. */
const struct minutes_of *tables__of(const struct tables *tables, uint32_t pid);
void tables__put_key(const struct tables *tables, const struct minutes_of *of, struct arrow *arrow);
void tables__put_known(struct arrow *arrow, int64_t value); /* below 0: null */
void tables__put_minute(struct arrow *arrow, int64_t minute);
void tables__put_time(const struct tables *tables, uint64_t monotonic_ns, struct arrow *arrow);

#endif
