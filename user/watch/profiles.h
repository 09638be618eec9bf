/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the ring has of a stretch of time, as profiles in pprof's format: one for each process that is watched, and one for
 * its DataLoader workers together.
 */
#ifndef STEPFLAME_USER_WATCH_PROFILES_H
#define STEPFLAME_USER_WATCH_PROFILES_H

#include <stdint.h>

#include "user/recording/recording.h"
#include "user/watch/jobs.h"
#include "user/watch/metrics.h"

/*
 * Makes them, and passes each to fn with its name ("stepflame{job=run-a,rank=0,host=h,role=main}") and a file in memory, which the callee closes,
 * until fn returns nonzero; then returns that. Times: CLOCK_MONOTONIC. Processes without a sample have none. 0 or -errno.
 */
int profiles__make(const struct recording_writer *ring, const struct watched_jobs *jobs, const struct metrics *metrics,
		   uint64_t from_ns, uint64_t to_ns, int (*fn)(const char *name, int fd, void *ctx), void *ctx);

#endif
