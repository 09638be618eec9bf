/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Watches all training jobs of this host until it is told to stop. The last minutes of all of them
 * are in a ring, STATE/ring.rec; what leads to an event is kept in STATE/events.
 */
#ifndef STEPFLAME_USER_WATCH_WATCH_H
#define STEPFLAME_USER_WATCH_WATCH_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "user/analysis/live/trigger.h"
#include "user/session/session.h"
#include "user/watch/jobs.h"
#include "user/watch/listener.h"
#include "user/watch/metrics.h"
#include "user/watch/push.h"

#define WATCH_PER_HOUR_MAX 1000

struct watch_options {
	const char *state;              /* the folder */
	struct listener_options listen; /* where scrapers get the metrics */
	struct push_options push;       /* where profiles go */
	uint64_t duration_ns;           /* 0: until it is told to stop */
	uint64_t renew_ns;              /* a ring that is older gives way to a new one while no job runs */
	uint64_t last_ns;               /* that the ring keeps */
	uint64_t ring_bytes;            /* on the disk, at most */
	uint64_t leave_free;    /* bytes of the disk; with less, the watch pauses; 0: as room__is_short has it */
	uint64_t kept_bytes;    /* of all events */
	uint64_t quiet_ns;      /* after an event of a job, no other of it is kept for so long */
	unsigned int per_hour;  /* events that are kept in an hour, at most: 1 to WATCH_PER_HOUR_MAX */
	uint64_t keep_every_ns; /* how often each job is kept without an event, too; 0: never */
	struct trigger_options trigger;
	struct session_options session;
};

/* Until the time is over, or *stop is not 0. 0, or -errno after a message: -EBUSY: another one watches with that folder. */
int watch__run(const struct watch_options *options, const volatile sig_atomic_t *stop);

/*
 * Whether a disk has room left for others, too. wanted: bytes that shall stay free; 0: 5 GB, or a tenth of the disk if that is less. total, free: of
 * the disk. was_short: what the last call said.
 */
bool room__is_short(uint64_t wanted, uint64_t total, uint64_t free, bool was_short);
/* The same of the disk of a folder. One that cannot be asked is not short. */
bool room__is_short_at(const char *folder, uint64_t wanted, bool was_short);

#endif
