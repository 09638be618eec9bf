/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A shared library that is loaded when it is wanted: linked, it would cost each command its start. */
#ifndef STEPFLAME_USER_LIB_LIBRARY_H
#define STEPFLAME_USER_LIB_LIBRARY_H

#include <stddef.h>

struct library_function {
	const char *name;
	void **function; /* a pointer to the function */
};

/* Sets all functions. 0, or -ENOENT with *why, a text of the loader's that is valid until its next one. */
int library__load(const char *file, const struct library_function *functions, size_t cnt, const char **why);

#endif
