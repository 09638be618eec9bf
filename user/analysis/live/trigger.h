/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sees, while a recording grows, what it is worth keeping for. In: its records as they come. Out:
 * events, the first one first; one of each kind of a process until it is taken.
 *
 * A slow step: longer than a given time; or, without one, twice as long as the longest of the last
 * TRIGGER_STEPS and TRIGGER_SLOW_NS longer, once there are TRIGGER_STEPS_MIN. So what a job does
 * again and again, like a log in each fiftieth step, is no event; what it does after more steps, like
 * the start of an epoch, is none from the third time on. Time in validation and checkpoints does not
 * count.
 *
 * Slower: the steps have become longer for good (trigger.c), by a given percentage or
 * TRIGGER_SLOWER_PERCENT.
 *
 * A straggler: of the ranks of a job on this host, one holds the others up (trigger.c), by a given percentage or
 * TRIGGER_STRAGGLER_PERCENT of its own work.
 *
 * A stall: a process that has made steps ends none, and neither an action nor a label, for a given
 * time; or, without one, for ten times its median step, but at least a minute. Not while another process
 * of its job, which ends no steps either, ends actions or labels: it may wait for that one.
 *
 * A bad end: a process that has made steps is killed by a signal, but for SIGINT and SIGTERM, or ends
 * with an error.
 */
#ifndef STEPFLAME_USER_ANALYSIS_LIVE_TRIGGER_H
#define STEPFLAME_USER_ANALYSIS_LIVE_TRIGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/model/step_times.h"

#define TRIGGER_STEPS             STEP_TIMES_KEPT
#define TRIGGER_STEPS_MIN         64
#define TRIGGER_SLOW_NS           100000000ull
#define TRIGGER_STALL_NS          60000000000ull
#define TRIGGER_SLOWER_PERCENT    10
#define TRIGGER_STRAGGLER_PERCENT 10
#define TRIGGER_GOES_ON_NS        1000000000ull /* what is recorded after an event: the other ranks come to it, too */
#define TRIGGER_KEPT_NS           3600000000000ull
#define TRIGGER_EVENTS_MAX        64 /* that wait to be taken */

enum trigger_kind { TRIGGER_SLOW, TRIGGER_SLOWER, TRIGGER_STRAGGLER, TRIGGER_STALL, TRIGGER_END, TRIGGER__COUNT };

/* "slow", "slower", "straggler", "stall", "end". */
extern const char *const trigger_names[TRIGGER__COUNT];

struct trigger_options {
	bool on[TRIGGER__COUNT];
	uint64_t ns[TRIGGER__COUNT];      /* of TRIGGER_SLOW and TRIGGER_STALL; 0: the trigger finds it out */
	uint32_t percent[TRIGGER__COUNT]; /* of TRIGGER_SLOWER and TRIGGER_STRAGGLER; 0: as above */
};

struct trigger_event {
	bool seen;
	enum trigger_kind kind;
	uint32_t pid;
	uint64_t
		start_ns; /* of the slow or first slower step, or the first in which it is known to be a straggler; end of the last before the stall; time of the end */
	uint64_t step;    /* index of that; of the last before the stall or the end */
	int status;       /* of wait(2), of the process that ended */
	uint64_t
		duration_ns; /* of the slow step, the stall so far, the median slower step, a straggler's own work in a step; without validation and checkpoints */
	uint64_t median_ns;  /* of the steps before; the others' work;  0: there are none */
	uint64_t longest_ns; /* likewise; of the last TRIGGER_STEPS alone */
	uint64_t unreported; /* events that came while TRIGGER_EVENTS_MAX waited, this one first */
};

struct trigger;

struct trigger *trigger__new(const struct trigger_options *options); /* NULL: no memory */
void trigger__free(struct trigger *trigger);                         /* accepts NULL */
/* Takes a record; NULL: a snapshot has ended. now_ns: CLOCK_MONOTONIC. 0 or -ENOMEM. */
int trigger__add(struct trigger *trigger, const struct rec_hdr *record, uint64_t now_ns);
/* Looks for stalls. The first event that waits, or one that is not `seen`; it stays the trigger's, until the next call of any function. */
const struct trigger_event *trigger__check(struct trigger *trigger, uint64_t now_ns);
/* The first event is taken; the same stall is none any more. */
void trigger__take(struct trigger *trigger);
/*
 * The time before this is what tells of the events that wait: when the slow step or the stall began;
 * without an event, when the step in progress that is oldest did, since it may become one, but no longer ago
 * than TRIGGER_KEPT_NS. now_ns: no step is in progress.
 */
uint64_t trigger__before(const struct trigger *trigger, uint64_t now_ns);

#endif
