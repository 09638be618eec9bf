/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interpreters that a C test runs on: the colon-separated STEPFLAME_PYTHONS, else those of pyenv and the system's.
 */
#ifndef STEPFLAME_TESTS_PYTHONS_H
#define STEPFLAME_TESTS_PYTHONS_H

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/runtime/python/python.h"

#define PYTHON_MAX 32

/* "3.8" to "3.15" of an interpreter that starts. */
static inline bool is_supported(const char *python)
{
	char command[1024];
	int minor = 0;
	FILE *from;

	snprintf(command, sizeof(command), "'%s' -c 'import sys; print(sys.version_info[1])' 2>/dev/null", python);
	from = popen(command, "r");
	if (!from)
		return false;
	if (fscanf(from, "%d", &minor) != 1)
		minor = 0;
	pclose(from);
	return minor >= PY_MINOR_MIN && minor <= PY_MINOR_MAX;
}

static inline size_t find_pythons(char *pythons[PYTHON_MAX])
{
	const char *list = getenv("STEPFLAME_PYTHONS"), *home = getenv("HOME");
	char pattern[1024], *copy;
	size_t cnt = 0;
	glob_t found;

	if (list) {
		copy = strdup(list);
		for (char *one = strtok(copy, ":"); one && cnt < PYTHON_MAX; one = strtok(NULL, ":"))
			pythons[cnt++] = strdup(one);
		free(copy);
		return cnt;
	}
	snprintf(pattern, sizeof(pattern), "%s/.pyenv/versions/*/bin/python3", home ? home : "");
	glob(pattern, 0, NULL, &found);
	glob("/usr/bin/python3", GLOB_APPEND, NULL, &found);
	for (size_t i = 0; i < found.gl_pathc && cnt < PYTHON_MAX; i++) {
		if (is_supported(found.gl_pathv[i]))
			pythons[cnt++] = strdup(found.gl_pathv[i]);
	}
	globfree(&found);
	return cnt;
}

#endif
