/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_SIMPLE_H
#define STEPFLAME_SIMPLE_H

#include "rows.h"

/* Lightning's table alone, and nothing below it. 0 or -ENOMEM; errors of out stay in it. */
int simple__table(const struct rows *rows, double window_s, FILE *out);

#endif
