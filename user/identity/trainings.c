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
	job_id__read(&training->process, &training->id);
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

bool training__is_target(const struct training *training)
{
	return training->role == TRAINING_TRAINER;
}
