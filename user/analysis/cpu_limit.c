// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/cpu_limit.h"

#include "user/analysis/resources.h"
#include "user/model/resources.h"

#define USED_UP     0.9 /* of what may be used */
#define OTHERS_PART 4   /* a job that uses so many times as much as all others waits for itself */
#define MIN_NS      2e9

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

/* CPU time of all processes of that machine, between the first and the last look at each. */
static double used_ns(struct resources *resources, uint32_t pid)
{
	size_t cnt;
	const struct rec_resources *all = resources__samples(resources, &cnt); /* by pid and time */
	double sum = 0;

	for (size_t i = 1; i < cnt; i++)
		if (all[i].pid == all[i - 1].pid && same_machine(all[i].pid, pid))
			sum += (double)all[i].user_ns - all[i - 1].user_ns + all[i].system_ns - all[i - 1].system_ns;
	return sum;
}

void cpu_limit__of(struct job *job, uint32_t pid, struct cpu_limit *out)
{
	struct resources *resources = job__resources(job);
	const struct rec_limits *limits = resources__limits(resources, pid);
	double busy;

	*out = (struct cpu_limit){CPU_HELD_ITSELF, 0, machine_cpus(resources, pid, &busy)};
	if (limits && limits->processors && limits->processors < out->cpus) {
		out->holder = CPU_HELD_ALLOWED;
		out->cpus = limits->processors;
	}
	if (limits && limits->milli_cpus && limits->milli_cpus / 1e3 < out->cpus) {
		out->holder = CPU_HELD_QUOTA;
		out->cpus = limits->milli_cpus / 1e3;
	}
}

void cpu_limit__find(struct job *job, uint32_t pid, struct cpu_limit *out)
{
	struct resources *resources = job__resources(job);
	struct resource_samples own = resource_samples__of(job, pid);
	double ns = own.cnt ? (double)own.items[own.cnt - 1].time_ns - own.items[0].time_ns : 0, busy, others;

	cpu_limit__of(job, pid, out);
	out->used = ns > 0 ? used_ns(resources, pid) / ns : 0;
	if (!out->cpus || ns < MIN_NS) {
		out->holder = CPU_HELD_UNKNOWN;
		return;
	}
	machine_cpus(resources, pid, &busy);
	others = busy < 0 ? out->used : busy - out->used;
	if (out->used < USED_UP * out->cpus && (out->holder != CPU_HELD_ITSELF || out->used < OTHERS_PART * others))
		out->holder = CPU_HELD_OTHERS;
}
