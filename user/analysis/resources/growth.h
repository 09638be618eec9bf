/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Does a value grow all the time? A line through points by Theil and Sen: its slope is the median of
 * the slopes between any two points, which outliers hardly move; the error comes from their order
 * (Sen 1968, by Kendall's variance).
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_GROWTH_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_GROWTH_H

#include <stdbool.h>
#include <stddef.h>

#define GROWTH_MIN_CNT 12 /* points: fewer say nothing */

struct growth_point {
	double s, value; /* seconds, ascending */
};

struct growth {
	bool steady;                    /* it grows in each third of the time, and hardly by chance (1 %) */
	double per_s;                   /* slope; 0: too few points */
	double least_per_s, most_per_s; /* with 99 % */
};

/* Of many points, takes the medians of blocks. 0 or -ENOMEM. */
int growth__find(const struct growth_point *points, size_t cnt, struct growth *out);

#endif
