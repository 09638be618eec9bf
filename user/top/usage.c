// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/usage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "user/proc/proc.h"

struct usage_process {
	uint32_t pid;
	uint64_t ticks;
};

static void thread_name(uint32_t pid, uint32_t tid, char name[16])
{
	struct proc_stat stat;

	*name = 0;
	if (!proc__stat(pid, tid, &stat))
		snprintf(name, 16, "%.*s", (int)strcspn(stat.comm, "\n"), stat.comm);
}

static const struct usage_process *find_previous(const struct array *processes, uint32_t pid)
{
	const struct usage_process *all = processes->items;

	for (size_t i = 0; i < processes->cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

int usage__read(struct usage *usage, const struct job *job, struct top_usage *out)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	uint64_t used = 0, now;
	struct array processes = {0};
	struct timespec ts;

	*out = (struct top_usage){.cpu_percent = NAN, .thread_name = thread_name};
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = ts.tv_sec * 1000000000ULL + ts.tv_nsec;
	for (size_t i = 0; i < cnt; i++) {
		const struct usage_process *before = find_previous(&usage->processes, targets[i].pid);
		struct usage_process *process;
		struct proc_stat stat;
		uint64_t ticks;

		if (proc__stat(targets[i].pid, 0, &stat) || proc_stat__dead(&stat))
			continue;
		ticks = stat.user_ticks + stat.system_ticks;
		process = array__add(&processes, sizeof(*process));
		if (!process) {
			free(processes.items);
			return -ENOMEM;
		}
		*process = (struct usage_process){targets[i].pid, ticks};
		out->processes++;
		out->threads += stat.thread_cnt;
		if (before && ticks > before->ticks)
			used += ticks - before->ticks;
		else if (!before && usage->time_ns) /* the process has started since */
			used += ticks;
	}
	if (usage->time_ns && now > usage->time_ns)
		out->cpu_percent = 100.0 * used / sysconf(_SC_CLK_TCK) / ((now - usage->time_ns) / 1e9);
	free(usage->processes.items);
	usage->processes = processes;
	usage->time_ns = now;
	return 0;
}

void usage__free(struct usage *usage)
{
	free(usage->processes.items);
	*usage = (struct usage){0};
}
