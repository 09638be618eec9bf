/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads the version from a Python package's version.py. Hostile input: a long line is cut, nothing
 * is executed.
 */
#ifndef STEPFLAME_USER_ELF_VERSION_FILE_H
#define STEPFLAME_USER_ELF_VERSION_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Reads the text, as UTF-8, after the first `variable = '` at the beginning of a line. Returns false when
 * there is no such line.
 */
bool version_file__read(const char *path, const char *variable, char *version, size_t size);

#endif
