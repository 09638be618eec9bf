/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The version that a Python package's version.py says. Hostile input: a line is cut, nothing is run. */
#ifndef STEPFLAME_USER_ELF_VERSION_FILE_H
#define STEPFLAME_USER_ELF_VERSION_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The text behind the first `variable = '`, at the beginning of a line of that file. false: there is none. */
bool version_file__read(const char *path, const char *variable, char *version, size_t size);

#endif
