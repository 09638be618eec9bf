// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/live/pace.h"

#include "user/lib/percentile.h"

static uint64_t median(const uint64_t *values, size_t cnt)
{
	uint64_t sorted[PACE_SAMPLES > PACE_WINDOWS ? PACE_SAMPLES : PACE_WINDOWS];

	return percentile__of(values, cnt, 50, sorted);
}

static void keep_step(struct pace *pace, uint64_t duration_ns)
{
	if (pace->skipped++ % pace->stride)
		return;
	if (pace->cnt == PACE_SAMPLES) {
		pace->cnt = 0;
		for (int i = 0; i < PACE_SAMPLES; i += 2)
			pace->samples[pace->cnt++] = pace->samples[i];
		pace->stride *= 2;
		pace->skipped = 1;
	}
	pace->samples[pace->cnt++] = duration_ns;
}

/* Longer than usual by so many half percents? */
static bool is_longer(const struct pace_change *change, uint32_t half_percents)
{
	return change->now_ns * 200 > change->usual_ns * (200 + half_percents);
}

/* A window has ended. True: the process is slower now. */
static bool compare_windows(struct pace *pace, uint64_t window_ns, uint32_t percent)
{
	struct pace_change *change = &pace->change;

	if (!change->usual_ns) {
		if (pace->windows < PACE_WINDOWS)
			return false;
		*change = (struct pace_change){.usual_ns = median(pace->medians, PACE_WINDOWS),
					       .since_ns = pace->begin_ns,
					       .since_step = pace->first_step};
		pace->longer = 0;
	}
	change->now_ns = window_ns;
	pace->longer++;
	if (!is_longer(change, pace->longer <= 2 ? 2 * percent : percent))
		change->usual_ns = 0;
	else if (pace->longer > 2 + PACE_WINDOWS)
		change->usual_ns = pace->windows = 0;
	return change->usual_ns && pace->longer == 2;
}

bool pace__add(struct pace *pace, uint64_t step, uint64_t end_ns, uint64_t duration_ns, uint32_t percent)
{
	uint64_t window_ns;
	bool slower;

	if (!pace->stride) {
		pace->stride = 1;
		pace->cnt = pace->skipped = 0;
		pace->steps = 0;
		pace->first_step = step;
		pace->begin_ns = end_ns > duration_ns ? end_ns - duration_ns : 0;
	}
	keep_step(pace, duration_ns);
	if (++pace->steps < PACE_STEPS_MIN || end_ns < pace->begin_ns + PACE_NS)
		return false;
	window_ns = median(pace->samples, pace->cnt);
	slower = compare_windows(pace, window_ns, percent);
	if (!pace->change.usual_ns)
		pace->medians[pace->windows++ % PACE_WINDOWS] = window_ns;
	pace->stride = 0;
	return slower;
}
