/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lines of source in which samples were, each stack by the line that stands for it (places__lines). */
#ifndef STEPFLAME_USER_ANALYSIS_SPOTS_H
#define STEPFLAME_USER_ANALYSIS_SPOTS_H

#include "user/analysis/place.h"

/* Empty: all 0 but the first two, which outlive it. */
struct spots {
	const struct places *places; /* that has all the stacks */
	const uint32_t *lines;       /* its places__lines */
	struct tallies tallies;
	struct intern file_ids;
	struct tallies files; /* by number in `tallies.keys` */
};

/* 0 or -ENOMEM. A sample without Python frames is at no spot. */
int spots__add(struct spots *spots, uint32_t slot, const struct sample *sample);
/* The `cnt` spots that took longest of each slot, into top[slot * cnt]. 0 or -ENOMEM. */
int spots__top(const struct spots *spots, size_t slot_cnt, size_t cnt, struct spot *top);
void spots__free(struct spots *spots);

#endif
