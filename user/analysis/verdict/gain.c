// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What could be won, where that is not the time that the verdict is about: less, where what the steps wait for takes its time
 * still; more, where what they do beside it was measured, too.
 */
#include "user/analysis/verdict/evidence.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"

#define USUAL_MIN 8 /* steps that no compile makes longer, to say how long such a step takes */

/*
 * Whether what the steps wait for takes its time still, beside what they do themselves, if they wait for it later: then
 * no more is won than that.
 */
static bool is_won_beside(const struct judge *j)
{
	return j->rule && (j->thread == AWAITED_LATE || j->rule->causes[0] == CAUSE_GPU_SYNC ||
			   j->rule->causes[0] == CAUSE_XLA_WAIT);
}

/* Of the steps' time. CAUSE_NONE: on the CPU. */
static double share_of_cause(const struct judge *j, unsigned int cause)
{
	const struct step_sum *all = &j->blame->all;
	double ns = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		ns += all->ns[phase][cause];
	return ns / all->total_ns;
}

/*
 * Whether XLA compiles in the step, or just before it: what was compiled runs first then, and the wait for its result is of the
 * step behind the call.
 */
static bool is_by_compile(const struct step_track *track, size_t i)
{
	return track->steps[i].phase_ns[PHASE_COMPILE] || (i && track->steps[i - 1].phase_ns[PHASE_COMPILE]);
}

/* The median of the other steps; 0: there are too few, or no memory. */
static uint64_t usual_ns(struct judge *j)
{
	const struct step_track *track = j->track;
	uint64_t *ns = malloc(track->step_cnt * sizeof(*ns)), median = 0;
	size_t cnt = 0;

	for (size_t i = 0; ns && i < track->step_cnt; i++)
		if (!is_by_compile(track, i))
			ns[cnt++] = step__ns(&track->steps[i]);
	if (!ns)
		j->err = j->err ?: -ENOMEM;
	if (cnt >= USUAL_MIN) {
		qsort(ns, cnt, sizeof(*ns), compare__u64);
		median = ns[cnt / 2];
	}
	free(ns);
	return median;
}

/* Before XLA compiles, Python traces; behind it, what was compiled runs for the first time. All of that takes longer. */
static double share_of_compiles(struct judge *j)
{
	const struct step_track *track = j->track;
	uint64_t usual = usual_ns(j), more_ns = 0;

	for (size_t i = 0; usual && i < track->step_cnt; i++) {
		uint64_t ns = step__ns(&track->steps[i]);

		if (is_by_compile(track, i) && ns > usual)
			more_ns = saturating__add(more_ns, ns - usual);
	}
	return (double)more_ns / track->total_ns;
}

/* In no system call: a page fault, where such are awaited. */
static bool is_fault_work(const struct sample *s)
{
	return s->kind == SAMPLE_CPU && s->kernel && s->syscall < 0;
}

/* What the thread of the steps does at the lines that wait for a cause, and at others: by samples. */
struct beside {
	bool *waits;                            /* by stack: it waits for the cause */
	uint64_t at_cpu_ns, at_queued_ns;       /* at these stacks */
	uint64_t other_cpu_ns, other_queued_ns; /* at others */
	uint64_t fault_work_ns;
};

static void add_beside(struct beside *b, const struct sample *s)
{
	bool at = b->waits[s->stack];
	uint64_t *cpu_ns = at ? &b->at_cpu_ns : &b->other_cpu_ns,
		 *queued_ns = at ? &b->at_queued_ns : &b->other_queued_ns;

	if (s->kind == SAMPLE_CPU)
		*cpu_ns = saturating__add(*cpu_ns, s->weight_ns);
	else if (s->cause == CAUSE_RUN_QUEUE)
		*queued_ns = saturating__add(*queued_ns, s->weight_ns);
	if (at && is_fault_work(s))
		b->fault_work_ns = saturating__add(b->fault_work_ns, s->weight_ns);
}

static struct beside look_beside(struct judge *j, unsigned int cause)
{
	const struct samples *samples = j->track->thread ? job__samples(j->job) : NULL;
	struct beside b = {.waits = samples ? calloc(stacks__stack_end(job__stacks(j->job)), sizeof(bool)) : NULL};

	if (samples && !b.waits)
		j->err = j->err ?: -ENOMEM;
	for (int round = 0; b.waits && round < 2; round++)
		for (size_t i = 0; i < samples__cnt(samples); i++) {
			struct sample s;

			if (samples__thread_of(samples, i) != j->track->thread)
				continue;
			s = samples__get(samples, i);
			if (step_track__at(j->track, s.time_ns) < 0)
				continue;
			if (round)
				add_beside(&b, &s);
			else
				b.waits[s.stack] |= s.cause == cause;
		}
	free(b.waits);
	return b;
}

/* What the kernel does itself, on the CPU, for page faults of the lines that wait for such. */
static double share_of_fault_work(const struct judge *j, const struct beside *b)
{
	double cpu_ns = (double)b->at_cpu_ns + b->other_cpu_ns;

	return cpu_ns ? b->fault_work_ns / cpu_ns * share_of_cause(j, CAUSE_NONE) : 0;
}

/* Behind a wait, a thread waits for a CPU to go on: what it waits at those lines beyond what it waits as it runs at others. */
static double share_of_returns(const struct judge *j, const struct beside *b)
{
	double usual = b->other_cpu_ns ? (double)b->other_queued_ns / b->other_cpu_ns : INFINITY;

	return fmax(0, b->at_queued_ns - usual * b->at_cpu_ns) / j->track->total_ns;
}

static double share_beside(struct judge *j, unsigned int cause)
{
	struct beside b = look_beside(j, cause);

	return share_of_returns(j, &b) + (cause == CAUSE_PAGE_FAULT ? share_of_fault_work(j, &b) : 0);
}

void verdict__find_gain(struct judge *j)
{
	struct verdict *verdict = j->verdict;

	/* Threads that take each other's CPUs also wait for each other: more can be won. */
	if (j->cpus.holder == CPU_HELD_ITSELF)
		verdict->share = 0;
	else if (is_won_beside(j))
		verdict->share = fmin(verdict->share, 1 - j->share - share_of_cause(j, CAUSE_RUN_QUEUE));
	else if (verdict->class == VERDICT_COMPILE)
		verdict->share = fmax(verdict->share, share_of_compiles(j));
	else if (j->rule && j->rule->class == VERDICT_MEMORY)
		verdict->share = fmin(1, verdict->share + share_beside(j, CAUSE_PAGE_FAULT));
	else if (j->rule && verdict->cause == CAUSE_FILE_SYSTEM)
		verdict->share = fmin(1, verdict->share + share_beside(j, CAUSE_FILE_SYSTEM));
}
