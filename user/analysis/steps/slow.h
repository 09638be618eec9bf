/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Decides which of many durations are slow: those beyond both 1.5 times the ordinary duration, and
 * the ordinary duration plus 5 times the spread. The ordinary duration is the median, and the
 * spread is the median distance from it (MAD). If there are two kinds (every second step reads a
 * file), the median may lie in either; the faster kind is then ordinary, if it makes up at least a
 * quarter. There are two kinds if the best split of the logarithms puts the two medians a factor of
 * 1.5 apart, and 5 times as far apart as both sides spread.
 */
#ifndef STEPFLAME_USER_ANALYSIS_STEPS_SLOW_H
#define STEPFLAME_USER_ANALYSIS_STEPS_SLOW_H

#include <stddef.h>
#include <stdint.h>

#define SLOW_MIN_CNT 8 /* with fewer, no duration is slow */

struct slow_rule {
	uint64_t median_ns, p99_ns, min_ns, max_ns; /* of all durations; nearest rank */
	uint64_t ordinary_ns;                       /* median of the ordinary ones */
	uint64_t limit_ns;                          /* longer durations are slow; UINT64_MAX: no duration is */
};

/* Sorts the durations. cnt > 0. */
struct slow_rule slow__rule(uint64_t *durations_ns, size_t cnt);

#endif
