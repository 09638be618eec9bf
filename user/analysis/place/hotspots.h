/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hotspots: the source lines that hold the samples, one line per stack, as chosen by places__lines. */
#ifndef STEPFLAME_USER_ANALYSIS_PLACE_HOTSPOTS_H
#define STEPFLAME_USER_ANALYSIS_PLACE_HOTSPOTS_H

#include "user/analysis/place/place.h"

/* All zeros except the first two fields, which must outlive it: empty. */
struct hotspots {
	const struct places *places; /* contains all the stacks */
	const uint32_t *lines;       /* its places__lines */
	struct histograms by_line;
	struct intern file_ids;
	struct histograms files; /* by number in `by_line.keys` */
};

/* 0 or -ENOMEM. Ignores samples without Python frames. */
int hotspots__add(struct hotspots *hotspots, uint32_t slot, const struct sample *sample);
/* Fills top[slot * cnt] with the `cnt` longest hotspots of each slot. 0 or -ENOMEM. */
int hotspots__top(const struct hotspots *hotspots, size_t slot_cnt, size_t cnt, struct hotspot *top);
void hotspots__free(struct hotspots *hotspots);

#endif
