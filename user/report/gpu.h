/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the text and the JSON of the GPU report share: its tables, described once (gpu_tables.c). */
#ifndef STEPFLAME_USER_REPORT_GPU_H
#define STEPFLAME_USER_REPORT_GPU_H

#include "user/report/gpu_rows.h"
#include "user/report/table.h"

/* See struct report_ops. */
int report_gpu__json(struct job *job, const struct report_options *options, FILE *out);

/* All return 0 or -ENOMEM. */
/* Adds the first `limit` rows of a table. */
int gpu_table__add(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id, size_t limit,
		   struct table *table);
/* Adds the sum of all of them. */
int gpu_table__add_sum(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id,
		       struct table *table);

/* Adds a row for each GPU of pid, or of all main processes. */
int gpu_tables__lines(const struct gpu_view *view, uint32_t pid, struct table *table);
/* Adds a row for each GPU of the host, whoever used it. */
int gpu_tables__usage(const struct gpu_view *view, struct table *table);

/* Microseconds that a GPU was idle between two instants, by reason. NULL: no memory. */
json_t *gpu_line__json_idle(const struct gpu_line *line, uint64_t from_ns, uint64_t to_ns);

#endif
