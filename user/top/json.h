/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What top shows, for programs. In: a frame. Out: JSON or CSV. */
#ifndef STEPFLAME_USER_TOP_JSON_H
#define STEPFLAME_USER_TOP_JSON_H

#include <stdio.h>

#include "user/report/print/csv.h"
#include "user/top/top.h"

/*
 * Prints a frame as one line of JSON, for each view a list of rows: that of `view`, or all for
 * TOP__VIEWS. limit: rows of each; 0: all. 0 or -errno.
 */
int top_json__print(const struct top_frame *frame, enum top_view view, size_t limit, FILE *out);
/*
 * Prints the rows of a view as CSV, each with the time of the frame; above the first frame also the
 * heads. csv: of all frames. 0 or -errno.
 */
int top_json__csv(const struct top_frame *frame, enum top_view view, size_t limit, struct csv *csv);

#endif
