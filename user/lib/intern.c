// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/intern.h"

#include <errno.h>

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
