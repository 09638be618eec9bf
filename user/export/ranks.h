/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The rank that a process has in a trace. Holistic Trace Analysis (HTA) shows one trace for each
 * rank, so two processes of a trace, or two traces of a folder, must not have the same one.
 */
#ifndef STEPFLAME_USER_EXPORT_RANKS_H
#define STEPFLAME_USER_EXPORT_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "user/model/job.h"

struct export_rank {
	uint32_t pid; /* of a process that trains */
	int rank;     /* -1: none */
	bool given;   /* by stepflame: the process has none */
};

struct export_ranks {
	struct export_rank *items; /* by pid; owned */
	size_t cnt;
	bool any_given;
};

/*
 * Of several processes, those that have no rank get the lowest numbers that are free, by their pids;
 * the only process of a recording gets none. 0 or -ENOMEM. Free with export_ranks__release.
 */
int export_ranks__find(const struct job *job, struct export_ranks *out);
void export_ranks__release(struct export_ranks *ranks);

/* -1: the process has none, or does not train. */
int export_ranks__of(const struct export_ranks *ranks, uint32_t pid);

/*
 * Another trace in the folder of path that is of this rank: the name of its file, malloc'ed; NULL:
 * there is none, or no memory. Reads only the first bytes of at most some hundred regular files,
 * which may be anybody's.
 */
char *export_ranks__other_trace(const char *path, int rank);

#endif
