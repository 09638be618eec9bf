// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/usage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct usage_process {
	uint32_t pid;
	uint64_t ticks;
};

/*
 * Reads utime and stime, fields 14 and 15 of /proc/PID/stat, and num_threads, field 20. False: the
 * process is gone or a zombie.
 */
static bool read_stat(uint32_t pid, uint64_t *ticks, size_t *threads)
{
	char path[64], text[1024] = "", state;
	unsigned long user, system;
	const char *end;
	bool ok = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	/* The name, in parentheses, may contain any character. */
	if (fread(text, 1, sizeof(text) - 1, f) && (end = strrchr(text, ')')))
		ok = sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %zu", &state,
			    &user, &system, threads) == 4 &&
		     state != 'Z';
	fclose(f);
	if (ok)
		*ticks = user + system;
	return ok;
}

static void thread_name(uint32_t pid, uint32_t tid, char name[16])
{
	char path[64];
	FILE *f;

	*name = 0;
	snprintf(path, sizeof(path), "/proc/%u/task/%u/comm", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(name, 16, f))
		name[strcspn(name, "\n")] = 0;
	fclose(f);
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
	size_t cnt, threads;
	const struct rec_target *targets = job__targets(job, &cnt);
	uint64_t ticks, used = 0, now;
	struct array processes = {0};
	struct timespec ts;

	*out = (struct top_usage){.cpu_percent = NAN, .thread_name = thread_name};
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = ts.tv_sec * 1000000000ULL + ts.tv_nsec;
	for (size_t i = 0; i < cnt; i++) {
		const struct usage_process *before = find_previous(&usage->processes, targets[i].pid);
		struct usage_process *process;

		if (!read_stat(targets[i].pid, &ticks, &threads))
			continue;
		process = array__add(&processes, sizeof(*process));
		if (!process) {
			free(processes.items);
			return -ENOMEM;
		}
		*process = (struct usage_process){targets[i].pid, ticks};
		out->processes++;
		out->threads += threads;
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
