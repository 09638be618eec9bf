// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/identity/job_id.h"

#include <stdio.h>
#include <string.h>

#include "user/identity/rank.h"
#include "user/proc/environ.h"
#include "user/proc/proc.h"

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
