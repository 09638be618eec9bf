/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether steps come at regular intervals: every 37th, or every 9th or 10th (of items, some of which share a batch).
 */
#ifndef STEPFLAME_USER_ANALYSIS_RHYTHM_H
#define STEPFLAME_USER_ANALYSIS_RHYTHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rhythm {
	uint64_t shortest, longest; /* steps from one to the next: the same number, or two that differ by 1; 0: none */
	size_t matched;             /* steps that are in it */
};

/*
 * Of ascending indexes, of steps that lost so much time. Those that lost less than half of what the fourth of them,
 * by that, lost do not count, unless the others have no rhythm. There is one when at least 4, and three quarters, follow
 * it, and no more than a quarter of those that should be are missing. Steps that all follow each other have none. Of steps
 * that are alike, for they do what no other step does, three are enough, if all of them follow it and none is missing.
 */
struct rhythm rhythm__find(const uint64_t *indexes, const uint64_t *lost_ns, size_t cnt, bool alike);

/* "every 37th step", "every 9th or 10th step"; malloc'ed, "" for none; NULL: no memory. */
char *rhythm__text(const struct rhythm *rhythm);

#endif
