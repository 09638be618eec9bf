/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The names of frames in folded stacks. */
#ifndef STEPFLAME_USER_EXPORT_FOLDED_H
#define STEPFLAME_USER_EXPORT_FOLDED_H

#include <stdint.h>

/*
 * Returns "train.py:Net.forward:12" for Python, with the line being executed (0: unknown); the name
 * alone where file is NULL. Characters that would end a frame or a line become "_". malloc'ed;
 * NULL: no memory.
 */
char *folded__frame(const char *name, const char *file, uint32_t line);

#endif
