/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells the DataLoaders of a process apart. Each iterator of a DataLoader has its own pipe, which
 * its workers write and the process reads (REC_PIPE). Consecutive iterators that have equally many
 * workers, and for which the process waits at the same place, belong to one DataLoader.
 */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_LOADER_PARTS_H
#define STEPFLAME_USER_ANALYSIS_LOADER_LOADER_PARTS_H

#include "user/analysis/loader/loader.h"
#include "user/lib/array.h"
#include "user/model/job.h"

/* All zeros: empty. */
struct loader_parts {
	uint32_t cnt;           /* loaders by their first batch; the last may hold workers whose loader is not known */
	struct array iterators; /* struct iterator, see loader_parts.c */
	struct array places;    /* struct loader_place, by loader */
	uint32_t *loader_of;    /* by wait; LOADER_NONE: not known */
	bool *first;            /* by wait: whether it is the first, or follows other loaders' turns */
};

#define LOADER_NONE UINT32_MAX

/*
 * First step: sets worker->iterator for all workers of a process. cnt stays 0 if no pipe was
 * recorded. 0 or -1: no memory.
 */
int loader_parts__find_iterators(struct loader_parts *parts, const struct job *job, struct loader *whole);
/* Second step: finds the loaders, given the waits for all of them. 0 or -1: no memory. */
int loader_parts__group(struct loader_parts *parts, const struct loader *whole);
/*
 * Third step: builds the part of one loader, with copies of its workers and waits. 0 or -1: no
 * memory.
 */
int loader_parts__make(const struct loader_parts *parts, const struct loader *whole, uint32_t number,
		       struct loader *part);
void loader_parts__release(struct loader_parts *parts);

#endif
