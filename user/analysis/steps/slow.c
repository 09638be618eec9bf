// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/steps/slow.h"

#include <math.h>
#include <stdlib.h>

#include "user/lib/compare.h"
#include "user/lib/percentile.h"

#define TIMES_ORDINARY 1.5
#define TIMES_SPREAD   5
#define FASTER_SHARE   0.25 /* least share of the faster kind */
#define SLOWER_SHARE   0.10
#define TOP_PERCENT    95

static uint64_t percentile_of(const uint64_t *sorted, size_t cnt, unsigned int percent)
{
	return sorted[percentile__index(cnt, percent)];
}

/*
 * Median distance from the median of sorted values. The k nearest values form a run around the
 * median, and the furthest of the run is the result, so this needs neither a copy nor a sort.
 */
static uint64_t median_distance(const uint64_t *sorted, size_t cnt)
{
	size_t low = percentile__index(cnt, 50), high = low, taken = 1;
	uint64_t middle = sorted[low], furthest = 0;

	for (; taken < (cnt + 1) / 2; taken++) {
		uint64_t below = low ? middle - sorted[low - 1] : UINT64_MAX;
		uint64_t above = high + 1 < cnt ? sorted[high + 1] - middle : UINT64_MAX;

		furthest = below < above ? below : above;
		if (below < above)
			low--;
		else
			high++;
	}
	return furthest;
}

/*
 * Otsu's method: splits sorted values so that the means of both sides are furthest apart. Returns
 * the number of values on the lower side.
 */
static size_t best_split(const uint64_t *sorted, size_t cnt)
{
	size_t first = ceil(cnt * FASTER_SHARE), last = cnt - (size_t)ceil(cnt * SLOWER_SHARE), best = 0;
	double top = log(percentile_of(sorted, cnt, TOP_PERCENT) + 1.0); /* limits the influence of a few huge values */
	double sum = 0, lower = 0, best_distance = -1;

	for (size_t i = 0; i < cnt; i++)
		sum += fmin(log(sorted[i] + 1.0), top);
	for (size_t i = 0; i < last; i++) {
		double n = i + 1, rest = cnt - n, apart, distance;

		lower += fmin(log(sorted[i] + 1.0), top);
		apart = (sum - lower) / rest - lower / n;
		distance = n * rest * apart * apart;
		if (i + 1 >= first && distance > best_distance) {
			best_distance = distance;
			best = i + 1;
		}
	}
	return best;
}

/* The number of sorted values of the ordinary kind: all, or the faster ones. */
static size_t count_ordinary(const uint64_t *sorted, size_t cnt)
{
	size_t split = best_split(sorted, cnt), rest = cnt - split;
	double fast = percentile_of(sorted, split, 50), slow = percentile_of(sorted + split, rest, 50);
	/* In logarithms, a spread is a share of the median. */
	double spreads =
		log1p(median_distance(sorted, split) / fast) + log1p(median_distance(sorted + split, rest) / slow);

	return slow > TIMES_ORDINARY * fast && log(slow / fast) > TIMES_SPREAD * spreads ? split : cnt;
}

struct slow_rule slow__rule(uint64_t *durations_ns, size_t cnt)
{
	struct slow_rule rule = {.limit_ns = UINT64_MAX};
	size_t ordinary = cnt;
	double limit;

	qsort(durations_ns, cnt, sizeof(*durations_ns), compare__u64);
	rule.median_ns = percentile_of(durations_ns, cnt, 50);
	rule.p99_ns = percentile_of(durations_ns, cnt, 99);
	rule.min_ns = durations_ns[0];
	rule.max_ns = durations_ns[cnt - 1];
	if (cnt >= SLOW_MIN_CNT)
		ordinary = count_ordinary(durations_ns, cnt);
	rule.ordinary_ns = percentile_of(durations_ns, ordinary, 50);
	if (cnt < SLOW_MIN_CNT)
		return rule;
	limit = fmax(TIMES_ORDINARY * rule.ordinary_ns,
		     (double)rule.ordinary_ns + TIMES_SPREAD * (double)median_distance(durations_ns, ordinary));
	rule.limit_ns = limit < 0x1p63 ? (uint64_t)limit : UINT64_MAX;
	return rule;
}
