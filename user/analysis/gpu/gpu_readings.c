// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/gpu/gpu_readings.h"

#include "user/lib/search.h"
#include "user/model/gpu.h"

struct gpu_readings gpu_readings__of(const struct job *job, const struct gpu *gpu)
{
	struct gpu_readings all = {0};

	/* Readings do not say on which machine they were taken. */
	if (!job__target_host(job, 0))
		all.items = gpu__usages(gpu, &all.cnt);
	return all;
}

struct gpu_readings gpu_readings__next(struct gpu_readings *all)
{
	struct gpu_readings part = {all->items, 0};

	while (part.cnt < all->cnt && part.items[part.cnt].device == part.items->device)
		part.cnt++;
	all->items += part.cnt;
	all->cnt -= part.cnt;
	return part;
}

/* from: the first reading behind start_ns. The readings up to `to` cover the time until end_ns. */
static double mean_busy(const struct rec_gpu_usage *items, size_t from, size_t to, uint64_t start_ns, uint64_t end_ns)
{
	double sum = 0, known_ns = 0;

	for (size_t i = from; i <= to; i++) {
		uint64_t begin = items[i - 1].time_ns > start_ns ? items[i - 1].time_ns : start_ns,
			 end = items[i].time_ns < end_ns ? items[i].time_ns : end_ns;

		if (items[i].busy_percent == GPU_UNKNOWN || end <= begin)
			continue;
		sum += (double)items[i].busy_percent * (end - begin);
		known_ns += end - begin;
	}
	return known_ns > 0 ? sum / known_ns : -1;
}

bool gpu_readings__span(const struct gpu_readings *readings, uint64_t start_ns, uint64_t end_ns,
			struct gpu_reading *out)
{
	const struct rec_gpu_usage *items = readings->items, *last;
	size_t from = SEARCH(i, 0, readings->cnt, items[i].time_ns <= start_ns),
	       to = SEARCH(i, 0, readings->cnt, items[i].time_ns < end_ns);

	if (!from || to >= readings->cnt || end_ns <= start_ns)
		return false;
	last = &items[to - 1];
	*out = (struct gpu_reading){
		.busy_percent = mean_busy(items, from, to, start_ns, end_ns),
		.memory_used_bytes = last->memory_bytes ? (double)last->memory_used_bytes : -1,
		.power_w = gpu_reading__value(last->power_mw, 1e-3),
		.temperature_c = gpu_reading__value(last->temperature_c, 1),
	};
	return true;
}
