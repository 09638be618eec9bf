/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hotspots: the source lines that hold the samples, one line per stack, as chosen by places__lines. */
#ifndef STEPFLAME_USER_ANALYSIS_SPOTS_H
#define STEPFLAME_USER_ANALYSIS_SPOTS_H

#include "user/analysis/place.h"

/* All zeros except the first two fields, which must outlive it: empty. */
struct spots {
	const struct places *places; /* contains all the stacks */
	const uint32_t *lines;       /* its places__lines */
	struct tallies tallies;
	struct intern file_ids;
	struct tallies files; /* by number in `tallies.keys` */
};

/* 0 or -ENOMEM. Ignores samples without Python frames. */
int spots__add(struct spots *spots, uint32_t slot, const struct sample *sample);
/* Fills top[slot * cnt] with the `cnt` longest spots of each slot. 0 or -ENOMEM. */
int spots__top(const struct spots *spots, size_t slot_cnt, size_t cnt, struct spot *top);
void spots__free(struct spots *spots);

#endif
