/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A shared library that the machine's compiler makes of a test's own sources, in a folder that goes when the test ends.
 */
#ifndef STEPFLAME_TESTS_LIBRARY_H
#define STEPFLAME_TESTS_LIBRARY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "target/elf.h"

static char dir[] = "/tmp/stepflame-library-XXXXXX";
static char library[sizeof(dir) + 16]; /* empty: there is no compiler that makes it */

/* The path of a file in the folder. */
static inline const char *in_dir(const char *name, char path[sizeof(library)])
{
	snprintf(path, sizeof(library), "%s/%s", dir, name);
	return path;
}

static inline bool write_text(const char *name, const char *text)
{
	char path[sizeof(library)];
	FILE *f = fopen(in_dir(name, path), "w");

	if (!f)
		return false;
	fputs(text, f);
	return !fclose(f);
}

/* Makes the library `name` of sources and flags; its path goes to `path`, empty when the compiler cannot. */
static inline void compile(const char *name, const char *sources, char path[sizeof(library)])
{
	char command[512];

	snprintf(command, sizeof(command), "cd %s && cc -w -fPIC -shared %s -o %s 2>&1", dir, sources, name);
	in_dir(name, path);
	if (system(command))
		path[0] = 0;
}

static inline struct elf *open_library(void)
{
	struct elf *elf;

	if (!library[0]) {
		print_message("skipped: no C compiler (cc) that builds the fixture\n");
		skip();
	}
	assert_int_equal(elf__new(library, &elf), 0);
	return elf;
}

static inline int clean(void **state)
{
	char command[sizeof(dir) + 16];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) ? -1 : 0;
}

#endif
