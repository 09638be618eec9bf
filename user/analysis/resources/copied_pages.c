// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/copied_pages.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "user/analysis/resources/growth.h"
#include "user/analysis/resources/machine.h"

#define PAGE_BYTES    4096.0
#define LEAST_BYTES_S 1e6
#define OWN_GROWTH    (1 / 3.0)
#define HALF          0.5

/* How much more memory the machine uses each second, if that is so all the time; else 0. */
static int machine_growth(const struct machine_samples *all, const uint64_t window_ns[2], double *per_s)
{
	struct growth_point *points = calloc(all->cnt + 1, sizeof(*points));
	struct growth growth = {0};
	size_t cnt = 0;
	int err;

	*per_s = 0;
	if (!points)
		return -ENOMEM;
	for (size_t i = 0; i < all->cnt; i++) {
		const struct rec_machine *at = &all->items[i];

		if (at->memory_bytes && at->time_ns >= window_ns[0] && at->time_ns <= window_ns[1])
			points[cnt++] =
				(struct growth_point){(at->time_ns - window_ns[0]) / 1e9, -(double)at->available_bytes};
	}
	err = growth__find(points, cnt, &growth);
	free(points);
	if (growth.steady)
		*per_s = growth.per_s;
	return err;
}

/* By how much the process grew each second in the window; below 0: it shrank. */
static double own_growth(const struct resource_samples *all, const uint64_t window_ns[2])
{
	const struct rec_resources *first = NULL, *last = NULL;

	for (size_t i = 0; i < all->cnt; i++) {
		const struct rec_resources *at = &all->items[i];

		if (!(at->known & RESOURCES_MEMORY) || at->time_ns < window_ns[0] || at->time_ns > window_ns[1])
			continue;
		first = first ?: at;
		last = at;
	}
	return first && last->time_ns > first->time_ns
		       ? ((double)last->rss_bytes - first->rss_bytes) / ((last->time_ns - first->time_ns) / 1e9)
		       : 0;
}

int copied_pages__find(struct job *job, const struct step_track *tracks, size_t track_cnt,
		       const struct resource_use *uses, size_t cnt, struct copied_pages *out)
{
	uint64_t window_ns[2];
	double per_s, grown = 0, faults_s = 0;
	struct machine_samples machine;
	int err;

	*out = (struct copied_pages){0};
	if (!cnt || !track_cnt)
		return 0;
	resources__set_window(tracks, track_cnt, window_ns);
	machine = machine_samples__of(job, uses[0].pid);
	err = machine_growth(&machine, window_ns, &per_s);
	for (size_t i = 0; i < cnt; i++) {
		struct resource_samples all = resource_samples__of(job, uses[i].pid);

		grown += own_growth(&all, window_ns);
		if (uses[i].role != ROLE_MAIN)
			faults_s += fmax(0, uses[i].rates.minor_faults_per_s);
	}
	if (!err && per_s >= LEAST_BYTES_S && grown < OWN_GROWTH * per_s && faults_s * PAGE_BYTES >= HALF * per_s)
		*out = (struct copied_pages){.per_s = per_s, .faults_s = faults_s};
	return err;
}
