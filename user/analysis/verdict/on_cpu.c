// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What bounds steps in which no phase, no wait and no slow step wins: the CPU, which runs something, or asks a GPU for kernels. In:
 * the sums of all steps, their samples by kind of code, what CUPTI or NVML saw. Out: the class, and why.
 */
#include "user/analysis/verdict/evidence.h"

#include <math.h>

#include "user/analysis/flame/profile.h"
#include "user/lib/digits.h"

/* Shares of the time of all steps. */
#define PYTHON_SHARE 0.4
#define CPU_OP_SHARE 0.5
#define CPU_SHARE    0.8 /* on the CPU in total: the step computes */
#define LAUNCH_SHARE 0.5 /* on the CPU while the GPU waits */

static uint64_t on_cpu_ns(const struct step_sum *sum)
{
	uint64_t ns = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		ns += sum->ns[phase][CAUSE_NONE];
	return ns;
}

static uint64_t count_samples(const struct step_sum *sum, int class)
{
	uint64_t cnt = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		for (int c = 0; c < CPU__COUNT; c++)
			if (class == ANY || class == c)
				cnt += sum->samples[phase][c];
	return cnt;
}

/* A lower bound (95 %) on the share of time that so many samples are. */
static double least_of(const struct step_sum *sum, double cnt)
{
	double all = count_samples(sum, ANY);

	if (!all)
		return 0;
	return fmax(0, cnt - profile__error_ns(cnt * (1 - cnt / all))) / all * on_cpu_ns(sum) / sum->total_ns;
}

static double least_share(const struct step_sum *sum, enum cpu_class class)
{
	return least_of(sum, count_samples(sum, class));
}

/* Of operators and other libraries together. */
static double least_native(const struct step_sum *sum)
{
	return least_of(sum, count_samples(sum, CPU_OP) + count_samples(sum, CPU_NATIVE));
}

static double class_share(const struct step_sum *sum, enum cpu_class class)
{
	return (double)count_samples(sum, class) / count_samples(sum, ANY) * on_cpu_ns(sum) / sum->total_ns;
}

/*
 * Whether something other than the machine, which at times gives its CPUs to others, is to blame
 * for slow steps.
 */
static bool has_blamed(const struct judge *j)
{
	uint64_t over_ns = 0;

	for (size_t i = 0; i < j->blame->group_cnt; i++)
		if (j->blame->groups[i].cause != CAUSE_UNKNOWN && j->blame->groups[i].cause != CAUSE_RUN_QUEUE)
			over_ns += j->blame->groups[i].over_ns;
	return over_ns >= MENTION_SHARE * j->blame->all.total_ns;
}

void verdict__judge_cpu(struct judge *j)
{
	const struct step_sum *all = &j->blame->all;
	double cpu = (double)on_cpu_ns(all) / all->total_ns;

	if (!j->track->thread) {
		verdict__say_why(j, "the recording has no samples, so it is not known what phases wait for");
		verdict__say(j, &j->verdict->next, "record with samples: without -F 0");
	} else if (!count_samples(all, ANY)) {
		verdict__say_why(j, "no sample met a step on the CPU");
		verdict__say(j, &j->verdict->next, "record for longer");
	} else if (least_share(all, CPU_PYTHON) >= PYTHON_SHARE) {
		j->verdict->class = VERDICT_PYTHON;
		verdict__say_why(j, "Python itself, not operators, takes %.0f %% of a step's time",
				 100 * class_share(all, CPU_PYTHON));
	} else if (least_share(all, CPU_OP) >= CPU_OP_SHARE) {
		j->verdict->class = VERDICT_CPU_OP;
		verdict__say_why(j, "operators on the CPU take %.0f %% of a step's time%s",
				 100 * class_share(all, CPU_OP),
				 has_blamed(j) ? "" : ": it computes, and no cause of delay stands out");
	} else if (cpu >= CPU_SHARE) {
		j->verdict->class = VERDICT_COMPUTE;
		verdict__say_why(
			j,
			"%.0f %% of the time of a step is on the CPU: %.0f %% operators, %.0f %% Python, %.0f %% other "
			"native code, %.0f %% kernel; no wait stands out",
			100 * cpu, 100 * class_share(all, CPU_OP), 100 * class_share(all, CPU_PYTHON),
			100 * class_share(all, CPU_NATIVE), 100 * class_share(all, CPU_KERNEL));
	} else if (least_native(all) >= CPU_OP_SHARE) {
		j->verdict->class = VERDICT_COMPUTE;
		verdict__say_why(j,
				 "native code on the CPU takes %.0f %% of a step's time: %.0f %% operators, %.0f %% "
				 "other libraries",
				 100 * (class_share(all, CPU_OP) + class_share(all, CPU_NATIVE)),
				 100 * class_share(all, CPU_OP), 100 * class_share(all, CPU_NATIVE));
	} else {
		verdict__say_why(
			j,
			"no phase and no wait stands out: %.0f %% of the time of a step is on the CPU, %.0f %% waits "
			"for several causes",
			100 * cpu, 100 - 100 * cpu);
	}
}

/* ---- the GPU, where the CPU does not wait for it ---- */

/* CPU time per kernel launched. */
static double ns_per_kernel(const struct judge *j)
{
	const struct step_sum *all = &j->blame->all;

	return (double)on_cpu_ns(all) / all->total_ns * j->gpu->all.watched_ns / j->gpu->kernels;
}

static bool is_launch_bound(const struct judge *j)
{
	const struct step_sum *all = &j->blame->all;
	double busy = j->busy_share;

	return busy >= 0 && busy < BUSY_SHARE && j->gpu->kernels && j->track->thread &&
	       on_cpu_ns(all) >= LAUNCH_SHARE * all->total_ns &&
	       (double)j->gpu->kernel_ns / j->gpu->kernels < ns_per_kernel(j);
}

bool verdict__judge_launches(struct judge *j)
{
	if (!is_launch_bound(j))
		return false;
	j->verdict->class = VERDICT_LAUNCH;
	verdict__say_why(j,
			 "the GPU works for %.0f %% of the time of a step, and waits for the CPU, which takes %s us "
			 "to ask for "
			 "each kernel of %s us",
			 100 * j->busy_share, DIGITS(ns_per_kernel(j) / 1e3, 3),
			 DIGITS(j->gpu->kernel_ns / 1e3 / j->gpu->kernels, 3));
	return true;
}
