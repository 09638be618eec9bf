/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The number of a rank, from what a process has in memory. What it says of itself is hostile text,
 * and nothing that one may rely on.
 */
#ifndef STEPFLAME_USER_IDENTITY_RANK_H
#define STEPFLAME_USER_IDENTITY_RANK_H

#include "user/proc/process.h"
#include "user/runtime/python/interpreter.h"

/* Where the number was found, the strongest first. */
enum rank_source {
	RANK_NONE,
	RANK_GROUP,      /* torch.distributed's process group in memory */
	RANK_ENVIRON,    /* RANK */
	RANK_LOCAL_RANK, /* LOCAL_RANK, with NODE_RANK and LOCAL_WORLD_SIZE (Lightning) */
	RANK_SLURM,      /* SLURM_PROCID */
	RANK_MPI,        /* OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, MV2_COMM_WORLD_RANK */
};

struct rank_id {
	int number; /* -1: none */
	enum rank_source source;
};

/*
 * Finds the rank of a process as it is now. python: NULL where none is known; then only the
 * environment counts.
 */
struct rank_id rank__read(const struct process *process, const struct python *python);

/* What a text says as a rank: a number from 0 to INT32_MAX; -1: something else. */
int rank__parse(const char *text);

/* "process group", "RANK", ...; NULL: of none. */
const char *rank_source__name(enum rank_source source);

/*
 * Has a process that a process with the rank `above` started, as a program of its own, only
 * inherited its rank? An environment is passed on to all that a rank starts.
 */
bool rank__is_inherited(const struct rank_id *rank, const struct rank_id *above);

#endif
