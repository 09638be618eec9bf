/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sees that the steps of a process have become longer for good. Its steps are taken in windows of PACE_NS and at least PACE_STEPS_MIN
 * steps; what counts is a window's median. What is usual is the median of the last PACE_WINDOWS windows that were not longer. A process is
 * slower once two windows in a row are longer than usual by the given percentage. It is told once, until a window is longer by less than
 * half of that, or PACE_WINDOWS more have passed: then that is its pace, and what is usual is learnt anew.
 */
#ifndef STEPFLAME_USER_ANALYSIS_LIVE_PACE_H
#define STEPFLAME_USER_ANALYSIS_LIVE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_NS        10000000000ull
#define PACE_STEPS_MIN 20
#define PACE_WINDOWS   10

#define PACE_SAMPLES   128 /* steps of a window that are kept, at most: every one, every second, every fourth, ... */

/* All 0: nothing is known. */
struct pace {
	uint64_t samples[PACE_SAMPLES];
	uint32_t cnt, stride, skipped; /* stride 0: the window has not begun */
	uint64_t steps, begin_ns, first_step;
	uint64_t medians[PACE_WINDOWS]; /* each at its window's number modulo that */
	uint64_t windows;
	struct pace_change {
		uint64_t usual_ns, now_ns;     /* medians before and since */
		uint64_t since_ns, since_step; /* where the first longer window began */
	} change;                              /* usual_ns 0: it is not slower */
	uint32_t longer;                       /* windows since then */
};

/* Takes a step: its number, when it ended and how long it took. True: with this step the process is slower, by `change`. */
bool pace__add(struct pace *pace, uint64_t step, uint64_t end_ns, uint64_t duration_ns, uint32_t percent);

#endif
