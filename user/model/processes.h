/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which processes a report covers, and how long they were recorded. */
#ifndef STEPFLAME_USER_MODEL_PROCESSES_H
#define STEPFLAME_USER_MODEL_PROCESSES_H

#include "user/model/job.h"

#define PROCESSES_ALL_MAIN 0 /* instead of a pid: all main processes, added together */

/* Whether a row of row_pid belongs in the table of pid. */
bool processes__in_scope(const struct job *job, uint32_t row_pid, uint32_t pid);
/*
 * Lists the processes that have a table of their own with --per-rank: targets in their order, where
 * targets that are not main processes must be among `pids`, then the pids without a target.
 * malloc'ed into *out. 0 or -ENOMEM (also if pids is NULL).
 */
int processes__list(const struct job *job, const uint32_t *pids, size_t pid_cnt, struct rec_target **out, size_t *cnt);

/*
 * Whether two training processes are known to be of different jobs, by what each says of its own: the number that a launcher
 * gave the job, and where its ranks meet. A container says nothing: each rank may be in one of its own.
 */
bool processes__of_other_jobs(struct job *job, uint32_t a, uint32_t b);

/* "killed by SIGKILL", "exit status 1", of a wait status; malloc'ed. NULL: no memory. */
char *processes__end_text(int status);

/* How long a recording has seen its processes, without their rests: of the main processes, what is known of the one that rested least. */
struct seen {
	uint32_t pid;           /* 0: none */
	uint64_t whole_ns;      /* of the recording */
	uint64_t ns;            /* of these, in which it was recorded */
	uint32_t budget_micros; /* 0: no budget */
	uint32_t rests, parts;  /* parts: windows between the rests */
};

struct seen job__seen(const struct job *job);

/* Steps of a process in its rests, by their ticks (STEP_TICK), as far as the recording has its events. */
struct rest_steps {
	uint64_t cnt, median_ns, longest_ns;
};

/* 0 or -ENOMEM. */
int job__rest_steps(const struct job *job, uint32_t pid, struct rest_steps *out);

#endif
