// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/identity/trainings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/clock.h"
#include "user/proc/deputy.h"
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
	struct proc_extent extent;
	int err; /* -ENOENT: it has neither torch nor JAX; else why it may not be examined */
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

/* What the deputy read last, for its next work. */
static struct process last_read;

/* Returns struct process, and then its files; -ENOENT: it has neither torch nor JAX. */
static int read_in_deputy(const void *in, struct deputy_out *out)
{
	const pid_t *pid = in;
	int err;

	process__release(&last_read);
	err = process__read(*pid, &last_read);
	if (err)
		return err;
	if (!torch__file(&last_read) && !jax__file(&last_read))
		return -ENOENT;
	memcpy(out->bytes, &last_read, sizeof(last_read));
	memcpy(out->bytes + sizeof(last_read), last_read.files, last_read.file_cnt * sizeof(*last_read.files));
	out->size = sizeof(last_read) + last_read.file_cnt * sizeof(*last_read.files);
	return 0;
}

struct examined {
	struct training training;
	size_t python_file; /* index of python.file */
};

static int examine_in_deputy(const void *in, struct deputy_out *out)
{
	const struct process *process = in;
	struct examined examined = {0};
	struct training *training = &examined.training;

	if (last_read.pid != process->pid || last_read.start_time != process->start_time)
		return -ESRCH; /* this deputy has not read it: the other one died */
	training->process = last_read;
	examine(training);
	examined.python_file = training->python.file ? training->python.file - last_read.files : 0;
	memcpy(out->bytes, &examined, sizeof(examined));
	out->size = sizeof(examined);
	return 0;
}

/* All of it by two works: it takes hundreds of reads. A process whose memory does not answer is one all the same. */
static int read_training(pid_t pid, struct training *out)
{
	const struct deputy_out *answer;
	struct examined examined;
	struct process process;
	int err = deputy__run(pid, read_in_deputy, &pid, sizeof(pid), &answer);

	if (err)
		return err;
	memcpy(&process, answer->bytes, sizeof(process));
	process.files = malloc(process.file_cnt * sizeof(*process.files) ?: 1);
	if (!process.files)
		return -ENOMEM;
	memcpy(process.files, answer->bytes + sizeof(process), process.file_cnt * sizeof(*process.files));
	err = deputy__run(pid, examine_in_deputy, &process, sizeof(process), &answer);
	*out = (struct training){.process = process};
	if (err == -ETIMEDOUT) {
		examine(out); /* what it asks the deputy fails at once from now on */
		return 0;
	}
	if (err) {
		process__release(&out->process);
		return err;
	}
	memcpy(&examined, answer->bytes, sizeof(examined));
	*out = examined.training;
	out->process = process;
	if (out->python.file)
		out->python.file = &out->process.files[examined.python_file];
	return 0;
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
static const struct other_process *find_other(const struct trainings *before, pid_t pid,
					      const struct proc_extent *extent)
{
	const struct other_process wanted = {.pid = pid};
	const struct other_process *other =
		before->others.cnt
			? bsearch(&wanted, before->others.items, before->others.cnt, sizeof(wanted), by_other_pid)
			: NULL;

	return other && proc_extent__same(&other->extent, extent) ? other : NULL;
}

/* How long may what was found be taken for what is? same: it has as much memory mapped as then. */
static uint64_t lasts_ns(const struct training *training, bool same)
{
	bool trains = training->role == TRAINING_TRAINER && training->program != PROGRAM_WAITS;

	if (training->program == PROGRAM_WORKER)
		return SURE_NS;
	if (training->program == PROGRAM_IMPORTS || training->program == PROGRAM_UNKNOWN)
		return 0;
	if (training->seen_ns - training->first_seen_ns < SETTLES_NS)
		return trains && same ? SETTLES_NS : 0;
	return trains ? SURE_NS : SETTLES_NS;
}

/* NULL: it is to be examined. *known: it is the same program as before, all the same. */
static struct training *find_known(const struct trainings *before, pid_t pid, const struct proc_extent *extent,
				   uint64_t now_ns, bool *known)
{
	struct training *training = trainings__pid(before, pid);

	*known = training && training->extent.start_time == extent->start_time &&
		 training->extent.stack_start == extent->stack_start;
	return *known && now_ns - training->seen_ns < lasts_ns(training, proc_extent__same(&training->extent, extent))
		       ? training
		       : NULL;
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
static int add(struct trainings *t, pid_t pid, const struct proc_extent *extent)
{
	struct training *training = &t->items[t->cnt];
	struct other_process *other;
	int err = read_training(pid, training);

	if (!err) {
		training->extent = *extent;
		t->cnt++;
	}
	t->hidden += err == -EACCES || err == -EPERM;
	if (err != -ENOENT && err != -EACCES && err != -EPERM)
		return err == -ENOMEM ? err : 0; /* what does not answer is asked again */
	other = array__add(&t->others, sizeof(*other));
	if (!other)
		return -ENOMEM;
	*other = (struct other_process){pid, *extent, err};
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
	struct proc_extent extent;
	struct proc_stat stat;
	size_t cnt = t->cnt;
	bool known;
	int err;

	if (proc__stat(pid, 0, &stat) || !proc_stat__is_program(&stat))
		return 0;
	extent = proc_stat__extent(&stat);
	other = find_other(before, pid, &extent);
	if (other) {
		struct other_process *again = array__add(&t->others, sizeof(*again));

		if (!again)
			return -ENOMEM;
		*again = *other;
		t->hidden += other->err != -ENOENT;
		return 0;
	}
	training = find_known(before, pid, &extent, now_ns, &known);
	if (training) {
		keep(t, training, &stat);
		return 0;
	}
	err = add(t, pid, &extent);
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
