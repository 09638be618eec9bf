/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process says of the job that it is of, and of its rank in it: by its environment, its cgroup
 * and what it has in memory. Hostile text, and nothing that one may rely on.
 */
#ifndef STEPFLAME_USER_IDENTITY_JOB_ID_H
#define STEPFLAME_USER_IDENTITY_JOB_ID_H

#include "include/resource_records.h"
#include "user/proc/process.h"
#include "user/runtime/python/interpreter.h"

#define CONTAINER_ID 64 /* hex digits */

/* Texts are "" where there is none. */
struct job_id {
	char run[128];                               /* TORCHELASTIC_RUN_ID, unless it is torchrun's default */
	char slurm[32], slurm_step[32];              /* SLURM_JOB_ID, SLURM_STEP_ID */
	char mpi[64];                                /* PMIX_NAMESPACE: a job of MPI */
	char address[64], port[16];                  /* MASTER_ADDR, MASTER_PORT, where the ranks meet */
	char local_rank[12], size[12], restarts[12]; /* LOCAL_RANK, WORLD_SIZE, TORCHELASTIC_RESTART_COUNT */
	char cgroup[1024];                           /* the path */
	char container[CONTAINER_ID + 1];            /* the id in that path */
};

/* What cannot be read is left empty: the process has ended, or does not answer. */
void job_id__read(const struct process *process, struct job_id *out);
/* Finds the id of a container in the path of its cgroup: "" if there is none. */
void job_id__find_container(struct job_id *id);
/* What started it, as far as it is known. */
enum launcher job_id__launcher(const struct job_id *id);
/* The name by which --job takes it, cut to size: "" if it has none. Returns name. */
const char *job_id__name(const struct job_id *id, char *name, size_t size);
/* Fills in all but the header, the pid and the times. */
void job_id__to_record(const struct job_id *id, struct rec_job *out);

const char *launcher__name(unsigned int launcher); /* "torchrun"; "" for an invalid value */

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

#endif
