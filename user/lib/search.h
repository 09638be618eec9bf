/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Binary search for the first item that fails a condition. To find an equal item, use bsearch(). */
#ifndef STEPFLAME_USER_LIB_SEARCH_H
#define STEPFLAME_USER_LIB_SEARCH_H

#include <stddef.h>

/*
 * Returns the first index in [from, to) at which `before`, an expression with the index i, is
 * false; `to` where it is true at all of them. `before` must be false at every index after the
 * first such.
 */
#define SEARCH(i, from, to, before)                                 \
	__extension__({                                             \
		size_t low_ = (from), high_ = (to);                 \
                                                                    \
		while (low_ < high_) {                              \
			const size_t i = low_ + (high_ - low_) / 2; \
                                                                    \
			if (before)                                 \
				low_ = i + 1;                       \
			else                                        \
				high_ = i;                          \
		}                                                   \
		low_;                                               \
	})

#endif
