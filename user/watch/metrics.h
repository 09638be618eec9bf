/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a monitoring system gets to know, as text in Prometheus's format 0.0.4. In: records. Out: a
 * file for node_exporter's textfile collector. No series is about functions, files or kernels, so
 * their number does not grow with what jobs do.
 */
#ifndef STEPFLAME_USER_WATCH_METRICS_H
#define STEPFLAME_USER_WATCH_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "include/records.h"
#include "user/analysis/live/trigger.h"
#include "user/lib/array.h"
#include "user/model/step_times.h"
#include "user/session/session.h"
#include "user/watch/jobs.h"

#define METRICS_RANKS 64 /* processes with series of their own; those of more are counted */

/* All zeros: nothing yet. */
struct metrics {
	struct step_times times;
	struct array ranks;                 /* struct rank_metrics, see metrics.c */
	uint64_t left_out;                  /* step boundaries of others */
	uint64_t events[TRIGGER__COUNT][2]; /* not kept, kept */
	struct rec_cost cost;               /* the last one */
	bool pushes;                        /* profiles to a server: */
	uint64_t sent, lost;
	uint64_t cpu_ns; /* of stepflame, so far */
};

/* What is known of a process that makes steps. */
struct rank_progress {
	int rank; /* -1: not known */
	uint64_t steps;
	uint64_t last_step_ns; /* CLOCK_MONOTONIC; 0: none yet */
};

/* 0 or -ENOMEM. */
int metrics__add(struct metrics *metrics, const struct rec_hdr *record, uint64_t now_ns);
/*
 * Writes all of them to path, which at any time has a whole set. 0 or -errno.
 */
int metrics__write(struct metrics *metrics, const struct watched_jobs *jobs, const struct session_progress *progress,
		   uint64_t ring_bytes, const char *path);
/* Takes the names of jobs, before they are forgotten: the last figures of who has ended go by them. */
void metrics__name(struct metrics *metrics, const struct watched_jobs *jobs);
/* False: that process is not known. */
bool metrics__progress(const struct metrics *metrics, uint32_t pid, struct rank_progress *out);
/* Forgets all processes: nobody looks at them any more. */
void metrics__forget(struct metrics *metrics);
void metrics__free(struct metrics *metrics);

#endif
