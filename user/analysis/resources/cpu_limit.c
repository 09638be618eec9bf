// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/cpu_limit.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "include/resource_records.h"
#include "user/analysis/resources/resources.h"
#include "user/lib/digits.h"
#include "user/lib/histograms.h"
#include "user/model/processes.h"
#include "user/model/resources.h"
#include "user/model/samples.h"

/* ---- who ran meanwhile ---- */

#define CPU_RAN_TEXT 192
#define HALF         0.5
#define PARENTS      8    /* of a process, up to the one that trains */
#define MENTIONED    0.05 /* of the known time */

/* The main process of which one is a child, or itself. NULL: it is not recorded. */
static const struct rec_target *main_of(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);

	for (int i = 0; target && target->role != ROLE_MAIN && i < PARENTS; i++)
		target = job__target(job, target->parent_pid);
	return target;
}

/*
 * Two main processes of one job: one has started the other, one that is recorded has started both, or they are ranks of which
 * nothing says that they are of different jobs.
 */
static bool same_job(struct job *job, const struct rec_target *a, const struct rec_target *b)
{
	if (a->pid == b->pid || a->parent_pid == b->pid || b->parent_pid == a->pid)
		return true;
	if (a->parent_pid && a->parent_pid == b->parent_pid && job__target(job, a->parent_pid))
		return true;
	return a->rank >= 0 && b->rank >= 0 && a->rank != b->rank && !processes__of_other_jobs(job, a->pid, b->pid);
}

static enum cpu_ran_who who_is(struct job *job, uint32_t pid, uint32_t ran_pid)
{
	const struct rec_target *own = job__target(job, pid), *ran = main_of(job, ran_pid);

	if (ran_pid == pid)
		return CPU_RAN_THREADS;
	if (ran && ran->pid == pid)
		return CPU_RAN_PROCESSES;
	return own && ran && same_job(job, own, ran) ? CPU_RAN_RANKS : CPU_RAN_OTHERS;
}

/* ns: by process. */
static void add_up(struct job *job, uint32_t pid, const struct histograms *ns, struct cpu_ran *out)
{
	double most = 0;

	for (uint32_t i = 1; i < intern__end(&ns->keys); i++) {
		uint32_t ran_pid = intern__key(&ns->keys, i);
		double of_it = ((const uint64_t *)ns->totals.items)[i];
		enum cpu_ran_who who = who_is(job, pid, ran_pid);

		out->ns[who] += of_it;
		if (who != CPU_RAN_OTHERS || of_it <= most)
			continue;
		most = of_it;
		out->other_pid = ran_pid;
	}
	if (most < HALF * out->ns[CPU_RAN_OTHERS] || REC_PID(out->other_pid) == REC_PID_HIDDEN)
		out->other_pid = 0;
}

/* thread: as in struct sample. 0 or -ENOMEM. */
static int cpu_ran__find(struct job *job, uint32_t pid, uint32_t thread, struct cpu_ran *out)
{
	const struct samples *samples = job__samples(job);
	struct histograms ns = {0};
	int err = samples ? 0 : -ENOMEM;

	*out = (struct cpu_ran){0};
	for (size_t i = 0; !err && thread && i < samples__cnt(samples); i++) {
		struct sample s;

		if (samples__thread_of(samples, i) != thread)
			continue;
		s = samples__get(samples, i);
		if (s.kind != SAMPLE_WAIT || s.cause != CAUSE_RUN_QUEUE)
			continue;
		out->all_ns += s.weight_ns;
		if (s.ran_pid)
			err = histograms__add(&ns, 0, s.ran_pid, s.weight_ns);
	}
	if (!err)
		add_up(job, pid, &ns, out);
	histograms__free(&ns);
	return err;
}

static double known_ns(const struct cpu_ran *ran)
{
	double sum = 0;

	for (int i = 0; i < CPU_RAN__COUNT; i++)
		sum += ran->ns[i];
	return sum;
}

bool cpu_ran__is_known(const struct cpu_ran *ran)
{
	return ran->all_ns && known_ns(ran) >= HALF * ran->all_ns;
}

/* The part of the known time that was the job's own. */
double cpu_ran__own_share(const struct cpu_ran *ran)
{
	double known = known_ns(ran);

	return known ? 1 - ran->ns[CPU_RAN_OTHERS] / known : 0;
}

enum cpu_ran_who cpu_ran__most_of_own(const struct cpu_ran *ran)
{
	enum cpu_ran_who most = CPU_RAN_THREADS;

	for (enum cpu_ran_who i = 0; i < CPU_RAN_OTHERS; i++)
		most = ran->ns[i] > ran->ns[most] ? i : most;
	return most;
}

static void add_text(char text[CPU_RAN_TEXT], const char *who, double percent)
{
	size_t length = strlen(text);

	snprintf(text + length, CPU_RAN_TEXT - length, length ? ", %s %.0f %%" : "%s ran %.0f %% of that time", who,
		 percent);
}

/* "its own threads ran 92 % of that time, other ranks 5 %"; "": not known. */
static void cpu_ran__text(const struct cpu_ran *ran, char text[CPU_RAN_TEXT])
{
	static const char *const words[CPU_RAN__COUNT] = {
		[CPU_RAN_THREADS] = "its own threads",
		[CPU_RAN_PROCESSES] = "its child processes",
		[CPU_RAN_RANKS] = "other ranks",
		[CPU_RAN_OTHERS] = "other programs",
	};
	bool said[CPU_RAN__COUNT] = {false};

	*text = '\0';
	if (!cpu_ran__is_known(ran))
		return;
	for (int n = 0; n < CPU_RAN__COUNT; n++) {
		int most = -1;
		char who[64];

		for (int i = 0; i < CPU_RAN__COUNT; i++)
			if (!said[i] && (most < 0 || ran->ns[i] > ran->ns[most]))
				most = i;
		if (ran->ns[most] < MENTIONED * known_ns(ran))
			return;
		said[most] = true;
		snprintf(who, sizeof(who), "%s", words[most]);
		if (most == CPU_RAN_OTHERS && ran->other_pid)
			snprintf(who, sizeof(who), "other programs (process %u most)", REC_PID(ran->other_pid));
		add_text(text, who, 100 * ran->ns[most] / known_ns(ran));
	}
}

/* ---- what limits a process ---- */

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

/* Whether a process is of the same machine and job as `own`, a main process, as far as that is known. */
static bool counts_as_own(struct job *job, const struct rec_target *own, uint32_t pid)
{
	const struct rec_target *main = main_of(job, pid);

	return same_machine(pid, own->pid) && (!main || same_job(job, own, main));
}

/* CPU time of the processes of its job on its machine, between the first and the last look at each. */
static double used_ns(struct job *job, uint32_t pid)
{
	size_t cnt;
	const struct rec_resources *all = resources__samples(job__resources(job), &cnt); /* by pid and time */
	const struct rec_target *own = main_of(job, pid) ?: &(const struct rec_target){.pid = pid, .rank = -1};
	bool counts = false;
	double sum = 0;

	for (size_t i = 0; i < cnt; i++) {
		if (!i || all[i].pid != all[i - 1].pid)
			counts = counts_as_own(job, own, all[i].pid);
		else if (counts)
			sum += (double)all[i].user_ns - all[i - 1].user_ns + all[i].system_ns - all[i - 1].system_ns;
	}
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

	out->used = ns > 0 ? used_ns(job, pid) / ns : 0;
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
		snprintf(time, sizeof(time), "%s s a second, all CPUs together", DIGITS(throttle->share, 2));
	snprintf(text, CPU_LIMIT_TEXT, "%s of %s CPUs%s: throttled in %" PRIu64 " of %" PRIu64 " periods, %s",
		 throttle->above ? "the limit" : "its own limit", DIGITS(throttle->cpus, 2),
		 throttle->above ? " of a cgroup around its own" : "", throttle->throttled, throttle->periods, time);
}

void cpu_limit__text(const struct cpu_limit *limit, char text[2 * CPU_LIMIT_TEXT])
{
	const struct cpu_throttle *throttle = &limit->throttle;
	char of_quota[CPU_LIMIT_TEXT] = "", who[CPU_LIMIT_TEXT] = "", ran[CPU_RAN_TEXT];

	if (throttle->throttled && (limit->holder == CPU_HELD_QUOTA || throttle->share >= SOME))
		say_throttle(throttle, of_quota);
	if (limit->holder == CPU_HELD_OTHERS)
		snprintf(who, sizeof(who), "others have them: this job uses %s CPUs of the %s that it may use",
			 DIGITS(limit->used, 2), DIGITS(limit->cpus, 2));
	else if (limit->holder == CPU_HELD_QUOTA && *of_quota)
		snprintf(who, sizeof(who), "the job uses %s CPUs", DIGITS(limit->used, 2));
	else if (limit->holder == CPU_HELD_QUOTA)
		snprintf(who, sizeof(who), "its cgroup is limited to %s CPUs, and the job uses %s",
			 DIGITS(limit->cpus, 2), DIGITS(limit->used, 2));
	else if (limit->holder == CPU_HELD_ALLOWED)
		snprintf(who, sizeof(who), "it may run on %.0f of the machine's CPUs, and uses %s", limit->cpus,
			 DIGITS(limit->used, 2));
	else if (limit->holder == CPU_HELD_ITSELF)
		snprintf(who, sizeof(who),
			 "its own threads and processes have them: they use %s of the machine's %.0f CPUs",
			 DIGITS(limit->used, 2), limit->cpus);
	cpu_ran__text(&limit->ran, ran);
	if (*ran && limit->holder != CPU_HELD_QUOTA) /* who runs beside one that is throttled is not to blame */
		snprintf(who + strlen(who), sizeof(who) - strlen(who), "%s%s", *who ? "; " : "", ran);
	if (limit->holder == CPU_HELD_QUOTA && *of_quota)
		snprintf(text, 2 * CPU_LIMIT_TEXT, "%s; %s", of_quota, who);
	else
		snprintf(text, 2 * CPU_LIMIT_TEXT, "%s%s%s", who, *who && *of_quota ? "; also " : "",
			 *who ? of_quota : "");
}
