/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Items by key, stored in an array in the order in which they came. An item begins with its key.
 * Keys compare by all their bytes, so a key must be a struct without padding.
 */
#ifndef STEPFLAME_USER_LIB_MAP_H
#define STEPFLAME_USER_LIB_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "user/lib/array.h"

/* Empty: all 0. */
struct map {
	struct array items; /* a new item moves the others */
	uint32_t *slots;    /* 1 + the index of an item; 0: empty */
	size_t slot_cnt;
	uint64_t seed;
};

/* Returns the item, of a type, whose key equals the one that `key` points to; NULL: no such item. */
#define MAP_FIND(map, type, key) ((type *)map__find(map, key, sizeof(*(key)), sizeof(type)))
/* The same, but adds a missing item, zeroed except for its key. NULL: no memory. */
#define MAP_ADD(map, type, key) ((type *)map__add(map, key, sizeof(*(key)), sizeof(type)))
/* Returns the index of an item. */
#define MAP_INDEX(map, item) ((uint32_t)((item) - (__typeof__(item))(map)->items.items))

void *map__find(const struct map *map, const void *key, size_t key_bytes, size_t item_bytes);
void *map__add(struct map *map, const void *key, size_t key_bytes, size_t item_bytes);
/* Returns a sorted copy of the items, which the caller frees. NULL: no memory. */
void *map__sorted(const struct map *map, size_t item_bytes, int (*compare)(const void *, const void *));
/* Leaves it empty. */
void map__free(struct map *map);

/*
 * For texts, items are char *, malloc'ed. Sets *index to the index of a text, and copies a new
 * text. 0 or -ENOMEM.
 */
int map__add_text(struct map *texts, const char *text, uint32_t *index);
/* Leaves it empty. */
void map__free_texts(struct map *texts);

/*
 * ---- intern: 64-bit keys, numbered ----
 *
 * In the order in which they come, so that arrays can hold what belongs to them. Empty: all 0.
 */
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
