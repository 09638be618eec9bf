// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/trainings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/capabilities.h"
#include "user/lib/log.h"
#include "user/proc/proc.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

#define ANCESTORS_MAX 64 /* generations; a pid that is used again could make a circle */
#define CONTAINER_MIN 4  /* hex digits by which --job takes a container */
#define CGROUP_ROOT   "/sys/fs/cgroup"

/* ---- what there is ---- */

static int by_pid(const void *a, const void *b)
{
	const struct training *x = a, *y = b;

	return x->process.pid - y->process.pid;
}

static struct training *find_pid(const struct trainings *t, pid_t pid)
{
	for (size_t i = 0; i < t->cnt; i++)
		if (t->items[i].process.pid == pid)
			return &t->items[i];
	return NULL;
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
		{"RANK", training->rank, sizeof(training->rank)},
		{"TORCHELASTIC_RUN_ID", training->run, sizeof(training->run)},
		{"SLURM_JOB_ID", training->slurm, sizeof(training->slurm)},
		{"SLURM_STEP_ID", training->slurm_step, sizeof(training->slurm_step)},
	};
	pid_t pid = training->process.pid;

	process__environs(pid, values, sizeof(values) / sizeof(*values));
	if (!strcmp(training->run, "none")) /* torchrun's default, of any number of jobs */
		training->run[0] = 0;
	if (!process__cgroup(pid, training->cgroup, sizeof(training->cgroup)))
		training__find_container(training);
}

static void find_above(struct trainings *t, struct training *training)
{
	pid_t pid = training->process.parent;
	struct proc_stat stat;

	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		if (find_pid(t, pid)) {
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
		read_job(training);
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

void trainings__warn_of_hidden(size_t hidden)
{
	const char *es = hidden == 1 ? "" : "es";

	if (!hidden)
		return;
	if (capabilities__held() & CAPABILITY(CAP_SYS_PTRACE))
		log__warn("to include hidden processes, run stepflame on the host, not in a container or user "
			  "namespace; stepflame doctor says what restricts it",
			  "stepflame may not examine %zu process%s", hidden, es);
	else
		log__warn("to include hidden processes, run stepflame as root (sudo), or with CAP_SYS_PTRACE",
			  "stepflame may not examine %zu process%s of other users: CAP_SYS_PTRACE is missing", hidden,
			  es);
}

/* ---- what belongs together ---- */

/*
 * Is the process forked, or started by multiprocessing, rather than a program of its own that a
 * process with torch started?
 */
static bool is_part_of(const struct process *process, const struct process *parent)
{
	return process->parent == parent->pid &&
	       (!strcmp(process->command, parent->command) || strstr(process->command, "multiprocessing"));
}

static void count_workers(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++) {
		struct training *child = &t->items[i], *parent = find_pid(t, child->process.parent);

		if (!parent || !is_part_of(&child->process, &parent->process) || strcmp(child->rank, parent->rank))
			continue;
		child->child = true;
		parent->workers++;
	}
}

static void find_launchers(struct trainings *t)
{
	for (size_t i = 0; i < t->cnt; i++) {
		const struct training *rank = &t->items[i];
		struct training *parent = rank->child || !rank->rank[0] ? NULL : find_pid(t, rank->above);

		if (parent && !parent->rank[0])
			parent->launcher = true;
	}
}

static bool is_same(const char *a, const char *b)
{
	return a[0] && !strcmp(a, b);
}

static bool is_same_job(const struct training *a, const struct training *b)
{
	if (a->above == b->process.pid || b->above == a->process.pid)
		return true;
	if (is_same(a->run, b->run) || (is_same(a->slurm, b->slurm) && is_same(a->slurm_step, b->slurm_step)))
		return true;
	return a->rank[0] && b->rank[0] && a->process.parent > 1 && a->process.parent == b->process.parent;
}

static void join_jobs(struct trainings *t, size_t a, size_t b)
{
	size_t first = a < b ? a : b, other = a < b ? b : a;

	for (size_t i = 0; i < t->cnt; i++)
		if (t->items[i].job == other)
			t->items[i].job = first;
}

void trainings__relate(struct trainings *t)
{
	count_workers(t);
	find_launchers(t);
	for (size_t i = 0; i < t->cnt; i++)
		t->items[i].job = i;
	for (size_t i = 0; i < t->cnt; i++)
		for (size_t k = 0; k < i; k++)
			if (t->items[i].job != t->items[k].job && is_same_job(&t->items[i], &t->items[k]))
				join_jobs(t, t->items[i].job, t->items[k].job);
}

bool training__is_target(const struct training *training)
{
	return !training->child && !training->launcher;
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

/* ---- what a name means ---- */

/* Is the path that of the cgroup, or below it? */
static bool is_in_cgroup(const char *path, const char *cgroup)
{
	size_t length;

	if (!strncmp(cgroup, CGROUP_ROOT "/", strlen(CGROUP_ROOT "/")))
		cgroup += strlen(CGROUP_ROOT);
	length = strlen(cgroup);
	while (length && cgroup[length - 1] == '/')
		length--;
	return cgroup[0] == '/' && path[0] && !strncmp(path, cgroup, length) && (!path[length] || path[length] == '/');
}

static bool is_named(const struct training *training, const char *name)
{
	return is_same(training->run, name) || is_same(training->slurm, name) || is_same(training->container, name) ||
	       is_in_cgroup(training->cgroup, name);
}

static bool begins_container(const struct training *training, const char *name)
{
	return strlen(name) >= CONTAINER_MIN && !strncmp(training->container, name, strlen(name));
}

static bool is_selected(const struct training *training, const char *name, bool begins)
{
	if (!training__is_target(training))
		return false;
	return !name || (begins ? begins_container(training, name) : is_named(training, name));
}

static bool started_later(const struct training *a, const struct training *b)
{
	if (a->process.start_time != b->process.start_time)
		return a->process.start_time > b->process.start_time;
	return a->process.pid > b->process.pid;
}

/* A process starts after the one that starts it. */
static int add_selected(const struct trainings *t, const char *name, bool begins, struct pids *pids)
{
	const struct training *last = NULL;

	while (true) {
		const struct training *next = NULL;

		for (size_t i = 0; i < t->cnt; i++) {
			const struct training *training = &t->items[i];

			if (is_selected(training, name, begins) && (!last || started_later(last, training)) &&
			    (!next || started_later(training, next)))
				next = training;
		}
		if (!next)
			return 0;
		if (pids->cnt == PIDS_MAX)
			return -E2BIG;
		pids->pid[pids->cnt++] = next->process.pid;
		last = next;
	}
}

int trainings__select(const struct trainings *t, const char *name, struct pids *pids)
{
	const struct training *first = NULL;
	bool begins = name;

	for (size_t i = 0; i < t->cnt; i++)
		begins &= !is_selected(&t->items[i], name, false);
	for (size_t i = 0; begins && i < t->cnt; i++) {
		const struct training *training = &t->items[i];

		if (!is_selected(training, name, true))
			continue;
		if (first && strcmp(first->container, training->container))
			return -ENOTUNIQ;
		first = training;
	}
	return add_selected(t, name, begins, pids) ?: pids->cnt ? 0 : -ESRCH;
}

size_t trainings__job_cnt(const struct trainings *t)
{
	size_t cnt = 0;

	for (size_t i = 0; i < t->cnt; i++) {
		bool counts = training__is_target(&t->items[i]);

		for (size_t k = 0; k < i; k++)
			counts &= t->items[k].job != t->items[i].job || !training__is_target(&t->items[k]);
		cnt += counts;
	}
	return cnt;
}
