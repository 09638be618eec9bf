// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/selection.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "user/lib/capabilities.h"
#include "user/lib/log.h"

#define CONTAINER_MIN 4 /* hex digits by which --job takes a container */
#define CGROUP_ROOT   "/sys/fs/cgroup"

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

static bool is_same(const char *a, const char *b)
{
	return a[0] && !strcmp(a, b);
}

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
	return is_same(training->id.run, name) || is_same(training->id.slurm, name) ||
	       is_same(training->id.container, name) || is_in_cgroup(training->id.cgroup, name);
}

static bool begins_container(const struct training *training, const char *name)
{
	return strlen(name) >= CONTAINER_MIN && !strncmp(training->id.container, name, strlen(name));
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
		if (first && strcmp(first->id.container, training->id.container))
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
