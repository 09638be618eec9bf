// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A hash table with open addressing: every sample looks several keys up, and a tree would take eight times the memory. Keys
 * come from a recording, which could be made to collide: so the hash depends on a seed that is drawn at run time.
 */
#include "user/lib/intern.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

/* MurmurHash3's finalizer. */
static uint64_t hash(const struct intern *intern, uint64_t key)
{
	key ^= intern->seed;
	key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
	key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
	return key ^ key >> 33;
}

/* The slot of a key, or the empty one where it belongs. */
static uint32_t *find_slot(const struct intern *intern, uint64_t key)
{
	size_t at = hash(intern, key) & (intern->slot_cnt - 1);

	while (intern->slots[at] && intern__key(intern, intern->slots[at]) != key)
		at = (at + 1) & (intern->slot_cnt - 1);
	return &intern->slots[at];
}

/* A power of 2, at least half of it empty. */
static int grow_table(struct intern *intern)
{
	size_t slot_cnt = intern->slot_cnt ? 2 * intern->slot_cnt : 32;
	uint32_t *slots;

	if (2 * (intern->keys.cnt + 1) <= intern->slot_cnt)
		return 0;
	if (!intern->slots && getrandom(&intern->seed, sizeof(intern->seed), GRND_NONBLOCK) < 0)
		intern->seed = (uintptr_t)intern;
	slots = calloc(slot_cnt, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(intern->slots);
	intern->slots = slots;
	intern->slot_cnt = slot_cnt;
	for (uint32_t i = 1; i <= intern->keys.cnt; i++)
		*find_slot(intern, intern__key(intern, i)) = i;
	return 0;
}

int intern__add(struct intern *intern, uint64_t key, uint32_t *index)
{
	uint32_t *slot;
	uint64_t *kept;

	*index = 0;
	if (!key)
		return 0;
	if (intern->keys.cnt >= UINT32_MAX - 1 || grow_table(intern))
		return -ENOMEM;
	slot = find_slot(intern, key);
	if (!*slot) {
		kept = array__add(&intern->keys, sizeof(*kept));
		if (!kept)
			return -ENOMEM;
		*kept = key;
		*slot = intern->keys.cnt;
	}
	*index = *slot;
	return 0;
}

bool intern__has(const struct intern *intern, uint64_t key)
{
	return intern->slot_cnt && *find_slot(intern, key);
}

uint64_t intern__key(const struct intern *intern, uint32_t index)
{
	return index ? ((const uint64_t *)intern->keys.items)[index - 1] : 0;
}

size_t intern__end(const struct intern *intern)
{
	return intern->keys.cnt + 1;
}

void intern__free(struct intern *intern)
{
	free(intern->keys.items);
	free(intern->slots);
	*intern = (struct intern){0};
}
