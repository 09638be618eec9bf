/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Binary search. Where only an item that is equal is wanted, bsearch() does. */
#ifndef STEPFLAME_USER_LIB_SEARCH_H
#define STEPFLAME_USER_LIB_SEARCH_H

#include <stddef.h>

/*
 * The first index from `from` on of which `before`, an expression with the index i, is false; `to` where it is true of all below that.
 * It is false of all behind the first.
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
