// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/resources.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/resources/machine.h"
#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/model/resources.h"

/* ---- does a value grow ---- */

#define BLOCKS_MAX 128  /* 8,128 slopes */
#define QUANTILE   2.58 /* of the normal distribution: 99 % */
#define THIRD      0.25 /* of the slope: least slope of each third of the time */
#define LAST_THIRD 0.5  /* what has begun to level off is no steady growth */

static double median_of(double *values, size_t cnt)
{
	qsort(values, cnt, sizeof(*values), compare__double);
	return values[percentile__index(cnt, 50)];
}

/* Points at most BLOCKS_MAX, each the median of its block. 0 or -ENOMEM. */
static int make_blocks(const struct growth_point *points, size_t cnt, struct growth_point *blocks, size_t *block_cnt)
{
	size_t blocks_of = cnt < BLOCKS_MAX ? cnt : BLOCKS_MAX;
	double *values = calloc(cnt + 1, sizeof(*values));

	if (!values)
		return -ENOMEM;
	for (size_t i = 0; i < blocks_of; i++) {
		size_t from = cnt * i / blocks_of, to = cnt * (i + 1) / blocks_of;

		for (size_t k = from; k < to; k++)
			values[k - from] = points[k].value;
		blocks[i].s = (points[from].s + points[to - 1].s) / 2;
		blocks[i].value = median_of(values, to - from);
	}
	*block_cnt = blocks_of;
	free(values);
	return 0;
}

/* The slopes between any two points, sorted. Returns their number. */
static size_t make_slopes(const struct growth_point *points, size_t cnt, double *slopes)
{
	size_t slope_cnt = 0;

	for (size_t i = 0; i < cnt; i++)
		for (size_t k = i + 1; k < cnt; k++)
			if (points[k].s > points[i].s)
				slopes[slope_cnt++] = (points[k].value - points[i].value) / (points[k].s - points[i].s);
	qsort(slopes, slope_cnt, sizeof(*slopes), compare__double);
	return slope_cnt;
}

static double slope_of(const struct growth_point *points, size_t cnt, double *slopes)
{
	size_t slope_cnt = make_slopes(points, cnt, slopes);

	return slope_cnt ? slopes[percentile__index(slope_cnt, 50)] : 0;
}

static void find_in(const struct growth_point *points, size_t cnt, double *slopes, struct growth *out)
{
	size_t slope_cnt = make_slopes(points, cnt, slopes);
	double error = QUANTILE * sqrt(cnt * (cnt - 1.0) * (2.0 * cnt + 5) / 18);
	size_t least = slope_cnt > error ? (slope_cnt - error) / 2 : 0;

	if (slope_cnt < cnt) /* points at the same time */
		return;
	out->per_s = slopes[percentile__index(slope_cnt, 50)];
	out->least_per_s = slopes[least];
	out->most_per_s = slopes[slope_cnt - 1 - least];
	out->steady = out->least_per_s > 0;
	for (int third = 0; third < 3 && out->steady; third++) {
		size_t from = cnt * third / 3, to = cnt * (third + 1) / 3;

		out->steady =
			slope_of(&points[from], to - from, slopes) >= (third == 2 ? LAST_THIRD : THIRD) * out->per_s;
	}
}

int growth__find(const struct growth_point *points, size_t cnt, struct growth *out)
{
	struct growth_point blocks[BLOCKS_MAX] = {0};
	size_t block_cnt;
	double *slopes;
	int err;

	memset(out, 0, sizeof(*out));
	if (cnt < GROWTH_MIN_CNT)
		return 0;
	slopes = calloc(BLOCKS_MAX * (BLOCKS_MAX - 1) / 2, sizeof(*slopes));
	err = slopes ? make_blocks(points, cnt, blocks, &block_cnt) : -ENOMEM;
	if (!err)
		find_in(blocks, block_cnt, slopes, out);
	free(slopes);
	return err;
}

/* ---- pages that workers copy ---- */

#define PAGE_BYTES      4096.0
#define LEAST_BYTES_S   1e6
#define OWN_GROWTH      (1 / 3.0)
#define COPIED_LEAST    6    /* pages that were looked at */
#define COPIED_LATE     0.15 /* of them in each half of the time, or it is not so all the time */
#define COPIED_LEAST_NS 4000000000ULL
#define HALF            0.5

/* From the first step of any track to the last, since imports and the end are no training; without tracks, all time. */
static void resources__set_window(const struct step_track *tracks, size_t cnt, uint64_t window_ns[2])
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

/* The records of a process in the window that make sense together: those are only ever more. */
struct copies {
	const struct rec_copied *first, *middle, *last;
};

static bool copies__find(struct job *job, uint32_t pid, const uint64_t window_ns[2], struct copies *out)
{
	size_t cnt;
	const struct rec_copied *all = resources__copies(job__resources(job), &cnt); /* by pid and time */
	uint64_t middle_ns = window_ns[0] + (window_ns[1] - window_ns[0]) / 2;

	*out = (struct copies){0};
	for (size_t i = 0; i < cnt; i++) {
		if (all[i].pid != pid || all[i].time_ns < window_ns[0] || all[i].time_ns > window_ns[1])
			continue;
		out->first = out->first ?: &all[i];
		if (all[i].copied > all[i].pages || all[i].pages != out->first->pages ||
		    all[i].each_bytes != out->first->each_bytes)
			return false;
		if (all[i].time_ns <= middle_ns)
			out->middle = &all[i];
		out->last = &all[i];
	}
	return out->first && out->middle;
}

static double more_pages(const struct rec_copied *a, const struct rec_copied *b)
{
	return b->copied > a->copied ? b->copied - a->copied : 0;
}

/* Adds up the pages of all processes. Returns whether those of one were looked at. */
static bool find_counted(struct job *job, const uint64_t window_ns[2], const struct resource_use *uses, size_t cnt,
			 struct copied_pages *out)
{
	double pages = 0, late = 0, per_s[2] = {0};
	bool looked = false;

	for (size_t i = 0; i < cnt; i++) {
		struct copies of;

		bool sound = copies__find(job, uses[i].pid, window_ns, &of);

		looked = looked || of.first;
		if (!sound || of.last->time_ns - of.first->time_ns < COPIED_LEAST_NS)
			continue;
		pages += more_pages(of.first, of.last);
		late += more_pages(of.middle, of.last);
		per_s[uses[i].role == ROLE_WORKER] += more_pages(of.first, of.last) * of.first->each_bytes /
						      ((of.last->time_ns - of.first->time_ns) / 1e9);
	}
	if (pages >= COPIED_LEAST && late >= COPIED_LATE * pages && late <= (1 - COPIED_LATE) * pages &&
	    per_s[0] + per_s[1] >= LEAST_BYTES_S)
		*out = (struct copied_pages){.per_s = per_s[0] + per_s[1],
					     .error = 2 / sqrt(pages),
					     .counted = true,
					     .workers = per_s[1] > per_s[0]};
	return looked;
}

int copied_pages__find(struct job *job, const struct step_track *tracks, size_t track_cnt,
		       const struct resource_use *uses, size_t cnt, struct copied_pages *out)
{
	uint64_t window_ns[2];
	double per_s, grown = 0, faults_s = 0;
	struct machine_samples machine;
	bool counted;
	int err;

	*out = (struct copied_pages){0};
	if (!cnt || !track_cnt)
		return 0;
	resources__set_window(tracks, track_cnt, window_ns);
	counted = find_counted(job, window_ns, uses, cnt, out);
	machine = machine_samples__of(job, uses[0].pid);
	err = machine_growth(&machine, window_ns, &per_s);
	for (size_t i = 0; i < cnt; i++) {
		struct resource_samples all = resource_samples__of(job, uses[i].pid);

		grown += own_growth(&all, window_ns);
		if (uses[i].role != ROLE_MAIN)
			faults_s += fmax(0, uses[i].rates.minor_faults_per_s);
	}
	out->faults_s = faults_s;
	if (!err && !counted && per_s >= LEAST_BYTES_S && grown < OWN_GROWTH * per_s &&
	    faults_s * PAGE_BYTES >= HALF * per_s)
		*out = (struct copied_pages){.per_s = per_s, .faults_s = faults_s};
	return err;
}

#define GROWTH_MIN_S     10    /* seconds of samples */
#define GROWTH_MIN_BYTES 4e6   /* less is said to be none, */
#define GROWTH_MIN_SHARE 0.005 /* and less than this share of its memory */
#define FAULTS_PER_S     10    /* major ones: less is no trouble */
#define SWAP_SHARE       0.05  /* of a process's memory: less in swap is what it does not use */
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

/*
 * Pages of files count as shared, and as resident once they were touched; but the kernel drops them when memory is short. Those
 * of shared memory (/dev/shm) count alike, and it cannot.
 */
enum memory_part { PART_OWN, PART_SHARED, PART_ALL };

static double part_bytes(const struct rec_resources *at, enum memory_part part)
{
	double shared = at->shared_bytes, all = at->rss_bytes;

	return part == PART_ALL ? all : part == PART_SHARED ? shared : fmax(0, all - shared);
}

/* Not steady if that is too little to say. 0 or -ENOMEM. */
static int find_growth(const struct resource_samples *all, const uint64_t window_ns[2], enum memory_part part,
		       const struct resource_use *use, struct growth *out)
{
	struct growth_point *points = calloc(all->cnt + 1, sizeof(*points));
	size_t cnt = 0;
	double seconds;
	int err;

	*out = (struct growth){0};
	if (!points)
		return -ENOMEM;
	for (size_t i = 0; i < all->cnt; i++)
		if (all->items[i].known & RESOURCES_MEMORY && all->items[i].time_ns >= window_ns[0] &&
		    all->items[i].time_ns <= window_ns[1])
			points[cnt++] = (struct growth_point){(all->items[i].time_ns - window_ns[0]) / 1e9,
							      part_bytes(&all->items[i], part)};
	seconds = cnt ? points[cnt - 1].s - points[0].s : 0;
	err = seconds >= GROWTH_MIN_S ? growth__find(points, cnt, out) : 0;
	free(points);
	if (out->per_s * seconds < fmax(GROWTH_MIN_BYTES, GROWTH_MIN_SHARE * use->rss_last_bytes))
		out->steady = false;
	return err;
}

static int set_growth(const struct resource_samples *all, const uint64_t window_ns[2], enum memory_part part,
		      struct resource_use *use)
{
	struct growth growth;
	int err = find_growth(all, window_ns, part, use, &growth);

	if (!growth.steady)
		return err;
	use->growth_per_s = growth.per_s;
	use->growth_least_per_s = growth.least_per_s;
	use->growth_most_per_s = growth.most_per_s;
	set_full(all, use);
	return err;
}

/* What the machine of a process loses each second beyond what its processes take for themselves. 0 or -ENOMEM. */
static int find_unexplained(struct job *job, const uint64_t window_ns[2], uint32_t pid, const struct resource_use *uses,
			    const double *own, size_t cnt, double *per_s)
{
	struct machine_samples machine = machine_samples__of(job, pid);
	struct copied_pages copied = {0};
	int err = machine_growth(&machine, window_ns, per_s);

	for (size_t i = 0; i < cnt; i++)
		if (uses[i].pid >> REC_PID_BITS == pid >> REC_PID_BITS)
			*per_s -= own[i];
	find_counted(job, window_ns, uses, cnt, &copied);
	*per_s -= copied.per_s;
	return err;
}

/* Shared memory counts as growth where the machine loses as much: of files it loses nothing. 0 or -ENOMEM. */
static int add_shared_growth(struct job *job, const uint64_t window_ns[2], struct resource_use *uses, size_t cnt)
{
	double *own = calloc(cnt + 1, sizeof(*own)), unexplained;
	int err = own ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++)
		own[i] = uses[i].growth_per_s;
	for (size_t i = 0; i < cnt && !err; i++) {
		struct resource_samples all = resource_samples__of(job, uses[i].pid);
		struct growth shared;

		err = find_growth(&all, window_ns, PART_SHARED, &uses[i], &shared);
		if (err || !shared.steady)
			continue;
		err = find_unexplained(job, window_ns, uses[i].pid, uses, own, cnt, &unexplained);
		if (!err && unexplained >= HALF * shared.per_s)
			err = set_growth(&all, window_ns, PART_ALL, &uses[i]);
	}
	free(own);
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
	return set_growth(all, window_ns, PART_OWN, use);
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
	err = err ?: add_shared_growth(job, window_ns, *out, *cnt);
	if (err) {
		free(*out);
		*out = NULL;
		*cnt = 0;
	} else {
		qsort(*out, *cnt, sizeof(**out), compare_uses);
	}
	return err;
}

/* The kernel moves pages that nobody uses to the swap, on a machine with free memory, too. */
static bool is_swapped(const struct resource_use *use)
{
	return use->swap_last_bytes &&
	       use->swap_last_bytes >= SWAP_SHARE * ((double)use->rss_last_bytes + use->swap_last_bytes);
}

enum resource_trouble resource_use__trouble(const struct resource_use *use)
{
	return use->growth_per_s > 0                           ? TROUBLE_GROWTH
	       : is_swapped(use)                               ? TROUBLE_SWAP
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
