/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which of many durations are slow. Those beyond both 1.5 ordinary ones and an ordinary one and 5 times the spread;
 * ordinary is the median, and the spread the median distance from it (MAD). Where there are two kinds (every second
 * step reads a file), the median may lie in either: then ordinary are those of the faster kind, if a quarter are. Two
 * kinds there are where the best split in two, of the logarithms, sets medians 1.5 times apart and 5 times as far as
 * both spread.
 */
#ifndef STEPFLAME_USER_ANALYSIS_SLOW_H
#define STEPFLAME_USER_ANALYSIS_SLOW_H

#include <stddef.h>
#include <stdint.h>

#define SLOW_MIN_CNT 8 /* of fewer none is slow */

struct slow_rule {
	uint64_t median_ns, p99_ns, min_ns, max_ns; /* of all; by nearest rank */
	uint64_t ordinary_ns;                       /* median of the ordinary ones */
	uint64_t limit_ns;                          /* slow are longer ones; UINT64_MAX: none */
};

/* Sorts the durations. cnt > 0. */
struct slow_rule slow__rule(uint64_t *durations_ns, size_t cnt);

#endif
