/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the text and the JSON of the GPU report share: gpu_tables.c describes each table once for
 * both.
 */
#ifndef STEPFLAME_USER_REPORT_GPU_H
#define STEPFLAME_USER_REPORT_GPU_H

#include "user/report/gpu_rows.h"
#include "user/report/print/table.h"

/* See struct report_ops. */
int report_gpu__json(struct job *job, const struct report_options *options, FILE *out);

/* The functions below return 0 or -ENOMEM. */
/* Adds the first `limit` rows of a table. */
int gpu_table__add(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id, size_t limit,
		   struct table *table);
/* Adds the sum of all rows of a table. */
int gpu_table__add_sum(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id,
		       struct table *table);

/* Returns a row of kernels with the keys of all. NULL: no memory. */
json_t *gpu_table__blank_kernel(const struct gpu_view *view);

/* Adds a row for each GPU that pid, or any main process, used. */
int gpu_tables__lines(const struct gpu_view *view, uint32_t pid, struct table *table);
/*
 * Adds a row for each kind of overhead that CUPTI reported of pid, or of all main processes.
 * *profiling_ns: the time of those that are the price of profiling.
 */
int gpu_tables__overheads(const struct gpu_view *view, uint32_t pid, struct table *table, uint64_t *profiling_ns);
/* Adds a row for each GPU of the host, whichever process used the GPU. */
int gpu_tables__usage(const struct gpu_view *view, struct table *table);

/* Returns the microseconds that a GPU was idle between two times, by reason. NULL: no memory. */
json_t *gpu_line__json_idle(const struct gpu_line *line, uint64_t from_ns, uint64_t to_ns);

#endif
