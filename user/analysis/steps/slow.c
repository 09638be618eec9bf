// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/steps/slow.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/percentile.h"

/* ---- which are slow ---- */

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

/* ---- in what rhythm ---- */

#define MATCHED_MIN 4
#define ALIKE_MIN   3 /* for steps that do the same: all follow the rhythm, and none is missing */
#define SHARE       0.75

/* The most frequent of the sorted values, and its count. */
static uint64_t most_frequent(const uint64_t *sorted, size_t cnt, size_t *times)
{
	uint64_t best = 0;

	*times = 0;
	for (size_t i = 0, from = 0; i < cnt; i++) {
		if (sorted[i] != sorted[from])
			from = i;
		if (i - from + 1 > *times) {
			*times = i - from + 1;
			best = sorted[i];
		}
	}
	return best;
}

static bool is_enough(size_t matched, size_t cnt, uint64_t expected)
{
	return (matched >= MATCHED_MIN || (matched == cnt && matched == expected)) && matched >= SHARE * cnt &&
	       matched >= SHARE * expected;
}

/*
 * Steps that share the most frequent remainder follow the rhythm. Additional steps in between,
 * which are chance, do not disturb the others.
 */
static struct rhythm find_strict(const uint64_t *indexes, size_t cnt, uint64_t period, uint64_t *scratch)
{
	struct rhythm rhythm = {0};
	uint64_t rest, expected;

	for (size_t i = 0; i < cnt; i++)
		scratch[i] = indexes[i] % period;
	qsort(scratch, cnt, sizeof(*scratch), compare__u64);
	rest = most_frequent(scratch, cnt, &rhythm.matched);
	expected = (indexes[cnt - 1] - rest) / period - (indexes[0] - rest + period - 1) / period + 1;
	if (is_enough(rhythm.matched, cnt, expected))
		rhythm.shortest = rhythm.longest = period;
	return rhythm;
}

static struct rhythm find_rhythm(const uint64_t *indexes, size_t cnt, uint64_t *scratch)
{
	size_t times, below_times = 0, above_times = 0, above;
	struct rhythm rhythm = {0};
	uint64_t period;

	for (size_t i = 0; i + 1 < cnt; i++)
		scratch[i] = indexes[i + 1] - indexes[i];
	qsort(scratch, cnt - 1, sizeof(*scratch), compare__u64);
	period = most_frequent(scratch, cnt - 1, &times);
	for (size_t i = 0; i + 1 < cnt; i++) {
		below_times += scratch[i] == period - 1;
		above_times += scratch[i] == period + 1;
	}
	above = above_times > below_times;
	if (period > 1)
		rhythm = find_strict(indexes, cnt, period, scratch);
	times += above ? above_times : below_times;
	if (!rhythm.shortest && period > 2 && times + 1 >= MATCHED_MIN && times >= SHARE * (cnt - 1))
		rhythm = (struct rhythm){period - !above, period + above, times + 1};
	return rhythm;
}

struct rhythm rhythm__find(const uint64_t *indexes, const uint64_t *lost_ns, size_t cnt, bool alike)
{
	uint64_t *costly = cnt >= (alike ? ALIKE_MIN : MATCHED_MIN) ? malloc(2 * cnt * sizeof(*costly)) : NULL,
		 *scratch, least;
	struct rhythm rhythm = {0};
	size_t costly_cnt = 0;

	if (!costly)
		return rhythm;
	scratch = costly + cnt;
	memcpy(scratch, lost_ns, cnt * sizeof(*scratch));
	qsort(scratch, cnt, sizeof(*scratch), compare__u64);
	least = scratch[cnt > MATCHED_MIN ? cnt - MATCHED_MIN : 0] / 2;
	for (size_t i = 0; i < cnt; i++)
		if (lost_ns[i] >= least)
			costly[costly_cnt++] = indexes[i];
	rhythm = find_rhythm(costly, costly_cnt, scratch);
	if (!rhythm.shortest && costly_cnt < cnt) /* a few steps lost far more than what they all share */
		rhythm = find_rhythm(indexes, cnt, scratch);
	free(costly);
	return rhythm;
}

static const char *ordinal_end(uint64_t number)
{
	uint64_t last = number % 10;

	if (number / 10 % 10 == 1)
		return "th";
	return last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
}

char *rhythm__text(const struct rhythm *rhythm, size_t cnt)
{
	char *text, some[32] = "", other[32] = "";

	if (!rhythm->shortest)
		return strdup("");
	if (rhythm->matched < SHARE * cnt)
		snprintf(some, sizeof(some), "%zu of them ", rhythm->matched);
	if (rhythm->shortest != rhythm->longest)
		snprintf(other, sizeof(other), " or %" PRIu64 "%s", rhythm->longest, ordinal_end(rhythm->longest));
	if (asprintf(&text, "%severy %" PRIu64 "%s%s step", some, rhythm->shortest, ordinal_end(rhythm->shortest),
		     other) < 0)
		return NULL;
	return text;
}
