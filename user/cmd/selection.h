/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which of the training processes of this host a name means. In: a table of them. Out: pids. */
#ifndef STEPFLAME_USER_CMD_SELECTION_H
#define STEPFLAME_USER_CMD_SELECTION_H

#include <stddef.h>

#include "user/cmd/pids.h"
#include "user/identity/trainings.h"

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
