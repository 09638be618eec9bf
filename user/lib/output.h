/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files that stepflame writes. */
#ifndef STEPFLAME_USER_LIB_OUTPUT_H
#define STEPFLAME_USER_LIB_OUTPUT_H

#include <stdbool.h>

/* Does it stand for standard output, "-"? */
bool output__is_stdout(const char *path);
/* What messages call it. */
const char *output__name(const char *path);

/*
 * Standard output once more, or creates path, or empties it, for writing: a descriptor, or -1 with errno. A new file has mode 0644 and belongs to
 * SUDO_UID:SUDO_GID when those are set; one that existed keeps its owner.
 */
int output__open(const char *path);

#endif
