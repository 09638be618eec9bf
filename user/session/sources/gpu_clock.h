/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From CUPTI's clock to CLOCK_MONOTONIC, by pairs of readings: between two of them in a straight line. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_CLOCK_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "include/gpu_ring.h"

#define GPU_CLOCK_PAIRS 256

struct gpu_clock {
	uint32_t cnt;
	bool has_odd;
	struct gpu_clock_pair {
		uint64_t cupti_ns;
		uint64_t ns;           /* in the middle of the two readings */
		uint64_t width_ns;     /* between them: half of it is the error at most */
	} pairs[GPU_CLOCK_PAIRS], odd; /* one that does not fit those before */
};

/*
 * Adds a pair, which must have been read between from_ns and until_ns. false: it is not plausible, or does not fit the
 * one before; when the next fits it, the clock was set, and those before are forgotten.
 */
bool gpu_clock__add(struct gpu_clock *clock, const struct gpu_ring_clock *pair, uint64_t from_ns, uint64_t until_ns);
/* false: nothing is known of that clock yet. */
bool gpu_clock__translate(const struct gpu_clock *clock, uint64_t cupti_ns, uint64_t *ns);
/* CUPTI's time of the last pair; 0: none. */
uint64_t gpu_clock__last(const struct gpu_clock *clock);
/* The same on CLOCK_MONOTONIC. */
uint64_t gpu_clock__last_ns(const struct gpu_clock *clock);

#endif
