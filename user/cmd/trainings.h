/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The training processes of this host, those that have torch or JAX, and the jobs that they are of.
 * In: /proc. Out: a table of processes, and those of it that a name means. What a process says of
 * its job (its environment, its cgroup) is hostile text and nothing that one may rely on.
 */
#ifndef STEPFLAME_USER_CMD_TRAININGS_H
#define STEPFLAME_USER_CMD_TRAININGS_H

#include <stdbool.h>
#include <stddef.h>

#include "user/cmd/pids.h"
#include "user/proc/process.h"

#define CONTAINER_ID 64 /* hex digits */

struct training {
	struct process process;
	char rank[16];                    /* RANK; "": none, as in all texts here */
	char run[128];                    /* TORCHELASTIC_RUN_ID, unless it is torchrun's default */
	char slurm[32], slurm_step[32];   /* SLURM_JOB_ID, SLURM_STEP_ID */
	char cgroup[1024];                /* the path */
	char container[CONTAINER_ID + 1]; /* the id in that path */
	pid_t above;                      /* the nearest of its ancestors that has torch or JAX; 0: none */
	int workers;                      /* its children that have torch or JAX too */
	bool child;                       /* is such a child: forked, or started by multiprocessing */
	bool launcher;                    /* has started ranks, and is none itself: torchrun */
	size_t job;                       /* index of the first process of its job */
};

struct trainings {
	struct training *items; /* by pid */
	size_t cnt;
	size_t hidden; /* processes that may not be examined */
};

/* Looks at all processes of the host. 0 or -ENOMEM. Free with trainings__release. */
int trainings__find(struct trainings *out);
void trainings__release(struct trainings *t);

/*
 * Finds out, from the rest, what belongs together: sets workers, child, launcher and job. Ranks with
 * the same run, Slurm step or parent are one job, and so is what another one has started.
 */
void trainings__relate(struct trainings *t);

/* Finds the id of a container in the path of its cgroup: "" if there is none. */
void training__find_container(struct training *training);

/* Is it what one records? Not children, which are recorded with it, and not what launches ranks. */
bool training__is_target(const struct training *training);

/* Writes the name by which --job takes it, cut to size: "" if it has none. Returns name. */
const char *training__job_name(const struct training *training, char *name, size_t size);

/*
 * Selects the targets of the jobs that `name` means: a run of torchrun, a job of Slurm, a container
 * or the beginning of its id, a cgroup; NULL: of all jobs. Adds them to pids, each before the one
 * that has started it. 0; -ESRCH: none; -ENOTUNIQ: the beginning of several ids; -E2BIG: more than
 * PIDS_MAX.
 */
int trainings__select(const struct trainings *t, const char *name, struct pids *pids);

/* Says on stderr how many processes are hidden, why, and what to do; nothing where none is. */
void trainings__warn_of_hidden(size_t hidden);

/* Counts the jobs that have a target. */
size_t trainings__job_cnt(const struct trainings *t);

#endif
