/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the files of the loop share: watch.c has the folder and its turns, keep.c what is kept of events, answers.c what others ask for.
 */
#ifndef STEPFLAME_USER_WATCH_STATE_H
#define STEPFLAME_USER_WATCH_STATE_H

#include <limits.h>

#include "user/lib/json.h"
#include "user/recording/recording.h"
#include "user/watch/control.h"
#include "user/watch/events.h"
#include "user/watch/jobs.h"
#include "user/watch/listener.h"
#include "user/watch/metrics.h"
#include "user/watch/push.h"
#include "user/watch/status.h"
#include "user/watch/watch.h"

struct watch {
	const struct watch_options *options;
	char ring_path[PATH_MAX], events_path[PATH_MAX], metrics_path[PATH_MAX];
	char paused_path[PATH_MAX], paused_jobs_path[PATH_MAX];
	int lock;
	enum watch_pause pause; /* there is neither a session nor a ring */
	struct control control;
	struct listener listener;
	struct push push;
	struct session *session;
	struct recording_writer *ring;
	struct trigger *trigger;
	struct watched_jobs jobs;
	struct events events;
	struct metrics metrics;
	int failed;      /* -errno of what somebody has asked for: the end */
	int metrics_err; /* of the last time they were written */
	uint64_t now_ns, next_look_ns, next_metrics_ns, next_room_ns;
	uint64_t looked_ns, looked_at_ns; /* what looks have taken, less what they may; at the last one */
	bool looks_late;
	bool short_of_room; /* at the last look */
	uint64_t event_ns;  /* when the first event that waits was seen; 0: there is none */
	uint64_t hour_ns;   /* begin of this hour */
	unsigned int in_hour;
};

/* watch.c: finds out whether it has to pause, and pauses or goes on. 0 or -errno. */
int watch__settle_pause(struct watch *watch);

/*
 * keep.c: begins to keep what the ring has of a process's job. name, kind: for the name of the file. since_ns: when it began. what: a
 * sentence. 0 or -errno that ends the session.
 */
int watch__keep_job(struct watch *watch, uint32_t pid, const char *name, const char *kind, uint64_t since_ns,
		    const char *what);
/* Keeps the next event, if there is one and it may be kept. 0 or -errno that ends the session. */
int watch__look_for_events(struct watch *watch);
/* The ring keeps what tells of an event until that is kept, too: from when on. */
uint64_t watch__kept_from(const struct watch *watch);
/* What is usual is kept, too, to compare with. One job at a time. 0 or -errno that ends the session. */
int watch__keep_regularly(struct watch *watch);
/* A process that is recorded; 0: there is none. */
uint32_t watch__process_of(const struct watch *watch, const struct watched_job *job);

/* answers.c: of a struct watch, as control__serve wants it. */
json_t *watch__answer(const char *request, void *watch);

#endif
