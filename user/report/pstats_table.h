/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A table of functions as CPython's pstats prints it:
 * Stats(...).strip_dirs().sort_stats(KEY).print_stats(LIMIT).
 */
#ifndef STEPFLAME_USER_REPORT_PSTATS_TABLE_H
#define STEPFLAME_USER_REPORT_PSTATS_TABLE_H

#include <stdio.h>

#include "user/analysis/flame/profile.h"

/* The keys of pstats, NULL-terminated; the first is the default. */
extern const char *const pstats_table__sort_keys[];

/*
 * Prints byte for byte what Lib/pstats.py (3.8 to 3.15) prints for the same functions, with two
 * exceptions: control characters in names are escaped; and the first line of a table of samples
 * gives the number of samples, while calls, which samples do not count, are "-" (and percall is
 * empty, as pstats leaves it where there are no calls). limit: rows; 0: all. 0 or -ENOMEM.
 */
int pstats_table__print(const struct profile *profile, const struct profile_table *table, const char *sort,
			size_t limit, FILE *out);

#endif
