/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A shared library that the machine's compiler makes of a test's own sources, in a folder that goes when the test ends.
 */
#ifndef STEPFLAME_TESTS_UNIT_LIBRARY_H
#define STEPFLAME_TESTS_UNIT_LIBRARY_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/elf/elf.h"

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

/*
 * Calls use() with the path of the library as it would be with some bytes flipped, or cut, so many times; ten times as
 * often when STEPFLAME_LONG is set.
 */
static inline void flip_library(int rounds, void (*use)(const char *path))
{
	char path[sizeof(library)];
	struct stat st;
	int fd = open(library, O_RDONLY);
	uint8_t *good, *bad;

	assert_true(fd >= 0 && !fstat(fd, &st));
	good = malloc(st.st_size);
	bad = malloc(st.st_size);
	assert_true(good && bad && read(fd, good, st.st_size) == st.st_size);
	close(fd);
	in_dir("flipped", path);
	srandom(20240607);
	rounds *= getenv("STEPFLAME_LONG") ? 10 : 1;
	for (int round = 0; round < rounds; round++) {
		/* Headers, and the dynamic part behind them, are hit more often than the rest. */
		size_t reach = round % 3 ? (size_t)st.st_size : 1024;
		size_t size = round % 10 ? (size_t)st.st_size : (size_t)random() % st.st_size;

		memcpy(bad, good, st.st_size);
		for (int flips = 1 + random() % 8; flips; flips--)
			bad[random() % reach] = random();
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		assert_true(fd >= 0 && write(fd, bad, size) == (ssize_t)size);
		close(fd);
		use(path);
	}
	free(good);
	free(bad);
}

static inline int clean(void **state)
{
	char command[sizeof(dir) + 16];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) ? -1 : 0;
}

#endif
