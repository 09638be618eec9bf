/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The DataLoaders of a process, told apart. Each iterator of a DataLoader has a pipe of its own, which its workers write and the process
 * reads (REC_PIPE). Iterators that follow each other, have as many workers and are waited for at the same place are of one
 * DataLoader.
 */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_PARTS_H
#define STEPFLAME_USER_ANALYSIS_LOADER_PARTS_H

#include "user/analysis/loader.h"
#include "user/lib/array.h"
#include "user/model/job.h"

/* Empty: all 0. */
struct loader_parts {
	uint32_t
		cnt; /* loaders, by the order of their first batches; last, if any, workers whose loader is not known */
	struct array iterators; /* struct iterator, see loader_parts.c */
	struct array places;    /* struct loader_place, by loader */
	uint32_t *loader_of;    /* by wait; LOADER_NONE: not known */
	bool *first;            /* by wait: other loaders had their turn before it, or it is the first */
};

#define LOADER_NONE UINT32_MAX

/* Finds worker->iterator of all workers of a process; cnt stays 0 where no pipe was recorded. 0 or -1: no memory. */
int loader_parts__find_iterators(struct loader_parts *parts, const struct job *job, struct loader *whole);
/* Then, with the waits for all of them, finds the loaders. 0 or -1: no memory. */
int loader_parts__group(struct loader_parts *parts, const struct loader *whole);
/* And makes the part of a loader; its workers and waits are copies. 0 or -1: no memory. */
int loader_parts__make(const struct loader_parts *parts, const struct loader *whole, uint32_t number,
		       struct loader *part);
void loader_parts__release(struct loader_parts *parts);

#endif
