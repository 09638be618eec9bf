/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sums by two numbers, of which few pairs occur, and the highest of each first one. */
#ifndef STEPFLAME_USER_LIB_TALLIES_H
#define STEPFLAME_USER_LIB_TALLIES_H

#include "user/lib/intern.h"

/* Empty: all 0. */
struct tallies {
	struct intern keys; /* {slot + 1, value} */
	struct array sums;  /* uint64_t by number */
};

struct tally_top {
	uint32_t value;
	uint32_t number; /* of the pair */
	uint64_t sum;    /* 0: no more */
};

/* The number of a pair, from 1. slot < UINT32_MAX. 0 or -ENOMEM. */
int tallies__number(struct tallies *tallies, uint32_t slot, uint32_t value, uint32_t *number);
/* 0 or -ENOMEM. */
int tallies__add(struct tallies *tallies, uint32_t slot, uint32_t value, uint64_t amount);
/* The highest `cnt` of each of slot_cnt slots into top[slot * cnt], which is zeroed; the highest first. */
void tallies__top(const struct tallies *tallies, size_t slot_cnt, size_t cnt, struct tally_top *top);
/* Leaves it empty. */
void tallies__free(struct tallies *tallies);

#endif
