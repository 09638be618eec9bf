/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What each training process did in each minute of the clock (UTC), for tables in which many hosts come together: what was recorded of it, and
 * sums over the steps that ended in it. Built from a job once; uses the job's texts; the job must not take records meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_CAUSE_MINUTES_H
#define STEPFLAME_USER_ANALYSIS_CAUSE_MINUTES_H

#include "user/analysis/cause/blame.h"
#include "user/analysis/steps/steps.h"

#define MINUTE_NS   60000000000ull
#define MINUTES_MAX (1024 * 1024) /* of all processes together: a day of 700 ranks */

/* A wait of the steps' thread, by phase and cause. */
struct minute_wait {
	uint64_t ns, cnt;       /* cnt: its samples stand for that many waits */
	struct hotspot hotspot; /* that had most of it; .code 0: not known */
};

struct minute {
	uint64_t seen_ns, rested_ns; /* recorded; left alone for --budget */
	uint64_t steps, step_ns, longest_ns, slow_steps, gc_ns;
	uint64_t rest_steps; /* that were only counted, in rests */
	uint64_t phase_ns[PHASE__COUNT], on_cpu_ns;
	uint32_t number;                 /* among those with steps, from 1; 0: it has none */
	const struct minute_wait *waits; /* [PHASE__COUNT * CAUSE__END]; NULL: no steps, or no waits are known */
};

/* A training process. */
struct minutes_of {
	const struct rec_target *target;
	const struct step_track *track; /* NULL: it has made no step */
	struct blame blame;             /* of the track */
	uint64_t since_ns, until_ns;    /* in which it was recorded; CLOCK_MONOTONIC */
	int64_t first;                  /* number of its first minute since 1970 */
	struct minute *minutes;
	size_t cnt;
};

struct minutes;

/* Of main processes but launchers. NULL with *err: -ENOMEM, or -EINVAL where its times are impossible, or they are more than MINUTES_MAX. */
struct minutes *minutes__new(struct job *job, const struct steps *steps, int *err);
void minutes__free(struct minutes *minutes); /* accepts NULL */
const struct minutes_of *minutes__all(const struct minutes *minutes, size_t *cnt);

/* Nanoseconds since 1970 of a time of the job's host. */
int64_t job__wall_ns(const struct job *job, uint64_t monotonic_ns);
/* The number of the minute since 1970 in which it lies. */
int64_t job__minute(const struct job *job, uint64_t monotonic_ns);

#endif
