/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Numbers 64-bit keys in the order in which they come, so that arrays can hold what belongs to
 * them.
 */
#ifndef STEPFLAME_USER_LIB_INTERN_H
#define STEPFLAME_USER_LIB_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "user/lib/map.h"

/* Empty: all 0. */
struct intern {
	struct map keys; /* uint64_t at index number - 1 */
};

/* Sets *index to the number of key, from 1; key 0 has number 0. 0 or -ENOMEM. */
int intern__add(struct intern *intern, uint64_t key, uint32_t *index);
/* Returns the number of a key; 0 for a key that was not added. */
uint32_t intern__find(const struct intern *intern, uint64_t key);
/* Returns the key of a number that intern__add returned. */
uint64_t intern__key(const struct intern *intern, uint32_t index);
/* Returns the highest number + 1. */
size_t intern__end(const struct intern *intern);
/* Leaves it empty. */
void intern__free(struct intern *intern);

#endif
