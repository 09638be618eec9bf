// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/cpu_limit.h"

#include <errno.h>
#include <stdlib.h>

#include "user/analysis/resources.h"
#include "user/model/resources.h"

#define USED_UP     0.9 /* of what may be used */
#define OTHERS_PART 4   /* a job that uses so many times as much as all others waits for itself */
#define SECONDS_MIN 2

static bool same_machine(uint32_t a, uint32_t b)
{
	return a >> REC_PID_BITS == b >> REC_PID_BITS;
}

/* The CPUs of the machine of a process, 0: not known; and how many of them were busy on average, below 0: not known. */
static uint32_t machine_cpus(struct resources *resources, uint32_t pid, double *busy)
{
	const struct rec_machine *first = NULL, *last = NULL, *machines;
	size_t cnt;

	machines = resources__machines(resources, &cnt);
	for (size_t i = 0; i < cnt; i++) {
		if (!same_machine(machines[i].pid, pid))
			continue;
		first = first ?: &machines[i];
		last = &machines[i];
	}
	*busy = -1;
	if (first && last->time_ns > first->time_ns && last->busy_ns >= first->busy_ns)
		*busy = (double)(last->busy_ns - first->busy_ns) / (last->time_ns - first->time_ns);
	return first ? first->processors : 0;
}

/* The least of the limits of a process, and which one that is. */
static void choose_limit(struct cpu_limit *limit, const struct rec_limits *limits, double machine)
{
	*limit = (struct cpu_limit){CPU_HELD_ITSELF, limit->used, machine};
	if (limits && limits->processors && limits->processors < limit->cpus) {
		limit->holder = CPU_HELD_ALLOWED;
		limit->cpus = limits->processors;
	}
	if (limits && limits->milli_cpus && limits->milli_cpus / 1e3 < limit->cpus) {
		limit->holder = CPU_HELD_QUOTA;
		limit->cpus = limits->milli_cpus / 1e3;
	}
}

int cpu_limit__find(struct job *job, uint32_t pid, struct cpu_limit *out)
{
	struct resources *resources = job__resources(job);
	double busy, machine = machine_cpus(resources, pid, &busy), seconds = 0;
	struct resource_use *uses;
	size_t cnt;
	int err = resource_uses__new(job, NULL, 0, &uses, &cnt);

	*out = (struct cpu_limit){CPU_HELD_UNKNOWN, 0, 0};
	if (err)
		return err;
	for (size_t i = 0; i < cnt; i++) {
		if (!same_machine(uses[i].pid, pid) || uses[i].rates.cpu_percent < 0)
			continue;
		out->used += uses[i].rates.cpu_percent / 100;
		seconds = uses[i].pid == pid ? uses[i].seconds : seconds;
	}
	free(uses);
	if (!machine)
		return 0;
	choose_limit(out, resources__limits(resources, pid), machine);
	if (seconds < SECONDS_MIN)
		out->holder = CPU_HELD_UNKNOWN;
	else if (out->used < USED_UP * out->cpus &&
		 (out->holder != CPU_HELD_ITSELF || busy < 0 || out->used < OTHERS_PART * (busy - out->used)))
		out->holder = CPU_HELD_OTHERS;
	return 0;
}
