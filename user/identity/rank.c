/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the number of a rank. In: a process and its interpreter. Out: struct rank_id. No state. */
#include "user/identity/rank.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "user/proc/environ.h"
#include "user/runtime/torch/torch.h"

int rank__parse(const char *text)
{
	char *end;
	long rank;

	if (!isdigit((unsigned char)*text))
		return -1;
	errno = 0;
	rank = strtol(text, &end, 10);
	return *end || errno || rank > INT32_MAX ? -1 : (int)rank;
}

const char *rank_source__name(enum rank_source source)
{
	static const char *const names[] = {
		[RANK_NONE] = NULL,
		[RANK_GROUP] = "process group",
		[RANK_ENVIRON] = "RANK",
		[RANK_LOCAL_RANK] = "LOCAL_RANK",
		[RANK_SLURM] = "SLURM_PROCID",
		[RANK_MPI] = "MPI",
	};

	return names[source];
}

bool rank__is_inherited(const struct rank_id *rank, const struct rank_id *above)
{
	return rank->source != RANK_GROUP && rank->number >= 0 && rank->number == above->number;
}

/* ---- the environment ---- */

enum variable {
	VARIABLE_RANK,
	VARIABLE_LOCAL_RANK,
	VARIABLE_NODE_RANK,
	VARIABLE_GROUP_RANK,
	VARIABLE_LOCAL_SIZE,
	VARIABLE_SLURM,
	VARIABLE_OMPI,
	VARIABLE_PMIX,
	VARIABLE_PMI,
	VARIABLE_MV2,
	VARIABLE_CNT,
};

static const char *const variable_names[VARIABLE_CNT] = {
	[VARIABLE_RANK] = "RANK",
	[VARIABLE_LOCAL_RANK] = "LOCAL_RANK",
	[VARIABLE_NODE_RANK] = "NODE_RANK",
	[VARIABLE_GROUP_RANK] = "GROUP_RANK",
	[VARIABLE_LOCAL_SIZE] = "LOCAL_WORLD_SIZE",
	[VARIABLE_SLURM] = "SLURM_PROCID",
	[VARIABLE_OMPI] = "OMPI_COMM_WORLD_RANK",
	[VARIABLE_PMIX] = "PMIX_RANK",
	[VARIABLE_PMI] = "PMI_RANK",
	[VARIABLE_MV2] = "MV2_COMM_WORLD_RANK",
};

/*
 * Lightning's ddp gives LOCAL_RANK and NODE_RANK. On the first node that is the rank; on another one
 * it takes how many ranks a node has.
 */
static int rank_of_local(const int numbers[VARIABLE_CNT])
{
	int node = numbers[VARIABLE_NODE_RANK] >= 0 ? numbers[VARIABLE_NODE_RANK] : numbers[VARIABLE_GROUP_RANK];
	int local = numbers[VARIABLE_LOCAL_RANK], size = numbers[VARIABLE_LOCAL_SIZE];
	int64_t rank;

	if (local < 0 || node <= 0)
		return node ? -1 : local;
	rank = (int64_t)node * size + local;
	return size <= local || rank > INT32_MAX ? -1 : (int)rank;
}

static struct rank_id rank_of_environ(const struct process *process)
{
	static const enum variable mpi[] = {VARIABLE_OMPI, VARIABLE_PMIX, VARIABLE_PMI, VARIABLE_MV2};
	struct environ_value values[VARIABLE_CNT];
	char texts[VARIABLE_CNT][24];
	int numbers[VARIABLE_CNT];

	for (int i = 0; i < VARIABLE_CNT; i++)
		values[i] = (struct environ_value){variable_names[i], texts[i], sizeof(texts[i])};
	if (process__environs_now(process, values, VARIABLE_CNT))
		return (struct rank_id){.number = -1};
	for (int i = 0; i < VARIABLE_CNT; i++)
		numbers[i] = rank__parse(texts[i]);
	if (numbers[VARIABLE_RANK] >= 0)
		return (struct rank_id){numbers[VARIABLE_RANK], RANK_ENVIRON};
	if (rank_of_local(numbers) >= 0)
		return (struct rank_id){rank_of_local(numbers), RANK_LOCAL_RANK};
	if (numbers[VARIABLE_SLURM] >= 0)
		return (struct rank_id){numbers[VARIABLE_SLURM], RANK_SLURM};
	for (size_t i = 0; i < sizeof(mpi) / sizeof(*mpi); i++)
		if (numbers[mpi[i]] >= 0)
			return (struct rank_id){numbers[mpi[i]], RANK_MPI};
	return (struct rank_id){.number = -1};
}

/* ---- all ---- */

struct rank_id rank__read(const struct process *process, const struct python *python)
{
	struct process_group group;

	if (python && python->started && !process_group__read(process->pid, python, &group))
		return (struct rank_id){group.rank, RANK_GROUP};
	return rank_of_environ(process);
}
