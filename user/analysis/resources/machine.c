// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/machine.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/search.h"
#include "user/model/resources.h"

/* Of what is used of all; a recording may hold any numbers. */
static double used_percent(uint64_t all, uint64_t left)
{
	return all > left ? 100.0 * (all - left) / all : 0;
}

static double memory_percent(const struct rec_machine *sample)
{
	return used_percent(sample->memory_bytes, sample->available_bytes);
}

static double cpu_percent(double busy_ns, double idle_ns)
{
	busy_ns = fmax(0, busy_ns);
	idle_ns = fmax(0, idle_ns);
	return busy_ns + idle_ns > 0 ? 100 * busy_ns / (busy_ns + idle_ns) : -1;
}

struct machine_percent machine_percent__between(const struct rec_machine *a, const struct rec_machine *b)
{
	return (struct machine_percent){
		.cpu = b ? cpu_percent((double)b->busy_ns - a->busy_ns, (double)b->idle_ns - a->idle_ns) : -1,
		.memory = memory_percent(a),
		.swap = used_percent(a->swap_bytes, a->swap_free_bytes),
	};
}

/* NULL: the recording has one host only. */
static const char *host_of(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);
	size_t cnt;

	return target ? job__target_host(job, target - job__targets(job, &cnt)) : NULL;
}

static bool same_host(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* The samples with the pid of the first one; *all is then what follows. */
static struct machine_samples next_part(struct machine_samples *all)
{
	struct machine_samples part = {all->items, 0};

	while (part.cnt < all->cnt && part.items[part.cnt].pid == part.items->pid)
		part.cnt++;
	all->items += part.cnt;
	all->cnt -= part.cnt;
	return part;
}

static struct machine_samples all_of(struct job *job)
{
	struct machine_samples all;

	all.items = resources__machines(job__resources(job), &all.cnt);
	return all;
}

static struct machine_use use_of(const struct machine_samples *samples, const char *host)
{
	const struct rec_machine *first = samples->items, *last = &samples->items[samples->cnt - 1];
	struct machine_use use = {
		.host = host,
		.last = last,
		.sample_cnt = samples->cnt,
		.seconds = (last->time_ns - first->time_ns) / 1e9,
		.mean.cpu = cpu_percent((double)last->busy_ns - first->busy_ns, (double)last->idle_ns - first->idle_ns),
	};

	for (size_t i = 0; i < samples->cnt; i++) {
		use.mean.memory += memory_percent(&first[i]) / samples->cnt;
		use.mean.swap += used_percent(first[i].swap_bytes, first[i].swap_free_bytes) / samples->cnt;
		use.memory_max = fmax(use.memory_max, memory_percent(&first[i]));
	}
	return use;
}

int machine_uses__new(struct job *job, struct machine_use **out, size_t *cnt)
{
	struct machine_samples all = all_of(job);
	size_t part_cnt = 0;

	for (struct machine_samples rest = all; rest.cnt; part_cnt++)
		next_part(&rest);
	*cnt = 0;
	*out = calloc(part_cnt + 1, sizeof(**out));
	while (*out && all.cnt) {
		struct machine_samples part = next_part(&all);
		const char *host = host_of(job, part.items->pid);
		size_t at = 0;

		while (at < *cnt && !same_host((*out)[at].host, host)) /* two recordings of one host */
			at++;
		if (at == *cnt)
			(*out)[(*cnt)++] = use_of(&part, host);
	}
	return *out ? 0 : -ENOMEM;
}

struct machine_samples machine_samples__of(struct job *job, uint32_t pid)
{
	struct machine_samples all = all_of(job);
	const char *host = host_of(job, pid);

	while (all.cnt) {
		struct machine_samples part = next_part(&all);

		if (same_host(host, host_of(job, part.items->pid)))
			return part;
	}
	return all;
}

/* A sum at an instant between two samples. */
static double sum_at(const struct rec_machine *a, uint64_t time_ns, uint64_t x, uint64_t y)
{
	uint64_t ns = a[1].time_ns - a->time_ns;

	return x + (y > x && ns ? (double)(time_ns - a->time_ns) / ns * (y - x) : 0);
}

bool machine_samples__span(const struct machine_samples *samples, uint64_t start_ns, uint64_t end_ns,
			   struct machine_percent *out)
{
	const struct rec_machine *items = samples->items, *a, *b;
	size_t from = SEARCH(i, 0, samples->cnt, items[i].time_ns <= start_ns);
	size_t to = SEARCH(i, 0, samples->cnt, items[i].time_ns <= end_ns);

	if (!from || to >= samples->cnt || end_ns <= start_ns)
		return false;
	a = &items[from - 1];
	b = &items[to - 1];
	out->cpu = cpu_percent(
		sum_at(b, end_ns, b->busy_ns, b[1].busy_ns) - sum_at(a, start_ns, a->busy_ns, a[1].busy_ns),
		sum_at(b, end_ns, b->idle_ns, b[1].idle_ns) - sum_at(a, start_ns, a->idle_ns, a[1].idle_ns));
	out->memory = memory_percent(b);
	out->swap = used_percent(b->swap_bytes, b->swap_free_bytes);
	return true;
}
