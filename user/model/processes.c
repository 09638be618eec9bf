// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/processes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "include/resource_records.h"
#include "user/lib/percentile.h"
#include "user/lib/saturating.h"
#include "user/model/resources.h"
#include "user/model/rests.h"

bool processes__in_scope(const struct job *job, uint32_t row_pid, uint32_t pid)
{
	return pid == PROCESSES_ALL_MAIN ? job__is_main(job, row_pid) : row_pid == pid;
}

int processes__list(const struct job *job, const uint32_t *pids, size_t pid_cnt, struct rec_target **out, size_t *cnt)
{
	size_t target_cnt, used = 0;
	const struct rec_target *targets = job__targets(job, &target_cnt);
	struct rec_target *found = pids ? calloc(pid_cnt + target_cnt + 1, sizeof(*found)) : NULL;

	*out = found;
	*cnt = 0;
	if (!found)
		return -ENOMEM;
	for (size_t t = 0; t < target_cnt; t++) {
		bool has_rows = targets[t].role == ROLE_MAIN;

		for (size_t i = 0; i < pid_cnt && !has_rows; i++)
			has_rows = pids[i] == targets[t].pid;
		if (has_rows)
			found[used++] = targets[t];
	}
	for (size_t i = 0; i < pid_cnt; i++) {
		size_t k = 0;

		while (k < used && found[k].pid != pids[i])
			k++;
		if (k == used)
			found[used++] = (struct rec_target){
				.pid = pids[i],
				.role = job__is_main(job, pids[i]) ? ROLE_MAIN : ROLE_CHILD,
				.rank = -1,
			};
	}
	*cnt = used;
	return 0;
}

/* Whether two texts are both there, and not the same. */
static bool differ(const char *a, const char *b, size_t size)
{
	return *a && *b && strncmp(a, b, size) != 0;
}

static bool is_local(const char *address)
{
	return !strncmp(address, "127.", 4) || !strncmp(address, "localhost ", 10) || !strncmp(address, "::1 ", 4);
}

/* "ADDRESS PORT". The first rank may call itself localhost, which the others reach by its name. */
static bool meet_elsewhere(const struct rec_job *a, const struct rec_job *b)
{
	char x[sizeof(a->meets) + 1], y[sizeof(b->meets) + 1];
	const char *x_port, *y_port;

	snprintf(x, sizeof(x), "%.*s", (int)sizeof(a->meets), a->meets);
	snprintf(y, sizeof(y), "%.*s", (int)sizeof(b->meets), b->meets);
	x_port = strrchr(x, ' ');
	y_port = strrchr(y, ' ');
	if (!x_port || !y_port)
		return false;
	if (strcmp(x_port, y_port) != 0)
		return true;
	if (is_local(x) && is_local(y))
		return a->pid >> REC_PID_BITS != b->pid >> REC_PID_BITS;
	return !is_local(x) && !is_local(y) && strcmp(x, y) != 0;
}

bool processes__of_other_jobs(struct job *job, uint32_t a, uint32_t b)
{
	const struct rec_job *x = resources__job(job__resources(job), a), *y = resources__job(job__resources(job), b);

	if (!x || !y || a == b)
		return false;
	if (x->launcher == y->launcher && x->launcher != LAUNCHER_CONTAINER && differ(x->id, y->id, sizeof(x->id)))
		return true;
	return meet_elsewhere(x, y);
}

char *processes__end_text(int status)
{
	const char *name = WTERMSIG(status) ? sigabbrev_np(WTERMSIG(status)) : NULL;
	char *text;
	int length;

	if (name)
		length = asprintf(&text, "killed by SIG%s", name);
	else if (WTERMSIG(status))
		length = asprintf(&text, "killed by signal %d", WTERMSIG(status));
	else
		length = asprintf(&text, "exit status %d", WEXITSTATUS(status));
	return length < 0 ? NULL : text;
}

/* Up to end_ns. */
static uint64_t rested_ns(const struct rec_rest *last, uint64_t end_ns)
{
	uint64_t to = last->to_ns ?: end_ns;

	return saturating__add(last->before_ns, last->cnt && to > last->from_ns ? to - last->from_ns : 0);
}

struct seen job__seen(const struct job *job)
{
	const struct rec_window *window = job__window(job);
	uint64_t whole_ns = window->end_ns - window->start_ns, least_ns = UINT64_MAX;
	struct seen seen = {.whole_ns = whole_ns, .ns = whole_ns, .parts = 1};
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt && least_ns; i++) {
		const struct rec_rest *last = NULL;
		uint64_t ns;

		if (targets[i].role == ROLE_MAIN)
			last = rests__last(job__rests(job), targets[i].pid);
		ns = last ? rested_ns(last, window->end_ns) : 0;
		if (targets[i].role != ROLE_MAIN || ns >= least_ns)
			continue;
		least_ns = ns;
		seen.pid = targets[i].pid;
		seen.ns = ns < whole_ns ? whole_ns - ns : 0;
		seen.budget_micros = last ? last->budget_micros : 0;
		seen.rests = last ? last->cnt : 0;
		seen.parts = seen.rests + (!seen.rests || last->to_ns); /* it may rest at the end */
	}
	return seen;
}

int job__rest_steps(const struct job *job, uint32_t pid, struct rest_steps *out)
{
	size_t cnt;
	const struct rec_step *steps = job__boundaries(job, &cnt);
	uint64_t *all = malloc((cnt + 1) * 2 * sizeof(*all));

	*out = (struct rest_steps){0};
	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		if (steps[i].pid == pid && steps[i].rule == STEP_TICK && steps[i].phase_ns[PHASE_OTHER])
			all[out->cnt++] = steps[i].phase_ns[PHASE_OTHER];
	if (out->cnt) {
		out->median_ns = percentile__of(all, out->cnt, 50, all + cnt);
		out->longest_ns = all[cnt + out->cnt - 1];
	}
	free(all);
	return 0;
}
