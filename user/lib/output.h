/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files that stepflame writes. */
#ifndef STEPFLAME_USER_LIB_OUTPUT_H
#define STEPFLAME_USER_LIB_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* Is path "-", standard output? */
bool output__is_stdout(const char *path);
/* Returns the name of path for messages. */
const char *output__name(const char *path);

/*
 * Duplicates standard output, or creates or truncates path, for writing. Returns a descriptor, or
 * -1 with errno. A new file has mode 0644 and belongs to SUDO_UID:SUDO_GID when those are set; an
 * existing file keeps its owner.
 */
int output__open(const char *path);

/*
 * Returns a stream to fd, which it does not own, for what people read: nothing that is written to it
 * can steer a terminal. What utf8.h escapes is escaped, but for tabs, newlines, and a carriage
 * return before one; whoever prints a text escapes those in it. NULL: no memory.
 */
FILE *output__for_people(int fd);

#endif
