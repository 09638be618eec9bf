// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/growth.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/percentile.h"

#define BLOCKS_MAX 128  /* 8,128 slopes */
#define QUANTILE   2.58 /* of the normal distribution: 99 % */
#define THIRD      0.25 /* of the slope: least slope of each third of the time */
#define LAST_THIRD 0.5  /* what has begun to level off is no steady growth */

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median_of(double *values, size_t cnt)
{
	qsort(values, cnt, sizeof(*values), compare);
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
	qsort(slopes, slope_cnt, sizeof(*slopes), compare);
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
	struct growth_point blocks[BLOCKS_MAX];
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
