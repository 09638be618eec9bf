/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What each process of this host that has torch or JAX is to a training job: a trainer, or a worker,
 * helper or launcher of one; and which of them are one job. In: /proc and the memory of processes.
 * Out: a table. What a process says of itself is hostile: it decides what its owner's processes
 * are taken for, and nothing more.
 */
#ifndef STEPFLAME_USER_IDENTITY_TRAININGS_H
#define STEPFLAME_USER_IDENTITY_TRAININGS_H

#include <stdbool.h>
#include <stddef.h>

#include "user/identity/job_id.h"
#include "user/identity/program.h"
#include "user/lib/array.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"

enum training_role {
	TRAINING_TRAINER,  /* what one records */
	TRAINING_WORKER,   /* of the trainer `of`, with which it is recorded; so is */
	TRAINING_HELPER,   /* one that has no part in the training: a server of multiprocessing, a compiler, ... */
	TRAINING_LAUNCHER, /* has started trainers and waits for them */
	TRAINING_NONE,     /* has torch or JAX, but runs no Python, and no trainer has started it */
};

struct training {
	struct process process;
	/* Its interpreter, and why that is not known: -EAGAIN: nobody has looked for it, else python__find's error. */
	struct python python;
	int python_err;
	enum program program;
	struct rank_id rank;
	uint8_t exec_id[EXEC_ID_BYTES]; /* all 0: not known */
	struct job_id id;
	pid_t above;                     /* the nearest of its ancestors that has torch or JAX; 0: none */
	struct proc_extent extent;       /* when it was examined last */
	uint64_t first_seen_ns, seen_ns; /* when it was examined first, and last (CLOCK_MONOTONIC) */
	/* What follows from all of them: */
	enum training_role role;
	pid_t of;    /* a worker or helper: the trainer or launcher whose it is; 0: none is there */
	int workers; /* that are `of` it */
	size_t job;  /* index of the first process of its job */
};

/* All zeros: none. */
struct trainings {
	struct training *items; /* by pid */
	size_t cnt;
	size_t hidden;       /* processes that may not be examined */
	pid_t stopped_at;    /* the time of the last look was over before it; 0: it has looked at all */
	struct array others; /* struct other_process (trainings.c), by pid: those that are no training processes */
};

/* Looks at all processes of the host. 0 or -ENOMEM. Free with trainings__release. */
int trainings__find(struct trainings *out);
/*
 * The same, where *t is what an earlier look found: who is sure to be what it was is not examined
 * again, and has no files any more. limit_ns: how long it may examine processes (0: as long as it
 * takes); after that who is known is taken for what it was, and others are left to the next look,
 * which goes on there. After -ENOMEM *t is empty.
 */
int trainings__look_again(struct trainings *t, uint64_t limit_ns);
void trainings__release(struct trainings *t);

/* NULL: it is not in the table. */
struct training *trainings__pid(const struct trainings *t, pid_t pid);

/* Is it what one records? */
bool training__is_target(const struct training *training);

/* "trainer", "worker", ... */
const char *training_role__name(enum training_role role);

#endif
