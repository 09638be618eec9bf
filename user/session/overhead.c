// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/overhead.h"

#include <math.h>
#include <string.h>

#include "user/lib/percentile.h"

#define VALUE_NS     10000000ull
#define VALUES_MIN   2
#define USUAL_FACTOR 1.0 /* until it is measured: the jobs of docs/cost.md pay 0.8 to 1.2 times what is accounted, */
#define USUAL_ERROR  0.3 /* and others are thought to differ by so much */
#define FACTOR_MAX   20.0

static size_t kept(uint64_t cnt, size_t room)
{
	return cnt < room ? cnt : room;
}

static uint64_t median_ns(const uint64_t *values, uint64_t cnt)
{
	uint64_t sorted[OVERHEAD_VALUES];

	return cnt < VALUES_MIN ? 0 : percentile__of(values, kept(cnt, OVERHEAD_VALUES), 50, sorted);
}

static void add_border(struct overhead *overhead, const struct overhead_pair *border)
{
	struct overhead_pair *pair = &overhead->pairs[overhead->pair_cnt % OVERHEAD_PAIRS];

	if (overhead->has_border) {
		pair->longer = (overhead->border.longer + border->longer) / 2;
		pair->accounted = (overhead->border.accounted + border->accounted) / 2;
		pair->rest = (overhead->border.rest + border->rest) / 2;
		overhead->pair_cnt++;
	}
	overhead->has_border = !overhead->has_border;
	overhead->border = *border;
}

void overhead__begin(struct overhead *overhead, bool rests, double accounted, uint64_t from_ns)
{
	uint64_t first_ns = median_ns(overhead->first, overhead->value_cnt), before_ns = overhead->before_ns;
	uint64_t window_ns = overhead->rests ? before_ns : first_ns, rest_ns = overhead->rests ? first_ns : before_ns;
	struct overhead_pair border = {
		.accounted = overhead->rests ? overhead->before_accounted : accounted,
		.rest = overhead->rests ? accounted : overhead->before_accounted,
	};

	if (first_ns && before_ns) {
		border.longer = (double)window_ns / rest_ns * (1 + border.rest) - 1;
		add_border(overhead, &border);
	} else {
		overhead->has_border = false; /* two that are not next to each other make no pair */
	}
	overhead->before_ns = median_ns(overhead->last, overhead->value_cnt);
	overhead->before_accounted = accounted;
	overhead->rests = rests;
	overhead->from_ns = from_ns;
	overhead->begin_ns = overhead->ticks = overhead->value_cnt = 0;
}

void overhead__tick(struct overhead *overhead, uint64_t time_ns, uint32_t step_ticks)
{
	uint64_t value, at = overhead->value_cnt;

	if (time_ns < overhead->from_ns)
		return;
	if (!overhead->begin_ns) {
		overhead->begin_ns = time_ns;
		return;
	}
	overhead->ticks++;
	if (time_ns < overhead->begin_ns + VALUE_NS || (step_ticks && overhead->ticks % step_ticks))
		return;
	value = (time_ns - overhead->begin_ns) / overhead->ticks;
	if (at < OVERHEAD_VALUES)
		overhead->first[at] = value;
	overhead->last[at % OVERHEAD_VALUES] = value;
	overhead->value_cnt++;
	overhead->begin_ns = time_ns;
	overhead->ticks = 0;
}

static int compare_doubles(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return COMPARE(*x, *y);
}

static double median(double *values, size_t cnt)
{
	qsort(values, cnt, sizeof(*values), compare_doubles);
	return (values[(cnt - 1) / 2] + values[cnt / 2]) / 2;
}

bool overhead__estimate(const struct overhead *overhead, struct overhead_estimate *out)
{
	/* Of a normal distribution: its deviation over the median deviation; that of a median over that of a mean. */
	const double of_median_deviation = 1.4826, of_median = 1.2533, of_95_percent = 1.96;
	size_t cnt = kept(overhead->pair_cnt, OVERHEAD_PAIRS);
	double values[OVERHEAD_PAIRS];

	*out = (struct overhead_estimate){.pairs = cnt};
	if (cnt < OVERHEAD_PAIRS_MIN)
		return false;
	for (size_t i = 0; i < cnt; i++) {
		values[i] = overhead->pairs[i].longer;
		out->accounted += overhead->pairs[i].accounted / cnt;
		out->rest += overhead->pairs[i].rest / cnt;
	}
	out->longer = median(values, cnt);
	for (size_t i = 0; i < cnt; i++)
		values[i] = fabs(overhead->pairs[i].longer - out->longer);
	out->error = of_95_percent * of_median * of_median_deviation * median(values, cnt) / sqrt(cnt);
	return true;
}

double overhead__factor(const struct overhead *overhead)
{
	const double usual_weight = 1 / (USUAL_ERROR * USUAL_ERROR);
	struct overhead_estimate estimate;
	double factor = USUAL_FACTOR, error, weight;

	if (overhead__estimate(overhead, &estimate) && estimate.accounted > 0) {
		error = estimate.error / estimate.accounted;
		weight = error > 0 ? 1 / (error * error) : 1e9;
		factor = (estimate.longer / estimate.accounted * weight + USUAL_FACTOR * usual_weight) /
			 (weight + usual_weight);
	}
	return fmin(fmax(factor, 1), FACTOR_MAX);
}
