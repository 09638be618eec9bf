// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/targets.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/lib/capabilities.h"
#include "user/lib/log.h"
#include "user/report/print/text.h"

void pids__parse(struct argp_state *state, struct pids *pids, const char *text)
{
	do {
		char *end;
		long pid = strtol(text, &end, 10);

		if (end == text || (*end && *end != ',') || pid <= 0 || pid > INT32_MAX)
			argp_error(state, "'%s' is not a PID", text);
		if (pids->cnt == PIDS_MAX)
			argp_error(state, "more than %d PIDs", PIDS_MAX);
		pids->pid[pids->cnt++] = pid;
		text = *end ? end + 1 : NULL;
	} while (text);
}

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

#define LISTED_PIDS   8
#define SHOWN_COMMAND 80

error_t targets__option(struct argp_state *state, struct targets *targets, int key, char *arg)
{
	switch (key) {
	case 'p':
		pids__parse(state, &targets->pids, arg);
		return 0;
	case OPT_TARGET_JOB:
		if (!*arg)
			argp_error(state, "--job wants a name: that of a run, a Slurm job, a container or a cgroup");
		targets->job = arg;
		return 0;
	case OPT_TARGET_ALL:
		targets->all = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

bool targets__given(const struct targets *targets)
{
	return targets->pids.cnt || targets->job || targets->all;
}

void targets__check(struct argp_state *state, const struct targets *targets)
{
	if (!!targets->pids.cnt + !!targets->job + targets->all > 1)
		argp_error(state, "give only one of -p PID, --job NAME and --all");
}

/* Writes "PID 12" or "PIDs 12, 34 and 5 more". */
static void write_pids(const struct pids *pids, char *text, size_t size)
{
	size_t used = snprintf(text, size, "PID%s", pids->cnt == 1 ? "" : "s");

	for (size_t i = 0; i < pids->cnt && i < LISTED_PIDS; i++)
		used += snprintf(text + used, size - used, "%s %d", i ? "," : "", pids->pid[pids->cnt - 1 - i]);
	if (pids->cnt > LISTED_PIDS)
		snprintf(text + used, size - used, " and %zu more", pids->cnt - LISTED_PIDS);
}

/* The targets of one job. */
static void select_job(const struct trainings *t, size_t job, struct pids *pids)
{
	for (size_t i = t->cnt; i-- > 0 && pids->cnt < PIDS_MAX;)
		if (t->items[i].job == job && training__is_target(&t->items[i]))
			pids->pid[pids->cnt++] = t->items[i].process.pid;
}

static const struct training *find_training(const struct trainings *t, pid_t pid)
{
	const struct training *training = t->items;

	while (training->process.pid != pid)
		training++;
	return training;
}

/* "PIDs 12, 34 (python train.py)" */
static void describe(const struct trainings *t, const struct pids *pids, char *text, size_t size)
{
	const char *command = find_training(t, pids->pid[pids->cnt - 1])->process.command;
	char numbers[128];

	write_pids(pids, numbers, sizeof(numbers));
	snprintf(text, size, "%s (%.*s%s)", numbers, SHOWN_COMMAND, command,
		 strlen(command) > SHOWN_COMMAND ? "..." : "");
}

static int refuse_none(const struct trainings *t, const char *job, const char *verb)
{
	char fix[256];

	if (job) {
		log__error("stepflame ps --json lists the training processes with the names of their jobs",
			   "no training process of this host is of a job '%s'", job);
	} else {
		snprintf(fix, sizeof(fix),
			 "wait until the program has imported torch or JAX, give -p PID for another process%s",
			 strcmp(verb, "record") ? "" : ", or start one with: stepflame record -- CMD");
		log__error(fix, "there is nothing to %s: no process with torch or JAX is running here", verb);
	}
	trainings__warn_of_hidden(t->hidden);
	return SF_EXIT_TARGET;
}

static int refuse_several(const struct trainings *t, const char *verb)
{
	char fix[128];

	snprintf(fix, sizeof(fix), "say which: stepflame %s -p PID, or --job NAME; or --all of them", verb);
	log__error(fix, "%zu training jobs are running here", trainings__job_cnt(t));
	text__use_terminal(STDERR_FILENO);
	for (size_t job = 0; job < t->cnt; job++) {
		struct pids pids = {.cnt = 0};
		char text[256], name[64];

		select_job(t, job, &pids);
		if (!pids.cnt)
			continue;
		describe(t, &pids, text, sizeof(text));
		job_id__name(&find_training(t, pids.pid[0])->id, name, sizeof(name));
		text__wrapped(stderr, 4, "  %s%s%s", text, name[0] ? ", job " : "", name);
	}
	trainings__warn_of_hidden(t->hidden);
	return SF_EXIT_USAGE;
}

/* What has torch or JAX may look like a training process in other tools: says why it is none. */
static void log_left_out(const struct trainings *t, const char *job)
{
	for (size_t i = 0; !job && i < t->cnt; i++)
		if (t->items[i].role == TRAINING_NONE)
			log__info("left out: process %d (%s), which has torch or JAX but runs no Python",
				  t->items[i].process.pid, t->items[i].process.comm);
}

/* Returns the exit code. */
static int choose_targets(const struct trainings *t, struct targets *targets, const char *verb, const char *doing)
{
	bool only = !targets->all && !targets->job;
	char text[256];
	int err;

	if (only && trainings__job_cnt(t) > 1)
		return refuse_several(t, verb);
	err = trainings__select(t, targets->job, &targets->pids);
	if (err == -ESRCH)
		return refuse_none(t, targets->job, verb);
	if (err == -ENOTUNIQ) {
		log__error("give more characters of it", "several containers have an id that begins with %s",
			   targets->job);
		return SF_EXIT_USAGE;
	}
	if (err) {
		log__error("give some of them with -p PID, or --job NAME", "more than %d training processes", PIDS_MAX);
		return SF_EXIT_USAGE;
	}
	log_left_out(t, targets->job);
	describe(t, &targets->pids, text, sizeof(text));
	if (only)
		log__info("%s %s, the only training job %s", doing, text, t->hidden ? "that it may examine" : "here");
	else
		log__info("%s %s", doing, text);
	trainings__warn_of_hidden(t->hidden);
	return SF_EXIT_OK;
}

void targets__choose_or_die(struct targets *targets, const char *verb, const char *doing)
{
	struct trainings trainings;
	int code;

	if (targets->pids.cnt)
		return;
	if (trainings__find(&trainings)) {
		log__error(NULL, "out of memory");
		exit(SF_EXIT_ERROR);
	}
	code = choose_targets(&trainings, targets, verb, doing);
	trainings__release(&trainings);
	if (code)
		exit(code);
}

/* What would not record any process must end the program. */
static bool is_of_process(int err)
{
	return err != -ENOMEM && err != -EINTR;
}

int targets__attach(const struct targets *targets, struct session *session)
{
	size_t left_out = 0;

	for (size_t i = 0; i < targets->pids.cnt; i++) {
		bool others = left_out + 1 < targets->pids.cnt;
		bool may_end = (targets->job || targets->all) && others;
		int err = session__attach(session, targets->pids.pid[i], 0, may_end);

		if (err && (!others || !is_of_process(err)))
			return err;
		if (err && err != -ESRCH)
			log__warn(NULL, "process %d is left out of the recording", targets->pids.pid[i]);
		left_out += !!err;
	}
	return 0;
}
