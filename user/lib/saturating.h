/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Saturating sums: a recording may hold any numbers, so a sum stops at UINT64_MAX instead of
 * wrapping to 0.
 */
#ifndef STEPFLAME_USER_LIB_SATURATING_H
#define STEPFLAME_USER_LIB_SATURATING_H

#include <stdint.h>

static inline uint64_t saturating__add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

#endif
