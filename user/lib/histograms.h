/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A sparse histogram per slot: totals by (slot, value) pair, for few of the possible pairs, and the
 * largest totals of each slot.
 */
#ifndef STEPFLAME_USER_LIB_HISTOGRAMS_H
#define STEPFLAME_USER_LIB_HISTOGRAMS_H

#include "user/lib/map.h"

/* Empty: all 0. */
struct histograms {
	struct intern keys;  /* {slot + 1, value} */
	struct array totals; /* uint64_t by the pair's number */
};

struct histogram_top {
	uint32_t value;
	uint32_t number; /* of the pair */
	uint64_t total;  /* 0: the slot has no more values */
};

/* Sets *number to the number of a pair, from 1. slot < UINT32_MAX. 0 or -ENOMEM. */
int histograms__number(struct histograms *histograms, uint32_t slot, uint32_t value, uint32_t *number);
/* Of a pair; 0: it has none. */
uint64_t histograms__total(const struct histograms *histograms, uint32_t slot, uint32_t value);
/* 0 or -ENOMEM. */
int histograms__add(struct histograms *histograms, uint32_t slot, uint32_t value, uint64_t amount);
/*
 * Writes the `cnt` largest totals of each of slot_cnt slots, largest first, to top[slot * cnt],
 * which must be zeroed.
 */
void histograms__top(const struct histograms *histograms, size_t slot_cnt, size_t cnt, struct histogram_top *top);
/* Leaves it empty. */
void histograms__free(struct histograms *histograms);

#endif
