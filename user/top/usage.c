// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/usage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/proc/proc.h"

static void thread_name(uint32_t pid, uint32_t tid, char name[16])
{
	struct proc_stat stat;

	*name = 0;
	if (!proc__stat(pid, tid, &stat))
		snprintf(name, 16, "%.*s", (int)strcspn(stat.comm, "\n"), stat.comm);
}

static const struct top_process *find_previous(const struct array *processes, uint32_t pid)
{
	const struct top_process *all = processes->items;

	for (size_t i = 0; i < processes->cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

/* What the ticks of CPU time are of the time since the last reading. */
static double percent_since(const struct usage *usage, uint64_t ticks, uint64_t now)
{
	return usage->time_ns && now > usage->time_ns
		       ? 100.0 * ticks / sysconf(_SC_CLK_TCK) / ((now - usage->time_ns) / 1e9)
		       : NAN;
}

static void read_limits(pid_t pid, struct cgroup_limits *out)
{
	struct cgroup_look look = {0};

	if (cgroup_look__limits(&look, pid, out))
		*out = (struct cgroup_limits){0};
	cgroup_look__release(&look);
	if (out->processors >= sysconf(_SC_NPROCESSORS_ONLN))
		out->processors = 0;
}

int usage__read(struct usage *usage, const struct job *job, struct top_usage *out)
{
	const uint64_t now = clock__ns(CLOCK_MONOTONIC), page_bytes = sysconf(_SC_PAGESIZE);
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	struct array processes = {0};
	uint64_t used = 0;
	bool has_limits = false;

	*out = (struct top_usage){.cpu_percent = NAN, .thread_name = thread_name};
	for (size_t i = 0; i < cnt; i++) {
		const struct top_process *before = find_previous(&usage->processes, targets[i].pid);
		struct top_process *process;
		struct proc_stat stat;
		uint64_t ticks;

		if (proc__stat(targets[i].pid, 0, &stat) || proc_stat__dead(&stat))
			continue;
		process = array__add(&processes, sizeof(*process));
		if (!process) {
			free(processes.items);
			return -ENOMEM;
		}
		process->pid = targets[i].pid;
		process->role = targets[i].role;
		memcpy(process->comm, stat.comm, sizeof(process->comm));
		process->ticks = stat.user_ticks + stat.system_ticks;
		process->rss_bytes = stat.rss_pages * page_bytes;
		process->threads = stat.thread_cnt;
		/* without one before, the process has started since */
		ticks = process->ticks - (before && before->ticks <= process->ticks ? before->ticks : 0);
		process->cpu_percent = percent_since(usage, ticks, now);
		used += ticks;
		out->rss_bytes += process->rss_bytes;
		out->threads += stat.thread_cnt;
		if (targets[i].role == ROLE_MAIN && !has_limits) {
			read_limits(targets[i].pid, &out->limits);
			has_limits = true;
		}
	}
	out->cpu_percent = percent_since(usage, used, now);
	out->processes = processes.cnt;
	free(usage->processes.items);
	usage->processes = processes;
	usage->time_ns = now;
	out->each = processes.items;
	return 0;
}

void usage__free(struct usage *usage)
{
	free(usage->processes.items);
	*usage = (struct usage){0};
}
