/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DataLoader workers joined to the process that waits for their batches: by who ended its waits (struct rec_sample), by
 * what the worker did meanwhile, and by the pipes through which batches come, which tell a process's loaders apart. Made of a job once, from its samples; ends before the job and the steps do.
 */
#ifndef STEPFLAME_USER_ANALYSIS_WORKERS_H
#define STEPFLAME_USER_ANALYSIS_WORKERS_H

#include "user/analysis/loader.h"
#include "user/analysis/steps.h"

struct workers;

/* NULL: no memory. steps are of the same job. */
struct workers *workers__new(struct job *job, const struct steps *steps);
void workers__free(struct workers *workers); /* accepts NULL */
/* DataLoaders of processes that have workers, or wait for some, in the order of the targets, then of their first batches. NULL only with *cnt == 0. */
const struct loader *workers__loaders(const struct workers *workers, size_t *cnt);

#endif
