// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/cpu_ran.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "include/resource_records.h"
#include "user/lib/histograms.h"
#include "user/model/resources.h"
#include "user/model/samples.h"

#define HALF      0.5
#define PARENTS   8    /* of a process, up to the one that trains */
#define MENTIONED 0.05 /* of the known time */

/* The main process of which one is a child, or itself. NULL: it is not recorded. */
static const struct rec_target *main_of(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);

	for (int i = 0; target && target->role != ROLE_MAIN && i < PARENTS; i++)
		target = job__target(job, target->parent_pid);
	return target;
}

static bool same_text(const char *a, const char *b, size_t size)
{
	return !strncmp(a, b, size);
}

/* Two ranks, which say that they are of the same job. */
static bool same_job(struct job *job, const struct rec_target *a, const struct rec_target *b)
{
	const struct rec_job *x = resources__job(job__resources(job), a->pid);
	const struct rec_job *y = resources__job(job__resources(job), b->pid);

	if (a->rank < 0 || b->rank < 0 || a->rank == b->rank)
		return false;
	if (!x || !y)
		return true;
	return x->launcher == y->launcher && same_text(x->id, y->id, sizeof(x->id)) &&
	       same_text(x->meets, y->meets, sizeof(x->meets));
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

int cpu_ran__find(struct job *job, uint32_t pid, uint32_t thread, struct cpu_ran *out)
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

void cpu_ran__text(const struct cpu_ran *ran, char text[CPU_RAN_TEXT])
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
