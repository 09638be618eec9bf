/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_TOP_JSON_H
#define STEPFLAME_USER_TOP_JSON_H

#include <stdio.h>

#include "user/top/top.h"

/*
 * Prints a frame as one line of JSON, for each view a list of rows: that of `view`, or all for
 * TOP__VIEWS. limit: rows of each; 0: all. 0 or -errno.
 */
int top_json__print(const struct top_frame *frame, enum top_view view, size_t limit, FILE *out);

#endif
