/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Joins DataLoader workers to the process that waits for their batches: by who ended its waits
 * (struct rec_sample), by what the worker did meanwhile, and by the pipes that carry the batches,
 * which tell the loaders of a process apart. Built from the samples of a job once; free it before
 * the job and the steps.
 */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_WORKERS_H
#define STEPFLAME_USER_ANALYSIS_LOADER_WORKERS_H

#include "user/analysis/loader/loader.h"
#include "user/analysis/steps/steps.h"

struct workers;

/* steps: of the same job. NULL: no memory. */
struct workers *workers__new(struct job *job, const struct steps *steps);
void workers__free(struct workers *workers); /* accepts NULL */
/*
 * DataLoaders of the processes that have workers or wait for them, in the order of the targets,
 * then of their first batches. NULL only with *cnt == 0.
 */
const struct loader *workers__loaders(const struct workers *workers, size_t *cnt);
/*
 * Is this a worker by what was recorded of it, or by the name that its main thread ended with? exit:
 * of the same process; NULL: not known.
 */
bool workers__ended_as_one(const struct rec_target *target, const struct rec_proc *exit);

#endif
