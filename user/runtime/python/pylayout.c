/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of CPython layouts: written by tools/pylayout, searched here. */
#include <stddef.h>

#include "user/runtime/python/pylayout.h"

static const struct py_internals table[] = {
#include "user/runtime/python/pylayout.inc"
};

const struct py_internals *py_internals__find(int minor)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].layout.minor == minor)
			return &table[i];
	}
	return NULL;
}

const struct py_layout *py_layout__find(int minor)
{
	const struct py_internals *row = py_internals__find(minor);

	return row ? &row->layout : NULL;
}
