/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An array that grows. */
#ifndef STEPFLAME_USER_LIB_ARRAY_H
#define STEPFLAME_USER_LIB_ARRAY_H

#include <stddef.h>

struct array {
	void *items; /* malloc'ed; the owner frees it */
	size_t cnt, room;
};

/* Adds a zeroed item at the end and returns it; NULL: no memory. May move the items. */
void *array__add(struct array *array, size_t item_bytes);
/* Adds zeroed items until the array has cnt. 0 or -ENOMEM. */
int array__grow(struct array *array, size_t cnt, size_t item_bytes);

#endif
