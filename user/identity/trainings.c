// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/identity/trainings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/proc/environ.h"
#include "user/proc/proc.h"
#include "user/runtime/python/python.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

#define ANCESTORS_MAX 64 /* generations; a pid that is used again could make a circle */

static int by_pid(const void *a, const void *b)
{
	const struct training *x = a, *y = b;

	return x->process.pid - y->process.pid;
}

struct training *trainings__pid(const struct trainings *t, pid_t pid)
{
	const struct training wanted = {.process.pid = pid};

	return t->cnt ? bsearch(&wanted, t->items, t->cnt, sizeof(wanted), by_pid) : NULL;
}

void training__find_container(struct training *training)
{
	const char *at = training->cgroup;

	training->container[0] = 0;
	while (*at) {
		size_t digits = strspn(at, "0123456789abcdef");

		if (digits == CONTAINER_ID)
			snprintf(training->container, sizeof(training->container), "%.*s", CONTAINER_ID, at);
		at += digits ?: 1;
	}
}

/* What it says of its job. An error leaves that unknown: the process has ended, or does not answer. */
static void read_job(struct training *training)
{
	const struct environ_value values[] = {
		{"TORCHELASTIC_RUN_ID", training->run, sizeof(training->run)},
		{"SLURM_JOB_ID", training->slurm, sizeof(training->slurm)},
		{"SLURM_STEP_ID", training->slurm_step, sizeof(training->slurm_step)},
		{"PMIX_NAMESPACE", training->mpi, sizeof(training->mpi)},
		{"MASTER_ADDR", training->address, sizeof(training->address)},
		{"MASTER_PORT", training->port, sizeof(training->port)},
	};

	process__environs_now(&training->process, values, sizeof(values) / sizeof(*values));
	if (!strcmp(training->run, "none")) /* torchrun's default, of any number of jobs */
		training->run[0] = 0;
	if (!process__cgroup(training->process.pid, training->cgroup, sizeof(training->cgroup)))
		training__find_container(training);
}

static void examine(struct training *training)
{
	const struct python *python = &training->python;
	int err;

	training->rank.number = -1;
	training->python_err = -EAGAIN;
	if (torch__is_worker(&training->process)) { /* the name says it; a job may have hundreds */
		training->program = PROGRAM_WORKER;
		return;
	}
	err = training->python_err = python__find(&training->process, &training->python, NULL);
	if (!err || err == -ENOENT)
		training->program = program__read(&training->process, err ? NULL : python);
	training->rank = rank__read(&training->process, err ? NULL : python);
	program__exec_id(training->process.pid, training->exec_id);
	read_job(training);
}

static void find_above(struct trainings *t, struct training *training)
{
	pid_t pid = training->process.parent;
	struct proc_stat stat;

	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		if (trainings__pid(t, pid)) {
			training->above = pid;
			return;
		}
		if (proc__stat(pid, 0, &stat))
			return;
		pid = stat.parent;
	}
}

int trainings__find(struct trainings *out)
{
	pid_t *pids = NULL;
	int cnt = process__list(&pids);

	*out = (struct trainings){.items = calloc(cnt > 0 ? cnt : 1, sizeof(*out->items))};
	if (!out->items) {
		free(pids);
		return -ENOMEM;
	}
	for (int i = 0; i < cnt; i++) {
		struct training *training = &out->items[out->cnt];
		int err = process__read(pids[i], &training->process);

		if (err) {
			out->hidden += err == -EACCES || err == -EPERM;
			continue;
		}
		if (!torch__file(&training->process) && !jax__file(&training->process)) {
			process__release(&training->process);
			continue;
		}
		examine(training);
		out->cnt++;
	}
	free(pids);
	qsort(out->items, out->cnt, sizeof(*out->items), by_pid);
	for (size_t i = 0; i < out->cnt; i++)
		find_above(out, &out->items[i]);
	trainings__relate(out);
	return 0;
}

void trainings__release(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++)
		process__release(&t->items[i].process);
	free(t->items);
}

const char *training__job_name(const struct training *training, char *name, size_t size)
{
	if (training->run[0])
		snprintf(name, size, "%s", training->run);
	else if (training->slurm[0])
		snprintf(name, size, "%s", training->slurm);
	else
		snprintf(name, size, "%.12s", training->container);
	return name;
}

bool training__is_target(const struct training *training)
{
	return training->role == TRAINING_TRAINER;
}
