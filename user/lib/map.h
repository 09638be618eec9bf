/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Items by key, in an array, in the order in which they came. An item begins with its key, of which all bytes are compared: a struct
 * without gaps.
 */
#ifndef STEPFLAME_USER_LIB_MAP_H
#define STEPFLAME_USER_LIB_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "user/lib/array.h"

/* Empty: all 0. */
struct map {
	struct array items; /* each new one moves the others */
	uint32_t *slots;    /* 1 + the index of an item; 0: empty */
	size_t slot_cnt;
	uint64_t seed;
};

/* The item, of a type, that has the key to which `key` points; NULL: there is none. */
#define MAP_FIND(map, type, key) ((type *)map__find(map, key, sizeof(*(key)), sizeof(type)))
/* The same; one that is new is zeroed but for its key. NULL: no memory. */
#define MAP_ADD(map, type, key) ((type *)map__add(map, key, sizeof(*(key)), sizeof(type)))
/* The index of an item. */
#define MAP_INDEX(map, item) ((uint32_t)((item) - (__typeof__(item))(map)->items.items))

void *map__find(const struct map *map, const void *key, size_t key_bytes, size_t item_bytes);
void *map__add(struct map *map, const void *key, size_t key_bytes, size_t item_bytes);
/* A sorted copy of the items, for free(). NULL: no memory. */
void *map__sorted(const struct map *map, size_t item_bytes, int (*compare)(const void *, const void *));
/* Leaves it empty. */
void map__free(struct map *map);

/* Texts: items are char *, malloc'ed. *index becomes that of a text, which is copied when it is new. 0 or -ENOMEM. */
int map__add_text(struct map *texts, const char *text, uint32_t *index);
/* Leaves it empty. */
void map__free_texts(struct map *texts);

#endif
