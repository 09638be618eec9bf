/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How wide terminals and texts are, in columns, and texts broken to a width. In: UTF-8, escaped. */
#ifndef STEPFLAME_USER_LIB_COLUMNS_H
#define STEPFLAME_USER_LIB_COLUMNS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Returns those of the terminal fd, or as many as the environment's COLUMNS says; SIZE_MAX: fd is none. */
size_t columns__of_terminal(int fd);
/* Return what is taken: two by a wide character, none by one that combines with the one before it. */
size_t columns__of_code(uint32_t code_point);
size_t columns__of_text(const char *text);
/*
 * Prints a text and a newline, behind `used` columns of its first line: broken at spaces to lines of
 * `width`, of which all but the first are indented by `hang`. A word that is longer than a line stays
 * whole. width SIZE_MAX: one line.
 */
void columns__print(FILE *out, size_t used, const char *text, size_t width, size_t hang);

#endif
