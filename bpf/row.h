/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rows of an open hash table in an array map. The verifier inlines look-ups in an array, so finding
 * a row calls no helper; user space maps the array. A row begins with a struct row_head
 * (include/row.h).
 */
#ifndef STEPFLAME_BPF_ROW_H
#define STEPFLAME_BPF_ROW_H

#include "bpf/kernel.h"

#include "include/row.h"

/* The finalizer of MurmurHash3, shortened; never 0, which marks a free row. */
static __always_inline u64 row__hash(u64 h)
{
	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ULL;
	return (h ^ h >> 32) | 1;
}

/*
 * Index of the row for `hash` among `rows` of a map, probing at most `tries` neighbours; `rows`: no
 * room. *fresh: the row was free and now belongs to the caller, who writes its key and then calls
 * row__publish. A macro, since each map has its own type.
 */
#define ROW_CLAIM(map, rows, tries, hash, fresh)                                               \
	({                                                                                     \
		u32 __found = (rows);                                                          \
		*(fresh) = false;                                                              \
		for (u32 __n = 0; __n < (tries); __n++) {                                      \
			u32 __i = (((hash) >> 40) + __n) % (rows);                             \
			struct row_head *__row = (void *)bpf_map_lookup_elem(map, &__i);       \
			u64 __seen;                                                            \
			if (!__row)                                                            \
				break;                                                         \
			__seen = __row->hash;                                                  \
			if (!__seen) {                                                         \
				__seen = __sync_val_compare_and_swap(&__row->hash, 0, (hash)); \
				*(fresh) = !__seen;                                            \
			}                                                                      \
			if (!__seen || __seen == (hash)) {                                     \
				__found = __i;                                                 \
				break;                                                         \
			}                                                                      \
		}                                                                              \
		__found;                                                                       \
	})

/* The key is complete: user space may read the row. */
static __always_inline void row__publish(struct row_head *row)
{
	__sync_fetch_and_or(&row->whole, 1);
}

#endif
