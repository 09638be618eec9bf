/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How folded stacks name frames. */
#ifndef STEPFLAME_USER_EXPORT_FOLDED_H
#define STEPFLAME_USER_EXPORT_FOLDED_H

#include <stdint.h>

/*
 * "train.py:Net.forward:12" of Python, the line being the one at hand (0: not known); the name alone where file is NULL. What
 * would end a frame or a line is "_". malloc'ed; NULL: no memory.
 */
char *folded__frame(const char *name, const char *file, uint32_t line);

#endif
