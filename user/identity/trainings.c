// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/identity/trainings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/clock.h"
#include "user/proc/environ.h"
#include "user/proc/proc.h"
#include "user/runtime/python/python.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

#define ANCESTORS_MAX 64 /* generations; a pid that is used again could make a circle */

/* From a look to the next: */
#define SETTLES_NS 10000000000ull  /* a process is examined each time for so long, and so seldom then, */
#define SURE_NS    300000000000ull /* or so seldom, where it hardly will become something else */

/* A process that is not of interest, as it was when it was examined. */
struct other_process {
	pid_t pid;
	uint64_t start_time, stack_start, vm_bytes;
	int err; /* why it may not be examined; 0: it has neither torch nor JAX */
};

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

	training->above = 0;
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

/* ---- what is known from the last look ---- */

static int by_other_pid(const void *a, const void *b)
{
	const struct other_process *x = a, *y = b;

	return x->pid - y->pid;
}

static int by_number(const void *a, const void *b)
{
	return *(const pid_t *)a - *(const pid_t *)b;
}

/* Is it one that cannot have got torch or JAX since? Both map hundreds of megabytes. */
static const struct other_process *find_other(const struct trainings *before, pid_t pid, const struct proc_stat *stat)
{
	const struct other_process wanted = {.pid = pid};
	const struct other_process *other =
		before->others.cnt
			? bsearch(&wanted, before->others.items, before->others.cnt, sizeof(wanted), by_other_pid)
			: NULL;

	return other && other->start_time == stat->start_time && other->stack_start == stat->stack_start &&
			       other->vm_bytes == stat->vm_bytes
		       ? other
		       : NULL;
}

/* How long may what was found be taken for what is? */
static uint64_t lasts_ns(const struct training *training)
{
	if (training->program == PROGRAM_WORKER)
		return SURE_NS;
	if (training->seen_ns - training->first_seen_ns < SETTLES_NS || training->program == PROGRAM_IMPORTS ||
	    training->program == PROGRAM_UNKNOWN)
		return 0;
	return training->role == TRAINING_TRAINER && training->program != PROGRAM_WAITS ? SURE_NS : SETTLES_NS;
}

/* NULL: it is to be examined. *known: it is the same program as before, all the same. */
static struct training *find_known(const struct trainings *before, pid_t pid, const struct proc_stat *stat,
				   uint64_t now_ns, bool *known)
{
	struct training *training = trainings__pid(before, pid);

	*known = training && training->process.start_time == stat->start_time &&
		 training->stack_start == stat->stack_start;
	return *known && now_ns - training->seen_ns < lasts_ns(training) ? training : NULL;
}

/* ---- a look ---- */

static void keep(struct trainings *t, struct training *known, const struct proc_stat *stat)
{
	struct training *training = &t->items[t->cnt++];

	process__release(&known->process); /* files take half a megabyte */
	*training = *known;
	training->python.file = NULL;
	training->process.parent = stat->parent;
}

/* Examines a process. 0 or -ENOMEM. */
static int add(struct trainings *t, pid_t pid, const struct proc_stat *stat)
{
	struct training *training = &t->items[t->cnt];
	struct other_process *other;
	int err = process__read(pid, &training->process);

	if (!err && (torch__file(&training->process) || jax__file(&training->process))) {
		examine(training);
		training->stack_start = stat->stack_start;
		t->cnt++;
		return 0;
	}
	if (!err)
		process__release(&training->process);
	t->hidden += err == -EACCES || err == -EPERM;
	if (err && err != -EACCES && err != -EPERM)
		return 0; /* what does not answer is asked again */
	other = array__add(&t->others, sizeof(*other));
	if (!other)
		return -ENOMEM;
	*other = (struct other_process){pid, stat->start_time, stat->stack_start, stat->vm_bytes, err};
	return 0;
}

/* Who has started what is new may do something else by now. */
static void examine_above(struct trainings *t, const struct training *new, uint64_t now_ns)
{
	struct training *above = new->above ? trainings__pid(t, new->above) : NULL;

	if (!above || above->seen_ns == now_ns)
		return;
	above->program = program__read(&above->process, above->python_err ? NULL : &above->python);
	above->seen_ns = now_ns;
}

/* What is known of a process moves from `before` to *t, or it is examined. 0 or -ENOMEM. */
static int look_at(pid_t pid, struct trainings *before, struct trainings *t, uint64_t now_ns)
{
	const struct other_process *other;
	struct training *training;
	struct proc_stat stat;
	size_t cnt = t->cnt;
	bool known;
	int err;

	if (proc__stat(pid, 0, &stat) || !proc_stat__is_program(&stat))
		return 0;
	other = find_other(before, pid, &stat);
	if (other) {
		struct other_process *again = array__add(&t->others, sizeof(*again));

		if (!again)
			return -ENOMEM;
		*again = *other;
		t->hidden += other->err != 0;
		return 0;
	}
	training = find_known(before, pid, &stat, now_ns, &known);
	if (training) {
		keep(t, training, &stat);
		return 0;
	}
	err = add(t, pid, &stat);
	if (t->cnt > cnt) {
		t->items[cnt].seen_ns = now_ns;
		t->items[cnt].first_seen_ns = known ? trainings__pid(before, pid)->first_seen_ns : now_ns;
	}
	return err;
}

int trainings__look_again(struct trainings *t)
{
	uint64_t now_ns = clock__ns(CLOCK_MONOTONIC);
	struct trainings before = *t;
	pid_t *pids = NULL;
	int cnt = process__list(&pids), err;

	*t = (struct trainings){.items = calloc(cnt > 0 ? cnt : 1, sizeof(*t->items))};
	err = t->items ? 0 : -ENOMEM;
	if (cnt > 0)
		qsort(pids, cnt, sizeof(*pids), by_number);
	for (int i = 0; i < cnt && !err; i++)
		err = look_at(pids[i], &before, t, now_ns);
	free(pids);
	trainings__release(&before);
	if (err) {
		trainings__release(t);
		return err;
	}
	for (size_t i = 0; i < t->cnt; i++)
		find_above(t, &t->items[i]);
	for (size_t i = 0; i < t->cnt; i++)
		if (t->items[i].first_seen_ns == now_ns)
			examine_above(t, &t->items[i], now_ns);
	trainings__relate(t);
	return 0;
}

int trainings__find(struct trainings *out)
{
	*out = (struct trainings){0};
	return trainings__look_again(out);
}

void trainings__release(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++)
		process__release(&t->items[i].process);
	free(t->items);
	free(t->others.items);
	*t = (struct trainings){0};
}

bool training__is_target(const struct training *training)
{
	return training->role == TRAINING_TRAINER;
}
