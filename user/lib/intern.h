/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* 64-bit keys numbered in the order in which they come, so that what belongs to them can lie in arrays. */
#ifndef STEPFLAME_USER_LIB_INTERN_H
#define STEPFLAME_USER_LIB_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "user/lib/map.h"

/* Empty: all 0. */
struct intern {
	struct map keys; /* uint64_t by number - 1 */
};

/* *index becomes the number of key, from 1; that of key 0 is 0. 0 or -ENOMEM. */
int intern__add(struct intern *intern, uint64_t key, uint32_t *index);
/* The number of a key, 0: it was not added. */
uint32_t intern__find(const struct intern *intern, uint64_t key);
/* The key of a number that intern__add gave. */
uint64_t intern__key(const struct intern *intern, uint32_t index);
/* Above the highest number. */
size_t intern__end(const struct intern *intern);
/* Leaves it empty. */
void intern__free(struct intern *intern);

#endif
