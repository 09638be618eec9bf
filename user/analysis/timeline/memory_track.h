/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The memory of operators over time: what those of a process allocated less what they freed, as each
 * snapshot of the recording has it. Takes REC_OP and REC_WINDOW, in recording order.
 */
#ifndef STEPFLAME_USER_ANALYSIS_TIMELINE_MEMORY_TRACK_H
#define STEPFLAME_USER_ANALYSIS_TIMELINE_MEMORY_TRACK_H

#include <stdbool.h>

#include "include/records.h"
#include "user/lib/map.h"

/* At a snapshot. The rows are read within milliseconds of its time. */
struct memory_point {
	uint64_t time_ns;
	int64_t bytes[OP_MEMORY__COUNT]; /* since the recording began, in windows of operators */
	uint32_t pid;
	bool device; /* some operators of the process have used memory of devices */
};

/* Empty: all 0. */
struct memory_track {
	struct map rows;      /* see memory_track.c */
	struct map processes; /* likewise */
	struct array points;
	uint64_t time_ns; /* of the current snapshot; 0: not known */
};

/* Takes one record, and skips all but the two. 0 or -ENOMEM. */
int memory_track__add(struct memory_track *track, const struct rec_hdr *record);
/* Call after the last record. 0 or -ENOMEM. */
int memory_track__finish(struct memory_track *track);
/* In recording order. Empty without record --memory. The track's own. */
const struct memory_point *memory_track__points(const struct memory_track *track, size_t *cnt);
void memory_track__free(struct memory_track *track);

#endif
