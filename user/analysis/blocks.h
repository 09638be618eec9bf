/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How well a mean is known that is taken over time, whose values depend on each other: by batch means (Schmeiser, Batch size effects
 * in the analysis of simulation output, 1982, who finds 10 to 30 batches best). A recording is cut into some blocks, one after the other;
 * by how much their means differ tells how far the mean of all is off, if there was no change that takes longer than the recording.
 */
#ifndef STEPFLAME_USER_ANALYSIS_BLOCKS_H
#define STEPFLAME_USER_ANALYSIS_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define BLOCKS_MAX 20

struct blocks {
	uint64_t end_ns[BLOCKS_MAX]; /* of each, itself included; ascending. The first has no beginning */
	double units[BLOCKS_MAX];    /* steps that end in it, or seconds */
	size_t cnt;
};

/* Blocks in which about as many of these instants lie; they are sorted. Their units are the instants. */
void blocks__of_instants(struct blocks *blocks, uint64_t *instants_ns, size_t cnt);
/* Blocks of the same length. Their units are seconds. */
void blocks__of_time(struct blocks *blocks, uint64_t start_ns, uint64_t end_ns);
/* That in which an instant lies; -1: behind the last. */
int blocks__at(const struct blocks *blocks, uint64_t time_ns);
double blocks__units(const struct blocks *blocks);

/* What the mean, all sums over all units, is off by, with a probability of 95 %. NAN: not known, of fewer than 2 blocks. */
double block_means__error(const double *sums, const double *units, size_t cnt);
/* The same of the mean of values that each are of a block. */
double block_values__error(const double *values, size_t cnt);

#endif
