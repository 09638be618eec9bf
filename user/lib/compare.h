/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_LIB_COMPARE_H
#define STEPFLAME_USER_LIB_COMPARE_H

#include <stdint.h>

/*
 * Below, equal to or above 0, as qsort expects; a subtraction could overflow. Evaluates both
 * arguments twice.
 */
#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/* For qsort and bsearch, of uint64_t. */
static inline int compare__u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return COMPARE(*x, *y);
}

#endif
