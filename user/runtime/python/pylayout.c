/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of CPython layouts: written by tools/pylayout, searched here. */
#include <stddef.h>

#include "user/runtime/python/pylayout.h"

static const struct py_internals table[] = {
#include "user/runtime/python/pylayout.inc"
};

bool py_layout__is_free_threaded(const struct py_layout *layout)
{
	return py_layout__longer(layout) > 0;
}

const struct py_internals *py_internals__find(int minor, bool free_threaded)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].layout.minor == minor && py_layout__is_free_threaded(&table[i].layout) == free_threaded)
			return &table[i];
	}
	return NULL;
}

const struct py_internals *py_internals__of(const struct py_layout *layout)
{
	return py_internals__find(layout->minor, py_layout__is_free_threaded(layout));
}

const struct py_layout *py_layout__find(int minor)
{
	const struct py_internals *row = py_internals__find(minor, false);

	return row ? &row->layout : NULL;
}
