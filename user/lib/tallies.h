/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A sparse histogram per slot: sums by (slot, value) pair, for few of the possible pairs, and the largest sums of each
 * slot.
 */
#ifndef STEPFLAME_USER_LIB_TALLIES_H
#define STEPFLAME_USER_LIB_TALLIES_H

#include "user/lib/intern.h"

/* Empty: all 0. */
struct tallies {
	struct intern keys; /* {slot + 1, value} */
	struct array sums;  /* uint64_t by the pair's number */
};

struct tally_top {
	uint32_t value;
	uint32_t number; /* of the pair */
	uint64_t sum;    /* 0: the slot has no more values */
};

/* Sets *number to the number of a pair, from 1. slot < UINT32_MAX. 0 or -ENOMEM. */
int tallies__number(struct tallies *tallies, uint32_t slot, uint32_t value, uint32_t *number);
/* 0 or -ENOMEM. */
int tallies__add(struct tallies *tallies, uint32_t slot, uint32_t value, uint64_t amount);
/* Writes the `cnt` largest sums of each of slot_cnt slots, largest first, to top[slot * cnt], which must be zeroed. */
void tallies__top(const struct tallies *tallies, size_t slot_cnt, size_t cnt, struct tally_top *top);
/* Leaves it empty. */
void tallies__free(struct tallies *tallies);

#endif
