/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A recording as tables that join with those of other hosts: docs/tables.md describes them. Rows have the time of day, and an hour of a rank
 * takes few rows: sums by minute, but for the steps.
 */
#ifndef STEPFLAME_USER_EXPORT_TABLES_H
#define STEPFLAME_USER_EXPORT_TABLES_H

#include <stdint.h>
#include <stdio.h>

#include "user/model/job.h"

struct tables;

/* pid: only this process; 0: all. NULL with *err: -ENOMEM, or -EINVAL where the times of the recording are impossible. */
struct tables *tables__new(struct job *job, uint32_t pid, int *err);
void tables__free(struct tables *tables); /* accepts NULL */

size_t tables__cnt(void);
const char *tables__name(size_t table); /* "steps" */
/* Writes an Arrow IPC file. The caller checks out for errors. 0, -ENOMEM or -EINVAL. */
int tables__write(struct tables *tables, size_t table, FILE *out);

#endif
