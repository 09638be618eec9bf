/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Converts CUPTI's clock to CLOCK_MONOTONIC: linear interpolation between pairs of readings. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_CLOCK_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "include/gpu_ring.h"

#define GPU_CLOCK_PAIRS 256

struct gpu_clock {
	uint32_t cnt;
	bool has_outlier;
	struct gpu_clock_pair {
		uint64_t cupti_ns;
		uint64_t ns; /* midpoint of the two readings of CLOCK_MONOTONIC */
		/* Time between those readings; the error is at most half of it. */
		uint64_t width_ns;
	} pairs[GPU_CLOCK_PAIRS], outlier; /* outlier: a pair that does not fit the earlier ones */
};

/*
 * Adds a pair, which the target must have read between from_ns and until_ns. false: the pair is
 * implausible, or does not fit the previous one; if the next pair fits it, the clock was set, and
 * the earlier pairs are dropped.
 */
bool gpu_clock__add(struct gpu_clock *clock, const struct gpu_ring_clock *pair, uint64_t from_ns, uint64_t until_ns);
/* false: there is no pair yet. */
bool gpu_clock__translate(const struct gpu_clock *clock, uint64_t cupti_ns, uint64_t *ns);
/* The last pair, on CUPTI's clock; 0: no pair. */
uint64_t gpu_clock__last(const struct gpu_clock *clock);
/* The last pair, on CLOCK_MONOTONIC. */
uint64_t gpu_clock__last_ns(const struct gpu_clock *clock);

#endif
