// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/compare/blocks.h"

#include <math.h>
#include <stdlib.h>

#include "user/lib/compare.h"

/* Quantiles of Student's distribution that enclose 95 %, by degrees of freedom, from 1. */
static const double student[BLOCKS_MAX - 1] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
					       2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093};

void blocks__of_instants(struct blocks *blocks, uint64_t *instants_ns, size_t cnt)
{
	size_t wanted = cnt < BLOCKS_MAX ? cnt : BLOCKS_MAX, from = 0;

	*blocks = (struct blocks){0};
	if (cnt)
		qsort(instants_ns, cnt, sizeof(*instants_ns), compare__u64);
	for (size_t i = 0; i < wanted; i++) {
		size_t to = (i + 1) * cnt / wanted;

		while (to < cnt && instants_ns[to] == instants_ns[to - 1])
			to++;
		if (to <= from)
			continue;
		blocks->end_ns[blocks->cnt] = instants_ns[to - 1];
		blocks->units[blocks->cnt++] = to - from;
		from = to;
	}
}

void blocks__of_time(struct blocks *blocks, uint64_t start_ns, uint64_t end_ns)
{
	uint64_t each_ns = end_ns > start_ns ? (end_ns - start_ns) / BLOCKS_MAX : 0, from = start_ns;

	*blocks = (struct blocks){0};
	for (int i = 0; i < BLOCKS_MAX && each_ns; i++) {
		uint64_t to = i + 1 < BLOCKS_MAX ? from + each_ns : end_ns;

		blocks->end_ns[blocks->cnt] = to;
		blocks->units[blocks->cnt++] = (to - from) / 1e9;
		from = to;
	}
}

int blocks__at(const struct blocks *blocks, uint64_t time_ns)
{
	for (size_t i = 0; i < blocks->cnt; i++)
		if (time_ns <= blocks->end_ns[i])
			return i;
	return -1;
}

double blocks__units(const struct blocks *blocks)
{
	double units = 0;

	for (size_t i = 0; i < blocks->cnt; i++)
		units += blocks->units[i];
	return units;
}

double block_means__error(const double *totals, const double *units, size_t cnt)
{
	double sum = 0, all = 0, squares = 0;

	for (size_t i = 0; i < cnt; i++) {
		sum += totals[i];
		all += units[i];
	}
	if (cnt < 2 || cnt > BLOCKS_MAX || all <= 0)
		return NAN;
	for (size_t i = 0; i < cnt; i++) {
		double off = totals[i] - sum / all * units[i];

		squares += off * off;
	}
	return student[cnt - 2] * sqrt(squares * cnt / (cnt - 1)) / all;
}

double block_values__error(const double *values, size_t cnt)
{
	double ones[BLOCKS_MAX];

	for (int i = 0; i < BLOCKS_MAX; i++)
		ones[i] = 1;
	return block_means__error(values, ones, cnt);
}
