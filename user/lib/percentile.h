/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Percentiles by nearest rank, so that a percentile is always one of the values; the median is the
 * 50th. All output uses this function, and page/select.js computes the same.
 */
#ifndef STEPFLAME_USER_LIB_PERCENTILE_H
#define STEPFLAME_USER_LIB_PERCENTILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"

/* Returns the index of the percentile among cnt sorted values; cnt must be at least 1. */
static inline size_t percentile__index(size_t cnt, unsigned int percent)
{
	size_t rank = (cnt * percent + 99) / 100;

	return rank ? rank - 1 : 0;
}

/* Returns the percentile of cnt > 0 values in any order; `sorted` has room for as many, and has them in order afterwards. */
static inline uint64_t percentile__of(const uint64_t *values, size_t cnt, unsigned int percent, uint64_t *sorted)
{
	memcpy(sorted, values, cnt * sizeof(*values));
	qsort(sorted, cnt, sizeof(*sorted), compare__u64);
	return sorted[percentile__index(cnt, percent)];
}

#endif
