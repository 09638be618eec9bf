/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The training jobs of this host, as they come and go. In: the table of training processes. Out: a
 * session that has attached to them.
 */
#ifndef STEPFLAME_USER_WATCH_JOBS_H
#define STEPFLAME_USER_WATCH_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "user/identity/trainings.h"
#include "user/lib/array.h"
#include "user/recording/part.h"
#include "user/session/session.h"

/* A process that sets this variable to 0 is not watched. */
#define WATCH_OPT_OUT "STEPFLAME_WATCH"

#define WATCHED_NAME  64

/* What ends sooner is not worth the attach, and is counted. A job imports for longer than that. */
#define WATCHED_AGE_NS 1000000000ull

struct watched_job {
	uint32_t number;         /* 1, 2, ... */
	char name[WATCHED_NAME]; /* that by which --job takes it; "pid 12" for one without, */
	bool unnamed;            /* which may get one: its process did not answer */
	size_t alive;            /* processes */
	uint64_t quiet_until_ns; /* events before this are not kept, but for the first bad end */
	uint64_t regular_ns;     /* when it was kept without an event, or first seen; 0: not yet */
	bool end_kept;           /* of one of its processes: the others' soon follow */
	bool paused;             /* it is left alone until somebody wants it watched again */
};

struct watched_process {
	uint32_t pid, job;
	uint64_t start_time;  /* of struct process */
	bool attached;        /* else it was left out, for good, but for a launcher */
	uint64_t launched_ns; /* it is not attached, because it launched ranks, at the last look then; 0: it has not */
	bool young;           /* it is looked at again once it is WATCHED_AGE_NS old, and answers */
	bool ended;
};

/* All zeros: none. */
struct watched_jobs {
	struct array processes; /* struct watched_process */
	struct array jobs;      /* struct watched_job */
	struct trainings seen;  /* at the last look */
	uint32_t job_cnt;       /* so far */
	uint64_t partial_ns;    /* since when looks have not come to their end; 0: the last one has */
	uint64_t missed;        /* processes that have ended before they could be attached to */
	const char *
		paused_path; /* the caller sets it: a file that says which processes are paused, for the next session */
};

/*
 * Looks for training processes that are not known, and attaches to one of them, so that the session
 * is polled before the next. 1: there may be more; 0; or -ENOMEM, or -errno of the session that ends
 * it.
 */
int watched_jobs__update(struct watched_jobs *jobs, struct session *session);
/*
 * Leaves a job alone, or watches it again: all its processes, those too that come, and in the next session those that are there
 * now. 0 or -ENOMEM.
 */
int watched_jobs__pause(struct watched_jobs *jobs, struct watched_job *job, struct session *session, bool pause);
/* A process has ended. */
void watched_jobs__end(struct watched_jobs *jobs, uint32_t pid);
/* Were there some, and have all ended? */
bool watched_jobs__all_ended(const struct watched_jobs *jobs);
/* NULL: no job has that process. Valid until the next look. */
struct watched_job *watched_jobs__of(const struct watched_jobs *jobs, uint32_t pid);
/*
 * The job that goes by that name or has a process with that pid, and runs; NULL: the only one that
 * runs. NULL (*cnt: how many could be meant): none, or more than one.
 */
struct watched_job *watched_jobs__named(const struct watched_jobs *jobs, const char *name, size_t *cnt);
/* Writes the name of its job, or "pid 12". Returns name. */
const char *watched_jobs__name(const struct watched_jobs *jobs, uint32_t pid, char name[WATCHED_NAME]);
/* Adds the processes of a job, those too that have ended. 0 or -ENOMEM. */
int watched_jobs__part(const struct watched_jobs *jobs, uint32_t number, struct recording_part *part);
void watched_jobs__free(struct watched_jobs *jobs); /* keeps paused_path and missed */

#endif
