// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A hash table with open addressing: every sample looks several keys up, and a tree would take
 * eight times the memory. A recording can choose its keys to collide, so the hash depends on a seed
 * that is drawn at run time.
 */
#include "user/lib/map.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define TEXT 0 /* key_bytes of a key that is a char *, compared as text */

/* MurmurHash3's finalizer. */
static inline uint64_t mix(uint64_t bits)
{
	bits = (bits ^ bits >> 33) * 0xff51afd7ed558ccdull;
	bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53ull;
	return bits ^ bits >> 33;
}

static inline uint64_t hash(const struct map *map, const void *key, size_t key_bytes)
{
	size_t bytes = key_bytes == TEXT ? strlen(key) : key_bytes;
	uint64_t bits = map->seed, word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), key = (const char *)key + sizeof(word)) {
		memcpy(&word, key, sizeof(word));
		bits = mix(bits ^ word);
	}
	if (!bytes)
		return bits;
	word = 0;
	memcpy(&word, key, bytes);
	return mix(bits ^ word);
}

static inline bool has_key(const void *item, const void *key, size_t key_bytes)
{
	if (key_bytes == TEXT)
		return !strcmp(*(const char *const *)item, key);
	return key_bytes == 8 ? !memcmp(item, key, 8) : !memcmp(item, key, key_bytes); /* the compiler inlines 8 */
}

static inline void *item_at(const struct map *map, size_t index, size_t item_bytes)
{
	return (char *)map->items.items + index * item_bytes;
}

/* Returns the slot of a key, or the empty slot where the key belongs. */
static inline __attribute__((always_inline)) uint32_t *find_slot(const struct map *map, const void *key,
								 size_t key_bytes, size_t item_bytes)
{
	size_t at = hash(map, key, key_bytes) & (map->slot_cnt - 1);

	while (map->slots[at] && !has_key(item_at(map, map->slots[at] - 1, item_bytes), key, key_bytes))
		at = (at + 1) & (map->slot_cnt - 1);
	return &map->slots[at];
}

/* The number of slots is a power of 2, and at least half of them stay empty. */
static inline bool map_is_full(const struct map *map)
{
	return 2 * (map->items.cnt + 1) > map->slot_cnt;
}

static __attribute__((noinline)) int grow_slots(struct map *map, size_t key_bytes, size_t item_bytes)
{
	size_t slot_cnt = map->slot_cnt ? 2 * map->slot_cnt : 32;
	uint32_t *slots;

	if (map->items.cnt >= UINT32_MAX - 1)
		return -ENOMEM;
	if (!map->slots && getrandom(&map->seed, sizeof(map->seed), GRND_NONBLOCK) < 0)
		map->seed = (uintptr_t)map;
	slots = calloc(slot_cnt, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(map->slots);
	map->slots = slots;
	map->slot_cnt = slot_cnt;
	for (uint32_t i = 0; i < map->items.cnt; i++) {
		const void *item = item_at(map, i, item_bytes);

		*find_slot(map, key_bytes == TEXT ? *(const char *const *)item : item, key_bytes, item_bytes) = i + 1;
	}
	return 0;
}

static inline __attribute__((always_inline)) void *add_item(struct map *map, const void *key, size_t key_bytes,
							    size_t item_bytes)
{
	uint32_t *slot;
	void *item;

	if (map_is_full(map) && grow_slots(map, key_bytes, item_bytes))
		return NULL;
	slot = find_slot(map, key, key_bytes, item_bytes);
	if (*slot)
		return item_at(map, *slot - 1, item_bytes);
	item = array__add(&map->items, item_bytes);
	if (item) {
		memcpy(item, key, key_bytes);
		*slot = map->items.cnt;
	}
	return item;
}

/*
 * Items that are nothing but a 64-bit key are the most frequent; constant sizes give them code of
 * their own.
 */
void *map__add(struct map *map, const void *key, size_t key_bytes, size_t item_bytes)
{
	return key_bytes == 8 && item_bytes == 8 ? add_item(map, key, 8, 8) : add_item(map, key, key_bytes, item_bytes);
}

void *map__find(const struct map *map, const void *key, size_t key_bytes, size_t item_bytes)
{
	uint32_t number = map->slot_cnt ? *find_slot(map, key, key_bytes, item_bytes) : 0;

	return number ? item_at(map, number - 1, item_bytes) : NULL;
}

void *map__sorted(const struct map *map, size_t item_bytes, int (*compare)(const void *, const void *))
{
	void *items = calloc(map->items.cnt + 1, item_bytes);

	if (items && map->items.cnt)
		qsort(memcpy(items, map->items.items, map->items.cnt * item_bytes), map->items.cnt, item_bytes,
		      compare);
	return items;
}

void map__free(struct map *map)
{
	free(map->items.items);
	free(map->slots);
	*map = (struct map){0};
}

/* ---- texts ---- */

int map__add_text(struct map *texts, const char *text, uint32_t *index)
{
	char *copy, **item;
	uint32_t *slot;

	if (map_is_full(texts) && grow_slots(texts, TEXT, sizeof(text)))
		return -ENOMEM;
	slot = find_slot(texts, text, TEXT, sizeof(text));
	if (!*slot) {
		copy = strdup(text);
		item = copy ? array__add(&texts->items, sizeof(*item)) : NULL;
		if (!item) {
			free(copy);
			return -ENOMEM;
		}
		*item = copy;
		*slot = texts->items.cnt;
	}
	*index = *slot - 1;
	return 0;
}

void map__free_texts(struct map *texts)
{
	char **items = texts->items.items;

	for (size_t i = 0; i < texts->items.cnt; i++)
		free(items[i]);
	map__free(texts);
}

/* ---- intern ---- */

int intern__add(struct intern *intern, uint64_t key, uint32_t *index)
{
	const uint64_t *item = key ? MAP_ADD(&intern->keys, uint64_t, &key) : NULL;

	*index = item ? MAP_INDEX(&intern->keys, item) + 1 : 0;
	return key && !item ? -ENOMEM : 0;
}

uint32_t intern__find(const struct intern *intern, uint64_t key)
{
	const uint64_t *item = MAP_FIND(&intern->keys, uint64_t, &key);

	return item ? MAP_INDEX(&intern->keys, item) + 1 : 0;
}

uint64_t intern__key(const struct intern *intern, uint32_t index)
{
	return index ? ((const uint64_t *)intern->keys.items.items)[index - 1] : 0;
}

size_t intern__end(const struct intern *intern)
{
	return intern->keys.items.cnt + 1;
}

void intern__free(struct intern *intern)
{
	map__free(&intern->keys);
}
