/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Percentiles by nearest rank: a value that was there. The median is the 50th. All that print one use this, and page/select.js does the same. */
#ifndef STEPFLAME_USER_LIB_PERCENTILE_H
#define STEPFLAME_USER_LIB_PERCENTILE_H

#include <stddef.h>

/* Where it lies among cnt sorted values, of which there is one at least. */
static inline size_t percentile__index(size_t cnt, unsigned int percent)
{
	size_t rank = (cnt * percent + 99) / 100;

	return rank ? rank - 1 : 0;
}

#endif
