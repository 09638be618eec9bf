// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame ps: lists the training processes of this host, one line each, and what can be seen of
 * them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/cmd/cmd.h"
#include "user/lib/log.h"
#include "user/report/text.h"
#include "user/runtime/python/python.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

struct ps_row {
	struct process process;
	struct python python;
	int python_err;
	char torch[32], jax[16], rank[16];
	int workers; /* its children that have torch or JAX too */
	bool child;
};

static error_t parse_ps(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG)
		argp_error(state, "ps takes no argument");
	return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

const struct argp cmd_ps_argp = {
	.parser = parse_ps,
	.doc = "List the processes of this host that have torch or JAX, with what stepflame can see of them.\v"
	       "RANK is that in the process's environment. WORKERS counts its child processes that have torch or JAX, "
	       "such as those of a DataLoader; these have no line of their own.",
};

static int by_pid(const void *a, const void *b)
{
	const struct ps_row *x = a, *y = b;

	return x->process.pid - y->process.pid;
}

/* Collects the host's processes; where maps may not be read, only counts them. */
static size_t collect_processes(struct ps_row **rows, size_t *hidden)
{
	pid_t *pids = NULL;
	int cnt = process__list(&pids);
	size_t n = 0;

	*rows = calloc(cnt > 0 ? cnt : 1, sizeof(**rows));
	*hidden = 0;
	for (int i = 0; *rows && i < cnt; i++) {
		struct ps_row *row = &(*rows)[n];
		const struct mapped_file *torch, *jax;
		int err = process__read(pids[i], &row->process);

		if (err) {
			*hidden += err == -EACCES || err == -EPERM;
			continue;
		}
		torch = torch__file(&row->process);
		jax = jax__file(&row->process);
		if (!torch && !jax) {
			process__release(&row->process);
			continue;
		}
		if (torch)
			torch__version(&row->process, torch, row->torch, sizeof(row->torch));
		if (jax)
			jax__version(&row->process, jax, row->jax, sizeof(row->jax));
		if (process__environ(pids[i], "RANK", row->rank, sizeof(row->rank)))
			strcpy(row->rank, "-");
		row->python_err = python__find(&row->process, &row->python, NULL);
		n++;
	}
	free(pids);
	qsort(*rows, n, sizeof(**rows), by_pid);
	return n;
}

/*
 * Is the process forked, or started by multiprocessing, rather than a program of its own that a
 * process with torch started?
 */
static bool is_part_of(const struct process *process, const struct process *parent)
{
	return process->parent == parent->pid &&
	       (!strcmp(process->command, parent->command) || strstr(process->command, "multiprocessing"));
}

static void count_ps_workers(struct ps_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < n; k++) {
			if (!is_part_of(&rows[i].process, &rows[k].process) || strcmp(rows[i].rank, rows[k].rank))
				continue;
			rows[i].child = true;
			rows[k].workers++;
		}
	}
}

static const char *what_is_mapped_of_cuda(const struct ps_row *row)
{
	if (process__file(&row->process, "libcuda.so"))
		return ", CUDA";
	return process__file(&row->process, "libcudart") ? ", CUDA (no driver)" : "";
}

static const char *what_is_seen(const struct ps_row *row)
{
	if (!row->torch[0] && row->jax[0])
		return row->python_err ? "jitted calls (Python not supported)" : "jitted calls, compiles";
	if (row->python_err == -ENOENT)
		return "labels (no Python)";
	if (row->python_err)
		return "labels (Python not supported)";
	if (!row->python.functions.next)
		return "labels (no next() found)";
	return "actions, labels";
}

int cmd_ps(int argc, char **argv)
{
	struct ps_row *rows;
	size_t hidden, n, shown = 0;

	argp_parse(&cmd_ps_argp, argc, argv, 0, NULL, NULL);
	n = collect_processes(&rows, &hidden);
	if (!rows)
		return SF_EXIT_ERROR;
	count_ps_workers(rows, n);
	for (size_t i = 0; i < n; i++) {
		const struct ps_row *r = &rows[i];
		char seen[64], framework[64];

		if (r->child)
			continue;
		if (!shown++)
			printf("%8s %5s %7s %-8s %-14s %-32s %s\n", "PID", "RANK", "WORKERS", "PYTHON", "TORCH/JAX",
			       "SEEN", "COMMAND");
		snprintf(framework, sizeof(framework), "%s%s%s%s", r->torch, r->torch[0] && r->jax[0] ? "+" : "",
			 r->jax[0]     ? "JAX "
			 : r->torch[0] ? ""
				       : "-",
			 r->jax);
		snprintf(seen, sizeof(seen), "%s%s", what_is_seen(r), what_is_mapped_of_cuda(r));
		text__line(stdout, "%8d %5s %7d %-8s %-14s %-32s %s", r->process.pid, r->rank, r->workers,
			   r->python.version[0] ? r->python.version : "-", framework, seen, r->process.command);
	}
	for (size_t i = 0; i < n; i++)
		process__release(&rows[i].process);
	free(rows);
	if (!shown)
		log__info("no process with torch or JAX is running here");
	if (hidden)
		log__warn("run stepflame ps as root (sudo) to see them too",
			  "stepflame may not examine %zu process%s of other users", hidden, hidden == 1 ? "" : "es");
	return fflush(stdout) ? SF_EXIT_ERROR : SF_EXIT_OK;
}
