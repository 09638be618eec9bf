/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the one that watches says of itself and of its jobs: what `watch status --json` prints. */
#ifndef STEPFLAME_USER_WATCH_STATUS_H
#define STEPFLAME_USER_WATCH_STATUS_H

#include <jansson.h>
#include <stdint.h>

#include "user/watch/jobs.h"
#include "user/watch/metrics.h"

enum watch_pause {
	WATCH_RUNS,
	WATCH_PAUSE_ASKED, /* by the file `paused` */
	WATCH_PAUSE_ROOM,  /* the disk is nearly full: user/watch/room.h */
};

/* Returns a new object; NULL: no memory. */
json_t *status__json(const struct watched_jobs *jobs, const struct metrics *metrics, uint64_t now_ns,
		     uint64_t ring_bytes, enum watch_pause pause);

#endif
