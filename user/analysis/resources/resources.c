// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/resources.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/resources/growth.h"
#include "user/model/resources.h"

#define GROWTH_MIN_S     10    /* seconds of samples */
#define GROWTH_MIN_BYTES 4e6   /* less is said to be none, */
#define GROWTH_MIN_SHARE 0.005 /* and less than this share of its memory */
#define FAULTS_PER_S     10    /* major ones: less is no trouble */
#define UNKNOWN          -1.0

/* ---- rates ---- */

/* A sum between two samples, at an instant. */
static double sum_at(const struct rec_resources *a, const struct rec_resources *b, uint64_t time_ns, uint64_t x,
		     uint64_t y)
{
	double share = b->time_ns > a->time_ns ? (double)(time_ns - a->time_ns) / (b->time_ns - a->time_ns) : 0;

	return x + (y > x ? share * (y - x) : 0);
}

/* The samples around two instants: a0 <= from <= a1, b0 <= to <= b1. */
struct between {
	const struct rec_resources *a0, *a1, *b0, *b1;
	uint64_t from, to;
};

#define RATE(of, field)                                                                              \
	(fmax(0, sum_at((of)->b0, (of)->b1, (of)->to, (of)->b0->field, (of)->b1->field) -            \
			 sum_at((of)->a0, (of)->a1, (of)->from, (of)->a0->field, (of)->a1->field)) / \
	 (((of)->to - (of)->from) / 1e9))

static bool all_know(const struct between *of, unsigned int what)
{
	return of->a0->known & of->a1->known & of->b0->known & of->b1->known & what;
}

static struct resource_rates rates_of(const struct between *of)
{
	bool disk = all_know(of, RESOURCES_DISK), net = all_know(of, RESOURCES_NET);

	if (of->to <= of->from)
		return (struct resource_rates){UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN};
	return (struct resource_rates){
		.cpu_percent = 100 * (RATE(of, user_ns) + RATE(of, system_ns)) / 1e9,
		.minor_faults_per_s = RATE(of, minor_faults),
		.major_faults_per_s = RATE(of, major_faults),
		.read_per_s = disk ? RATE(of, read_bytes) : UNKNOWN,
		.written_per_s = disk ? RATE(of, written_bytes) : UNKNOWN,
		.received_per_s = net ? RATE(of, received_bytes) : UNKNOWN,
		.sent_per_s = net ? RATE(of, sent_bytes) : UNKNOWN,
	};
}

struct resource_rates resource_rates__between(const struct rec_resources *a, const struct rec_resources *b)
{
	const struct between whole = {a, a, b, b, a->time_ns, b->time_ns};

	return rates_of(&whole);
}

/* The first and the last sample that know it, of sorted ones; cnt 0: fewer than two do. */
static struct resource_samples known_part(const struct resource_samples *all, unsigned int what)
{
	size_t from = 0, to = all->cnt;

	while (from < to && (all->items[from].known & what) != what)
		from++;
	while (to > from && (all->items[to - 1].known & what) != what)
		to--;
	return (struct resource_samples){&all->items[from], to - from > 1 ? to - from : 0};
}

static struct resource_rates whole_rates(const struct resource_samples *all, unsigned int what)
{
	struct resource_samples part = known_part(all, what);

	if (!part.cnt)
		return (struct resource_rates){UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN};
	return resource_rates__between(part.items, &part.items[part.cnt - 1]);
}

/* ---- one process ---- */

static void add_memory(struct resource_use *use, const struct rec_resources *sample)
{
	if (sample->known & RESOURCES_MEMORY) {
		if (!use->has_memory || sample->rss_bytes < use->rss_min_bytes)
			use->rss_min_bytes = sample->rss_bytes;
		if (sample->rss_bytes > use->rss_max_bytes)
			use->rss_max_bytes = sample->rss_bytes;
		use->rss_last_bytes = sample->rss_bytes;
		use->shared_last_bytes = sample->shared_bytes;
		use->has_memory = true;
	}
	if (sample->known & RESOURCES_SWAP) {
		if (sample->swap_bytes > use->swap_max_bytes)
			use->swap_max_bytes = sample->swap_bytes;
		use->swap_last_bytes = sample->swap_bytes;
		use->has_swap = true;
	}
}

/* When, at this rate, the memory ends that the last look at it found. */
static void set_full(const struct resource_samples *all, struct resource_use *use)
{
	for (size_t i = all->cnt; i > 0; i--) {
		const struct rec_resources *sample = &all->items[i - 1];

		if (!(sample->known & RESOURCES_LEFT))
			continue;
		use->full_s = sample->left_bytes / use->growth_per_s;
		use->of_cgroup = sample->known & RESOURCES_LEFT_CGROUP;
		return;
	}
}

static int set_growth(const struct resource_samples *all, const uint64_t window_ns[2], struct resource_use *use)
{
	struct growth_point *points = calloc(all->cnt + 1, sizeof(*points));
	struct growth growth = {0};
	size_t cnt = 0;
	double seconds;
	int err;

	if (!points)
		return -ENOMEM;
	for (size_t i = 0; i < all->cnt; i++)
		if (all->items[i].known & RESOURCES_MEMORY && all->items[i].time_ns >= window_ns[0] &&
		    all->items[i].time_ns <= window_ns[1])
			points[cnt++] = (struct growth_point){(all->items[i].time_ns - window_ns[0]) / 1e9,
							      all->items[i].rss_bytes};
	seconds = cnt ? points[cnt - 1].s - points[0].s : 0;
	err = seconds >= GROWTH_MIN_S ? growth__find(points, cnt, &growth) : 0;
	free(points);
	if (growth.steady && growth.per_s * seconds >= fmax(GROWTH_MIN_BYTES, GROWTH_MIN_SHARE * use->rss_last_bytes)) {
		use->growth_per_s = growth.per_s;
		use->growth_least_per_s = growth.least_per_s;
		use->growth_most_per_s = growth.most_per_s;
		set_full(all, use);
	}
	return err;
}

static int fill_use(struct job *job, const struct resource_samples *all, const uint64_t window_ns[2],
		    struct resource_use *use)
{
	const struct rec_target *target = job__target(job, all->items->pid);
	struct resource_rates disk = whole_rates(all, RESOURCES_DISK), net = whole_rates(all, RESOURCES_NET);

	*use = (struct resource_use){
		.pid = all->items->pid,
		.role = target ? target->role : ROLE_CHILD,
		.sample_cnt = all->cnt,
		.seconds = (all->items[all->cnt - 1].time_ns - all->items->time_ns) / 1e9,
		.rates = whole_rates(all, 0),
		.limits = resources__limits(job__resources(job), all->items->pid),
		.full_s = UNKNOWN,
	};
	if (use->limits)
		cpu_throttle__find(job, use->pid, &use->throttle);
	use->rates.read_per_s = disk.read_per_s;
	use->rates.written_per_s = disk.written_per_s;
	use->rates.received_per_s = net.received_per_s;
	use->rates.sent_per_s = net.sent_per_s;
	for (size_t i = 0; i < all->cnt; i++)
		add_memory(use, &all->items[i]);
	return set_growth(all, window_ns, use);
}

static int compare_uses(const void *a, const void *b)
{
	const struct resource_use *x = a, *y = b;
	double x_s = x->rates.cpu_percent * x->seconds, y_s = y->rates.cpu_percent * y->seconds;

	if ((x->role == ROLE_MAIN) != (y->role == ROLE_MAIN))
		return x->role == ROLE_MAIN ? -1 : 1;
	if (x_s != y_s)
		return x_s < y_s ? 1 : -1;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

void resources__set_window(const struct step_track *tracks, size_t cnt, uint64_t window_ns[2])
{
	window_ns[0] = cnt ? UINT64_MAX : 0;
	window_ns[1] = cnt ? 0 : UINT64_MAX;
	for (size_t i = 0; i < cnt; i++) {
		const struct step_track *track = &tracks[i];

		if (!track->step_cnt)
			continue;
		if (track->steps[0].start_ns < window_ns[0])
			window_ns[0] = track->steps[0].start_ns;
		if (track->steps[track->step_cnt - 1].end_ns > window_ns[1])
			window_ns[1] = track->steps[track->step_cnt - 1].end_ns;
	}
}

int resource_uses__new(struct job *job, const struct step_track *tracks, size_t track_cnt, struct resource_use **out,
		       size_t *cnt)
{
	struct resource_samples all;
	uint64_t window_ns[2];
	size_t to, total = 0;
	int err = 0;

	*cnt = 0;
	*out = NULL;
	resources__set_window(tracks, track_cnt, window_ns);
	all.items = resources__samples(job__resources(job), &all.cnt);
	for (size_t i = 0; i < all.cnt; i++)
		total += !i || all.items[i].pid != all.items[i - 1].pid;
	*out = calloc(total + 1, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	for (size_t from = 0; from < all.cnt && !err; from = to) {
		struct resource_samples part;

		for (to = from; to < all.cnt && all.items[to].pid == all.items[from].pid; to++)
			;
		part = (struct resource_samples){&all.items[from], to - from};
		err = fill_use(job, &part, window_ns, &(*out)[(*cnt)++]);
	}
	if (err) {
		free(*out);
		*out = NULL;
		*cnt = 0;
	} else {
		qsort(*out, *cnt, sizeof(**out), compare_uses);
	}
	return err;
}

enum resource_trouble resource_use__trouble(const struct resource_use *use)
{
	return use->growth_per_s > 0                           ? TROUBLE_GROWTH
	       : use->swap_last_bytes                          ? TROUBLE_SWAP
	       : use->rates.major_faults_per_s >= FAULTS_PER_S ? TROUBLE_FAULTS
							       : TROUBLE_NONE;
}

/* ---- steps ---- */

struct resource_samples resource_samples__of(struct job *job, uint32_t pid)
{
	size_t cnt, from = 0, to;
	const struct rec_resources *items = resources__samples(job__resources(job), &cnt);

	while (from < cnt && items[from].pid != pid)
		from++;
	for (to = from; to < cnt && items[to].pid == pid; to++)
		;
	return (struct resource_samples){from < cnt ? &items[from] : NULL, to - from};
}

/* The number of samples up to an instant. O(log). */
static size_t samples_until(const struct resource_samples *samples, uint64_t time_ns)
{
	size_t low = 0, high = samples->cnt;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (samples->items[middle].time_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool resource_samples__span(const struct resource_samples *samples, uint64_t start_ns, uint64_t end_ns,
			    struct resource_span *out)
{
	size_t from = samples_until(samples, start_ns), to = samples_until(samples, end_ns);
	const struct rec_resources *items = samples->items, *last;
	struct between of;

	if (!from || to >= samples->cnt || end_ns <= start_ns)
		return false;
	last = &items[to - 1];
	of = (struct between){&items[from - 1], &items[from], last, &items[to], start_ns, end_ns};
	out->rates = rates_of(&of);
	out->has_memory = last->known & RESOURCES_MEMORY;
	out->has_swap = last->known & RESOURCES_SWAP;
	out->rss_bytes = last->rss_bytes;
	out->shared_bytes = last->shared_bytes;
	out->swap_bytes = last->swap_bytes;
	return true;
}
