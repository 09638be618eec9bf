/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A table of functions as CPython's pstats prints it: Stats(...).strip_dirs().sort_stats(KEY).print_stats(LIMIT). */
#ifndef STEPFLAME_USER_REPORT_PSTATS_TABLE_H
#define STEPFLAME_USER_REPORT_PSTATS_TABLE_H

#include <stdio.h>

#include "user/analysis/profile.h"

/* pstats' own, NULL-terminated; the first is the default. */
extern const char *const pstats_table__sort_keys[];

/*
 * Byte for byte what Lib/pstats.py (3.8 to 3.14) prints for the same functions, but for control characters in names,
 * which are escaped, and for tables of samples: their first line says how many samples, and calls, which are not known,
 * are "-" (percall is empty, as pstats has it for no calls). limit: rows. 0 or -ENOMEM.
 */
int pstats_table__print(const struct profile *profile, const struct profile_table *table, const char *sort,
			size_t limit, FILE *out);

#endif
