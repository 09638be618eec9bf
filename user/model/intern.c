// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A balanced tree (tsearch), as for names: keys come from a recording, which may be made to collide in a hash table. */
#include "intern.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

struct node {
	uint64_t key; /* first: what compare looks at */
	uint32_t index;
};

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int intern__add(struct intern *intern, uint64_t key, uint32_t *index)
{
	struct node **found, *node;
	uint64_t *slot;

	*index = 0;
	if (!key)
		return 0;
	found = tfind(&key, &intern->tree, compare);
	if (found) {
		*index = (*found)->index;
		return 0;
	}
	slot = intern->keys.cnt < UINT32_MAX - 1 ? array__add(&intern->keys, sizeof(*slot)) : NULL;
	node = slot ? malloc(sizeof(*node)) : NULL;
	if (!node)
		return -ENOMEM;
	*slot = key;
	*node = (struct node){key, intern->keys.cnt};
	if (!tsearch(node, &intern->tree, compare)) {
		free(node);
		return -ENOMEM;
	}
	*index = node->index;
	return 0;
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
	tdestroy(intern->tree, free);
	free(intern->keys.items);
	*intern = (struct intern){0};
}
