// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *array__add(struct array *array, size_t item_bytes)
{
	if (array->cnt == array->room) {
		size_t room = array->room ? 2 * array->room : 16;
		void *items = reallocarray(array->items, room, item_bytes);

		if (!items)
			return NULL;
		array->items = items;
		array->room = room;
	}
	return memset((char *)array->items + array->cnt++ * item_bytes, 0, item_bytes);
}

int array__grow(struct array *array, size_t cnt, size_t item_bytes)
{
	while (array->cnt < cnt)
		if (!array__add(array, item_bytes))
			return -ENOMEM;
	return 0;
}
