// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* In: a process and its interpreter. Out: struct rank_id, struct job_id, a record. No state. */
#include "user/identity/job_id.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/proc/environ.h"
#include "user/runtime/torch/torch.h"

/* ---- the rank ---- */

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

struct rank_id rank__read(const struct process *process, const struct python *python)
{
	struct process_group group;

	if (python && python->started && !process_group__read(process->pid, python, &group))
		return (struct rank_id){group.rank, RANK_GROUP};
	return rank_of_environ(process);
}

/* ---- the job ---- */

void job_id__find_container(struct job_id *id)
{
	const char *at = id->cgroup;

	id->container[0] = 0;
	while (*at) {
		size_t digits = strspn(at, "0123456789abcdef");

		if (digits == CONTAINER_ID)
			snprintf(id->container, sizeof(id->container), "%.*s", CONTAINER_ID, at);
		at += digits ?: 1;
	}
}

void job_id__read(const struct process *process, struct job_id *out)
{
	const struct environ_value values[] = {
		{"TORCHELASTIC_RUN_ID", out->run, sizeof(out->run)},
		{"SLURM_JOB_ID", out->slurm, sizeof(out->slurm)},
		{"SLURM_STEP_ID", out->slurm_step, sizeof(out->slurm_step)},
		{"PMIX_NAMESPACE", out->mpi, sizeof(out->mpi)},
		{"MASTER_ADDR", out->address, sizeof(out->address)},
		{"MASTER_PORT", out->port, sizeof(out->port)},
		{"LOCAL_RANK", out->local_rank, sizeof(out->local_rank)},
		{"WORLD_SIZE", out->size, sizeof(out->size)},
		{"TORCHELASTIC_RESTART_COUNT", out->restarts, sizeof(out->restarts)},
	};

	*out = (struct job_id){0};
	process__environs_now(process, values, sizeof(values) / sizeof(*values));
	if (!strcmp(out->run, "none")) /* torchrun's default, of any number of jobs */
		out->run[0] = 0;
	if (!process__cgroup(process->pid, out->cgroup, sizeof(out->cgroup)))
		job_id__find_container(out);
}

enum launcher job_id__launcher(const struct job_id *id)
{
	return id->run[0] || id->restarts[0] ? LAUNCHER_TORCHRUN
	       : id->slurm[0]                ? LAUNCHER_SLURM
	       : id->container[0]            ? LAUNCHER_CONTAINER
	       : id->mpi[0]                  ? LAUNCHER_MPI
					     : LAUNCHER_NONE;
}

const char *job_id__name(const struct job_id *id, char *name, size_t size)
{
	if (id->run[0])
		snprintf(name, size, "%s", id->run);
	else if (id->slurm[0])
		snprintf(name, size, "%s", id->slurm);
	else
		snprintf(name, size, "%.12s", id->container);
	return name;
}

void job_id__to_record(const struct job_id *id, struct rec_job *out)
{
	const char *const ids[] = {
		[LAUNCHER_NONE] = "",     [LAUNCHER_TORCHRUN] = id->run,        [LAUNCHER_SLURM] = id->slurm,
		[LAUNCHER_MPI] = id->mpi, [LAUNCHER_CONTAINER] = id->container,
	};

	out->launcher = job_id__launcher(id);
	out->local_rank = rank__parse(id->local_rank);
	out->world_size = rank__parse(id->size);
	out->restarts = rank__parse(id->restarts);
	job_id__name(id, out->name, sizeof(out->name));
	snprintf(out->id, sizeof(out->id), "%.*s", (int)sizeof(out->id) - 1, ids[out->launcher]);
	if (id->address[0] && id->port[0])
		snprintf(out->meets, sizeof(out->meets), "%.62s %s", id->address, id->port);
	snprintf(out->cgroup, sizeof(out->cgroup), "%.*s", (int)sizeof(out->cgroup) - 1, id->cgroup);
}

const char *launcher__name(unsigned int launcher)
{
	static const char *const names[] = {
#define X(id, name) [LAUNCHER_##id] = name,
		STEPFLAME_LAUNCHERS(X)
#undef X
	};

	return launcher < LAUNCHER__COUNT ? names[launcher] : "";
}
