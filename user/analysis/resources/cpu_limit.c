// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/cpu_limit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "user/analysis/resources/resources.h"
#include "user/model/resources.h"

#define USED_UP     0.9 /* of what may be used */
#define OTHERS_PART 4   /* a job that uses so many times as much as all others waits for itself */
#define MIN_NS      2e9
#define MOST        0.5  /* of what a process waits for a CPU: that is why */
#define SOME        0.05 /* of the time: worth a word */
#define SPREAD      1.1  /* a count and its time are read one after the other */

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

enum counts { COUNTS_NONE, COUNTS_SOME, COUNTS_WRONG };

/* Between two looks at one quota. Wrong: the kernel would not say that. */
static enum counts throttle__between(const struct rec_throttle *a, const struct rec_throttle *b, uint32_t cpus,
				     struct cpu_throttle *out)
{
	double ns = (double)b->time_ns - a->time_ns, throttled_ns = (double)b->throttled_ns - a->throttled_ns;

	if (b->periods < a->periods || b->throttled < a->throttled || b->throttled_ns < a->throttled_ns ||
	    !b->milli_cpus)
		return COUNTS_WRONG;
	if (ns < MIN_NS || b->periods == a->periods || !cpus)
		return COUNTS_NONE;
	*out = (struct cpu_throttle){b->milli_cpus / 1e3, b->above, b->periods - a->periods,
				     b->throttled - a->throttled, throttled_ns / ns};
	return out->throttled <= out->periods && out->share <= SPREAD * cpus && !out->throttled == !out->share
		       ? COUNTS_SOME
		       : COUNTS_WRONG;
}

/* The first of a process, by pid. O(log). */
static size_t first_of(const struct rec_throttle *all, size_t cnt, uint32_t pid)
{
	size_t low = 0, high = cnt;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (all[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool cpu_throttle__find(struct job *job, uint32_t pid, struct cpu_throttle *out)
{
	struct resources *resources = job__resources(job);
	double busy;
	uint32_t cpus = machine_cpus(resources, pid, &busy);
	struct cpu_throttle one;
	size_t cnt;
	const struct rec_throttle *all = resources__throttles(resources, &cnt); /* by pid, group and time */
	bool found = false, wrong = false;

	*out = (struct cpu_throttle){0};
	for (size_t i = first_of(all, cnt, pid), end; i < cnt && all[i].pid == pid; i = end) {
		enum counts counts;

		for (end = i + 1; end < cnt && all[end].pid == pid && all[end].group == all[i].group; end++)
			;
		counts = throttle__between(&all[i], &all[end - 1], cpus, &one);
		wrong = wrong || counts == COUNTS_WRONG;
		if (counts != COUNTS_SOME)
			continue;
		if (!found || one.share > out->share)
			*out = one;
		found = true;
	}
	if (wrong)
		*out = (struct cpu_throttle){0};
	return found && !wrong;
}

/* Without the quota. */
static void find_without_quota(struct job *job, uint32_t pid, struct cpu_limit *out)
{
	const struct rec_limits *limits = resources__limits(job__resources(job), pid);
	double busy;

	out->holder = CPU_HELD_ITSELF;
	out->cpus = machine_cpus(job__resources(job), pid, &busy);
	if (limits && limits->processors && limits->processors < out->cpus) {
		out->holder = CPU_HELD_ALLOWED;
		out->cpus = limits->processors;
	}
}

/* CPUs that a quota gives; UINT32_MAX: none. */
static double quota_of(struct job *job, uint32_t pid)
{
	const struct rec_limits *limits = resources__limits(job__resources(job), pid);

	return limits && limits->milli_cpus ? limits->milli_cpus / 1e3 : UINT32_MAX;
}

void cpu_limit__of(struct job *job, uint32_t pid, struct cpu_limit *out)
{
	double quota = quota_of(job, pid);

	*out = (struct cpu_limit){0};
	find_without_quota(job, pid, out);
	if (quota < out->cpus) {
		out->holder = CPU_HELD_QUOTA;
		out->cpus = quota;
	}
}

/* Whether other programs are to blame, where neither a quota nor the CPUs on which it may run are. */
static bool others_have_them(const struct cpu_limit *limit, double others)
{
	if (cpu_ran__is_known(&limit->ran))
		return cpu_ran__own_share(&limit->ran) < MOST;
	return limit->used < USED_UP * limit->cpus &&
	       (limit->holder != CPU_HELD_ITSELF || limit->used < OTHERS_PART * others);
}

static void find_holder(struct job *job, uint32_t pid, double waits, struct cpu_limit *out)
{
	struct resources *resources = job__resources(job);
	struct resource_samples own = resource_samples__of(job, pid);
	double ns = own.cnt ? (double)own.items[own.cnt - 1].time_ns - own.items[0].time_ns : 0, busy, others;
	bool counted;

	out->used = ns > 0 ? used_ns(resources, pid) / ns : 0;
	counted = cpu_throttle__find(job, pid, &out->throttle);
	if (!out->cpus || ns < MIN_NS) {
		out->holder = CPU_HELD_UNKNOWN;
		return;
	}
	/* The kernel knows whether it was a quota: it may be one that a burst uses up, or that others use, too. */
	if (out->throttle.throttled && out->throttle.share >= MOST * waits) {
		out->holder = CPU_HELD_QUOTA;
		out->cpus = out->throttle.cpus;
		return;
	}
	if (counted)
		find_without_quota(job, pid, out);
	machine_cpus(resources, pid, &busy);
	others = busy < 0 ? out->used : busy - out->used;
	if (others_have_them(out, others)) {
		out->holder = CPU_HELD_OTHERS;
		out->cpus = fmin(out->cpus, quota_of(job, pid));
	}
}

int cpu_limit__find(struct job *job, uint32_t pid, uint32_t thread, double waits, struct cpu_limit *out)
{
	int err;

	cpu_limit__of(job, pid, out);
	err = cpu_ran__find(job, pid, thread, &out->ran);
	find_holder(job, pid, waits, out);
	return err;
}

/* "limit of 0.5 CPUs: throttled in 129 of 130 periods, 41 % of the time" */
static void say_throttle(const struct cpu_throttle *throttle, char text[CPU_LIMIT_TEXT])
{
	char time[48];

	/* The kernel adds up what each CPU was throttled for. */
	if (throttle->share <= 1)
		snprintf(time, sizeof(time), "%.0f %% of the time", 100 * throttle->share);
	else
		snprintf(time, sizeof(time), "%.2g s a second, all CPUs together", throttle->share);
	snprintf(text, CPU_LIMIT_TEXT, "%s of %.2g CPUs%s: throttled in %" PRIu64 " of %" PRIu64 " periods, %s",
		 throttle->above ? "the limit" : "its own limit", throttle->cpus,
		 throttle->above ? " of a cgroup around its own" : "", throttle->throttled, throttle->periods, time);
}

void cpu_limit__text(const struct cpu_limit *limit, char text[2 * CPU_LIMIT_TEXT])
{
	const struct cpu_throttle *throttle = &limit->throttle;
	char of_quota[CPU_LIMIT_TEXT] = "", who[CPU_LIMIT_TEXT] = "", ran[CPU_RAN_TEXT];

	if (throttle->throttled && (limit->holder == CPU_HELD_QUOTA || throttle->share >= SOME))
		say_throttle(throttle, of_quota);
	if (limit->holder == CPU_HELD_OTHERS)
		snprintf(who, sizeof(who), "others have them: this job uses %.2g CPUs of the %.2g that it may use",
			 limit->used, limit->cpus);
	else if (limit->holder == CPU_HELD_QUOTA && *of_quota)
		snprintf(who, sizeof(who), "the job uses %.2g CPUs", limit->used);
	else if (limit->holder == CPU_HELD_QUOTA)
		snprintf(who, sizeof(who), "its cgroup is limited to %.2g CPUs, and the job uses %.2g", limit->cpus,
			 limit->used);
	else if (limit->holder == CPU_HELD_ALLOWED)
		snprintf(who, sizeof(who), "it may run on %.0f of the machine's CPUs, and uses %.2g", limit->cpus,
			 limit->used);
	else if (limit->holder == CPU_HELD_ITSELF)
		snprintf(who, sizeof(who),
			 "its own threads and processes have them: they use %.2g of the machine's %.0f CPUs",
			 limit->used, limit->cpus);
	cpu_ran__text(&limit->ran, ran);
	if (*ran && limit->holder != CPU_HELD_QUOTA) /* who runs beside one that is throttled is not to blame */
		snprintf(who + strlen(who), sizeof(who) - strlen(who), "%s%s", *who ? "; " : "", ran);
	if (limit->holder == CPU_HELD_QUOTA && *of_quota)
		snprintf(text, 2 * CPU_LIMIT_TEXT, "%s; %s", of_quota, who);
	else
		snprintf(text, 2 * CPU_LIMIT_TEXT, "%s%s%s", who, *who && *of_quota ? "; also " : "",
			 *who ? of_quota : "");
}
