/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which processes of a job ended otherwise than well while it was recorded, and of what: those that train, DataLoaders' workers, and what
 * else these have started, if it crashed or was killed shortly before them.
 */
#ifndef STEPFLAME_USER_ANALYSIS_VERDICT_ENDINGS_H
#define STEPFLAME_USER_ANALYSIS_VERDICT_ENDINGS_H

#include "user/model/job.h"

struct ending {
	const struct rec_target *target; /* owned by the job */
	const struct rec_proc *exit;     /* owned by the job */
	enum target_role role;           /* as it ended: a DataLoader's worker may have become known as one only then */
	double at_s;                     /* since the recording began */
	char *name; /* "rank 1 (process 12)", "process 12", "DataLoader worker 13", "process 14, which process 12 has started," */
	char *how;   /* "was killed by SIGKILL", "ended with exit status 1" */
	char *why;   /* what was short then; "": nothing that is known */
	char *place; /* "train.py:40 step": where its main thread was last seen; "": not known */
};

struct endings {
	struct ending *items; /* by time */
	size_t cnt;
};

/* 0 or -ENOMEM. Release with endings__release. */
int endings__find(struct job *job, struct endings *out);
void endings__release(struct endings *endings);

#endif
