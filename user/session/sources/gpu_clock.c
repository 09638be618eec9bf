// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/gpu_clock.h"

#include <string.h>

#define WIDTH_MAX_NS 1000000
/* The most that the two clocks may drift apart: NTP may slew CUPTI's clock by 500 ppm. */
#define DRIFT_MAX 1000 /* 1/1000 of the elapsed time */
#define SLACK_NS  10000

static uint64_t absolute_difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static bool is_consistent(const struct gpu_clock_pair *before, const struct gpu_clock_pair *pair)
{
	uint64_t cupti_ns = pair->cupti_ns - before->cupti_ns, ns = pair->ns - before->ns;

	return pair->cupti_ns > before->cupti_ns && pair->ns > before->ns &&
	       absolute_difference(cupti_ns, ns) <= ns / DRIFT_MAX + (before->width_ns + pair->width_ns) / 2 + SLACK_NS;
}

bool gpu_clock__add(struct gpu_clock *clock, const struct gpu_ring_clock *rec, uint64_t from_ns, uint64_t until_ns)
{
	struct gpu_clock_pair pair = {.cupti_ns = rec->cupti_ns, .width_ns = rec->behind_ns - rec->before_ns};

	if (rec->before_ns < from_ns || rec->behind_ns > until_ns || rec->behind_ns < rec->before_ns ||
	    pair.width_ns > WIDTH_MAX_NS || !rec->cupti_ns)
		return false;
	pair.ns = rec->before_ns + pair.width_ns / 2;
	if (clock->cnt && !is_consistent(&clock->pairs[clock->cnt - 1], &pair)) {
		if (!clock->has_outlier || !is_consistent(&clock->outlier, &pair)) {
			clock->outlier = pair;
			clock->has_outlier = true;
			return false;
		}
		clock->pairs[0] = clock->outlier;
		clock->cnt = 1;
	}
	clock->has_outlier = false;
	if (clock->cnt == GPU_CLOCK_PAIRS) {
		clock->cnt /= 2;
		memmove(clock->pairs, clock->pairs + clock->cnt, clock->cnt * sizeof(*clock->pairs));
	}
	clock->pairs[clock->cnt++] = pair;
	return true;
}

bool gpu_clock__translate(const struct gpu_clock *clock, uint64_t cupti_ns, uint64_t *ns)
{
	const struct gpu_clock_pair *a, *b;
	uint32_t i;

	if (!clock->cnt)
		return false;
	for (i = clock->cnt; i > 1 && clock->pairs[i - 1].cupti_ns > cupti_ns;)
		i--;
	a = &clock->pairs[i - 1];
	b = i < clock->cnt && cupti_ns >= a->cupti_ns ? a + 1 : NULL;
	if (b)
		*ns = a->ns + (uint64_t)((double)(cupti_ns - a->cupti_ns) * (double)(b->ns - a->ns) /
					 (b->cupti_ns - a->cupti_ns));
	else if (cupti_ns < a->cupti_ns && a->cupti_ns - cupti_ns > a->ns)
		return false;
	else
		*ns = a->ns + (cupti_ns - a->cupti_ns);
	return true;
}

uint64_t gpu_clock__last(const struct gpu_clock *clock)
{
	return clock->cnt ? clock->pairs[clock->cnt - 1].cupti_ns : 0;
}

uint64_t gpu_clock__last_ns(const struct gpu_clock *clock)
{
	return clock->cnt ? clock->pairs[clock->cnt - 1].ns : 0;
}
