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

#include <stdbool.h>
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

/*
 * Finds out whether steps come at regular intervals: every 37th, or every 9th or 10th (for a period
 * in items, several of which share a batch).
 */

struct rhythm {
	uint64_t shortest, longest; /* distance in steps: equal, or differing by 1; 0: no rhythm */
	size_t matched;             /* number of steps that follow the rhythm */
};

/*
 * Takes ascending indexes of steps, and the time that each step lost. Ignores steps that lost less
 * than half as much as the fourth-worst step, unless the others have no rhythm. A rhythm needs at
 * least 4 steps, and three quarters of them, to follow it, and at most a quarter of its steps
 * missing. Consecutive steps have no rhythm. alike: the steps do what no other step does; then
 * three suffice, if all of them follow the rhythm and none is missing.
 */
struct rhythm rhythm__find(const uint64_t *indexes, const uint64_t *lost_ns, size_t cnt, bool alike);

/*
 * "every 37th step", "every 9th or 10th step"; where fewer than three quarters of `cnt` steps follow
 * it, "7 of them every 37th step". malloc'ed; "" without a rhythm; NULL: no memory.
 */
char *rhythm__text(const struct rhythm *rhythm, size_t cnt);

#endif
