/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The error of a mean over time, whose values depend on each other, by batch means (Schmeiser,
 * Batch size effects in the analysis of simulation output, 1982, who finds 10 to 30 batches best).
 * The recording is cut into consecutive blocks. The spread of the block means shows the error of
 * the overall mean, provided that no change takes longer than the recording.
 */
#ifndef STEPFLAME_USER_ANALYSIS_COMPARE_BLOCKS_H
#define STEPFLAME_USER_ANALYSIS_COMPARE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define BLOCKS_MAX 20

struct blocks {
	uint64_t end_ns[BLOCKS_MAX]; /* end of each block, inclusive; ascending. The first block has no beginning */
	double units[BLOCKS_MAX];    /* steps that end in the block, or seconds */
	size_t cnt;
};

/*
 * Makes blocks that contain about equally many of the instants, which are their units. Sorts the
 * instants.
 */
void blocks__of_instants(struct blocks *blocks, uint64_t *instants_ns, size_t cnt);
/* Makes blocks of equal length. Their units are seconds. */
void blocks__of_time(struct blocks *blocks, uint64_t start_ns, uint64_t end_ns);
/* The block that contains an instant; -1: after the last. */
int blocks__at(const struct blocks *blocks, uint64_t time_ns);
double blocks__units(const struct blocks *blocks);

/*
 * The error of the mean, sum of all totals over sum of all units, at 95 % confidence. NAN: not
 * known, with fewer than 2 blocks.
 */
double block_means__error(const double *totals, const double *units, size_t cnt);
/* The same for the mean of values, one per block. */
double block_values__error(const double *values, size_t cnt);

#endif
