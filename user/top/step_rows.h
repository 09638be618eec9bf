/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rows of the view TOP_STEPS. */
#ifndef STEPFLAME_USER_TOP_STEP_ROWS_H
#define STEPFLAME_USER_TOP_STEP_ROWS_H

#include "user/model/step_times.h"
#include "user/top/top.h"

/* Adds a row (struct top_row) for each process to rows, and begins a new interval. 0 or -ENOMEM. */
int step_rows__add(struct step_times *steps, const struct job *job, double interval_s, struct array *rows);

#endif
