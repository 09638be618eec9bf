// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Candidates are what may bound a step, each with its share of the time of all steps and the share from which it is
 * worth a word; the one that is furthest beyond its own wins. Slow steps are candidates, too, with the time that they
 * took longer.
 */
#include "verdict_private.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "processes.h"
#include "profile.h"
#include "stacks.h"

static const char *const class_names[] = {
#define X(id, name) [VERDICT_##id] = name,
	STEPFLAME_VERDICTS(X)
#undef X
};

const char *verdict_class__name(enum verdict_class class)
{
	return class_names[class];
}

#define ANY  (-1)
#define NONE (-2)

/* Shares of the time of all steps. */
#define SLOW_SHARE    0.05 /* lost in slow steps of one cause */
#define UNKNOWN_SHARE 0.2  /* likewise, of no known cause: a machine that is stopped now and then is no one's fault */
#define PYTHON_SHARE  0.4
#define CPU_OP_SHARE  0.5
#define BUSY_SHARE    0.8 /* of the time that CUPTI watched: the GPU bounds */
#define LAUNCH_SHARE  0.5 /* on the CPU, while the GPU waits */
#define WATCHED_SHARE 0.1 /* that CUPTI watched, for it to say something of all steps */

#define ENDS_MAX      3 /* of workers, that are told of */

/* Time in a phase, or by a cause in any other, that speaks for a class. */
static const struct verdict_rule rules[] = {
	{VERDICT_INPUT, 0.2, PHASE_DATA, {CAUSE_DATA_WAIT, NONE, NONE}, "goes into getting data"},
	{VERDICT_COMM, 0.2, PHASE_COMM, {CAUSE_COLLECTIVE, NONE, NONE}, "goes into collectives"},
	{VERDICT_GPU, 0.3, NONE, {CAUSE_GPU_SYNC, NONE, NONE}, "waits for the GPU"},
	{VERDICT_CHECKPOINT, 0.1, PHASE_CHECKPOINT, {CAUSE_FSYNC, CAUSE_DISK_WRITE, NONE}, "goes into writing to disk"},
	{VERDICT_COMPILE, 0.1, PHASE_COMPILE, {NONE, NONE, NONE}, "goes into XLA's compiles"},
	{VERDICT_COMPUTE, 0.3, NONE, {CAUSE_XLA_WAIT, NONE, NONE}, "waits for what XLA computes"},
	{VERDICT_MEMORY, 0.1, NONE, {CAUSE_PAGE_FAULT, NONE, NONE}, "waits for memory (page faults)"},
	{VERDICT_LOCK, 0.1, NONE, {CAUSE_LOCK, CAUSE_GIL, NONE}, "waits for locks that other threads hold"},
	{VERDICT_STARVED, 0.1, NONE, {CAUSE_RUN_QUEUE, NONE, NONE}, "waits for a CPU that others have"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_SLEEP, NONE, NONE}, "is slept"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_DISK_READ, NONE, NONE}, "waits for reads from disk"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_PIPE, CAUSE_SOCKET, CAUSE_POLL}, "waits for pipes or sockets"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_CHILD_WAIT, NONE, NONE}, "waits for child processes"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_UNKNOWN, NONE, NONE}, "waits for what is not known"},
};

#define RULE_CNT (sizeof(rules) / sizeof(*rules))

/* ---- texts ---- */

static char *format(const char *fmt, va_list ap)
{
	char *text;

	return vasprintf(&text, fmt, ap) < 0 ? NULL : text;
}

void verdict__say(struct judging *j, struct array *list, const char *fmt, ...)
{
	va_list ap;
	char **slot;

	va_start(ap, fmt);
	slot = array__add(list, sizeof(*slot));
	if (slot)
		*slot = format(fmt, ap);
	if (!slot || !*slot) {
		list->cnt -= slot != NULL;
		j->err = -ENOMEM;
	}
	va_end(ap);
}

static void __attribute__((format(printf, 2, 3))) say_why(struct judging *j, const char *fmt, ...)
{
	char *old = j->verdict->why, *text;
	va_list ap;

	va_start(ap, fmt);
	text = format(fmt, ap);
	va_end(ap);
	if (!text || asprintf(&j->verdict->why, "%s%s%s", old ?: "", old ? "; " : "", text) < 0) {
		j->verdict->why = old;
		j->err = -ENOMEM;
	} else {
		free(old);
	}
	free(text);
}

/* ---- who wins ---- */

/* cause: CAUSE_NONE of time on the CPU. */
static bool rule__has(const struct verdict_rule *rule, int phase, unsigned int cause)
{
	if (rule->phase == phase)
		return true;
	for (int i = 0; i < 3; i++)
		if (cause != CAUSE_NONE && rule->causes[i] == (int)cause)
			return true;
	return false;
}

static double rule__share(const struct verdict_rule *rule, const struct step_sum *sum)
{
	double ns = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		for (unsigned int cause = 0; cause < CAUSE__END; cause++)
			if (rule__has(rule, phase, cause))
				ns += sum->ns[phase][cause];
	return ns / sum->total_ns;
}

/* Of slow steps. False: one that blames nothing. */
static bool class_of_group(const struct blame_group *group, enum verdict_class *class)
{
	*class = VERDICT_UNCLEAR;
	if (group->cause == BLAME_VALIDATION)
		return false;
	if (group->cause == BLAME_CHECKPOINT)
		*class = VERDICT_CHECKPOINT;
	else if (group->cause == BLAME_COMPILE)
		*class = VERDICT_COMPILE;
	else if (group->cause == BLAME_GC)
		*class = VERDICT_PYTHON;
	else if (group->phase == PHASE_DATA || group->cause == CAUSE_DISK_READ)
		*class = VERDICT_INPUT;
	else if (group->cause == BLAME_PYTHON)
		*class = VERDICT_PYTHON;
	else if (group->cause == BLAME_OP)
		*class = VERDICT_CPU_OP;
	else
		for (size_t i = 0; i < RULE_CNT && *class == VERDICT_UNCLEAR; i++)
			if (rule__has(&rules[i], group->phase, group->cause))
				*class = rules[i].class;
	return true;
}

/* Of the time that CUPTI watched; -1: too little. */
static double busy_share(const struct judging *j)
{
	const struct gpu_step *all = &j->gpu->all;

	return all->watched_ns && all->watched_ns >= WATCHED_SHARE * j->blame->all.total_ns ? gpu_step__busy(all) : -1;
}

static void find_winner(struct judging *j)
{
	const struct step_sum *all = &j->blame->all;
	double best = 1, share;
	enum verdict_class class;

	for (size_t i = 0; i < RULE_CNT; i++) {
		share = rule__share(&rules[i], all);
		if (share < best * rules[i].share)
			continue;
		best = share / rules[i].share;
		j->rule = &rules[i];
		j->share = share;
		j->verdict->class = rules[i].class;
	}
	for (size_t i = 0; i < j->blame->group_cnt; i++) {
		double least = j->blame->groups[i].cause == CAUSE_UNKNOWN ? UNKNOWN_SHARE : SLOW_SHARE;

		share = (double)j->blame->groups[i].over_ns / all->total_ns;
		if (share < best * least || !class_of_group(&j->blame->groups[i], &class))
			continue;
		best = share / least;
		j->rule = NULL;
		j->group = &j->blame->groups[i];
		j->share = share;
		j->verdict->class = class;
	}
	if (busy_share(j) >= best * BUSY_SHARE) {
		j->rule = NULL;
		j->group = NULL;
		j->busy = true;
		j->verdict->class = VERDICT_GPU;
	}
}

/* ---- the CPU, where nothing else wins ---- */

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

/* At least this share of the time is of that class (95 %). */
static double least_share(const struct step_sum *sum, enum cpu_class class)
{
	double all = count_samples(sum, ANY), cnt = count_samples(sum, class);

	if (!all)
		return 0;
	return fmax(0, cnt - profile__error_ns(cnt * (1 - cnt / all))) / all * on_cpu_ns(sum) / sum->total_ns;
}

static double share_of(const struct step_sum *sum, enum cpu_class class)
{
	return (double)count_samples(sum, class) / count_samples(sum, ANY) * on_cpu_ns(sum) / sum->total_ns;
}

static void judge_cpu(struct judging *j)
{
	const struct step_sum *all = &j->blame->all;
	double waits = 1 - (double)on_cpu_ns(all) / all->total_ns;

	if (least_share(all, CPU_PYTHON) >= PYTHON_SHARE) {
		j->verdict->class = VERDICT_PYTHON;
		say_why(j, "%.0f %% of the time of a step runs Python itself, not operators",
			100 * share_of(all, CPU_PYTHON));
	} else if (least_share(all, CPU_OP) >= CPU_OP_SHARE) {
		j->verdict->class = VERDICT_CPU_OP;
		say_why(j,
			"%.0f %% of the time of a step runs operators on the CPU: it computes, and nothing is to blame",
			100 * share_of(all, CPU_OP));
	} else if (!j->track->thread) {
		say_why(j, "the recording has no samples, so that what phases wait for is not known");
		verdict__say(j, &j->verdict->next, "record with samples: without -F 0");
	} else if (!count_samples(all, ANY)) {
		say_why(j, "no sample met a step on the CPU");
		verdict__say(j, &j->verdict->next, "record for longer");
	} else {
		say_why(j,
			"no phase and no wait stands out: %.0f %% of the time of a step is on the CPU, %.0f %% waits",
			100 - 100 * waits, 100 * waits);
	}
}

/* ---- the GPU, where the CPU does not wait for it ---- */

/* On the CPU, for each kernel that the GPU is given. */
static double ns_per_kernel(const struct judging *j)
{
	const struct step_sum *all = &j->blame->all;

	return (double)on_cpu_ns(all) / all->total_ns * j->gpu->all.watched_ns / j->gpu->kernels;
}

static bool is_launch_bound(const struct judging *j)
{
	const struct step_sum *all = &j->blame->all;
	double busy = busy_share(j);

	return busy >= 0 && busy < BUSY_SHARE && j->gpu->kernels && j->track->thread &&
	       on_cpu_ns(all) >= LAUNCH_SHARE * all->total_ns &&
	       (double)j->gpu->kernel_ns / j->gpu->kernels < ns_per_kernel(j);
}

static void judge_launches(struct judging *j)
{
	j->verdict->class = VERDICT_LAUNCH;
	say_why(j,
		"the GPU works for %.0f %% of the time of a step, and waits for the CPU, which takes %.3g us to ask "
		"for "
		"each kernel of %.3g us",
		100 * busy_share(j), ns_per_kernel(j) / 1e3, j->gpu->kernel_ns / 1e3 / j->gpu->kernels);
}

static void say_busy(struct judging *j)
{
	const struct gpu_steps *gpu = j->gpu;

	if (busy_share(j) >= 0 && gpu->kernels)
		verdict__say(j, &j->verdict->evidence,
			     "GPU busy for %.1f %% of %.3g s, with %" PRIu64 " kernels of %.3g us", 100 * busy_share(j),
			     gpu->all.watched_ns / 1e9, gpu->kernels, gpu->kernel_ns / 1e3 / gpu->kernels);
	else if (busy_share(j) >= 0)
		verdict__say(j, &j->verdict->evidence, "GPU busy for %.1f %% of %.3g s", 100 * busy_share(j),
			     gpu->all.watched_ns / 1e9);
}

/* ---- why, evidence ---- */

static const char *phase_text(int phase)
{
	return phase == ANY ? "any phase" : phase__name(phase);
}

static void say_group(struct judging *j, const struct blame_group *group)
{
	double share = 100.0 * group->over_ns / j->blame->all.total_ns;
	char *rhythm = rhythm__text(&group->rhythm), extra[64] = "";

	if (!rhythm) {
		j->err = -ENOMEM;
		return;
	}
	if (group->cause == BLAME_GC)
		snprintf(extra, sizeof(extra), " of generation %u", group->gc_generation);
	else if (group->phase != ANY && group->cause != BLAME_CHECKPOINT && group->cause != BLAME_VALIDATION)
		snprintf(extra, sizeof(extra), " in %s", phase_text(group->phase));
	say_why(j, "%.1f %% of the time is lost in %u slow step%s%s%s%s, to %s%s", share, group->step_cnt,
		group->step_cnt == 1 ? "" : "s", *rhythm ? " (" : "", rhythm, *rhythm ? ")" : "",
		blame_cause__name(group->cause), extra);
	free(rhythm);
}

/* What most of a rule's time is: "of that 95 % data_wait". */
static void say_parts(struct judging *j, const struct verdict_rule *rule)
{
	const struct step_sum *all = &j->blame->all;
	double best_ns = 0, sum = 0;
	unsigned int best = 0;

	for (unsigned int cause = 0; cause < CAUSE__END; cause++) {
		double ns = 0;

		for (int phase = 0; phase < PHASE__COUNT; phase++)
			if (rule__has(rule, phase, cause))
				ns += all->ns[phase][cause];
		sum += ns;
		if (ns <= best_ns)
			continue;
		best_ns = ns;
		best = cause;
	}
	/* What the rule's own words do not say. */
	if (!j->track->thread || (rule->phase == NONE && best_ns >= 0.99 * sum))
		say_why(j, "%.0f %% of the time of a step %s", 100 * j->share, rule->what);
	else
		say_why(j, "%.0f %% of the time of a step %s, %.0f %% of that %s%s", 100 * j->share, rule->what,
			100 * best_ns / sum, best ? "waiting: " : "on the CPU", sample_cause__name(best));
}

static void say_spots(struct judging *j, const struct spot *spots, size_t cnt)
{
	for (size_t i = 0; i < cnt && spots[i].ns; i++) {
		char *text = spot__text(j->job, &spots[i]);

		if (!text) {
			j->err = -ENOMEM;
			return;
		}
		verdict__say(j, &j->verdict->evidence, "%s: %.3g s", text, spots[i].ns / 1e9);
		free(text);
	}
}

/* Where a rule's time was; without one, where a step's time on the CPU was. */
static void find_spots(struct judging *j, struct spot *top)
{
	const struct samples *samples = job__samples(j->job);
	struct spots spots = {.job = j->job};
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; samples && j->track->thread && i < samples__cnt(samples) && !err; i++) {
		struct sample sample;
		enum phase phase;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		sample = samples__get(samples, i);
		phase = step_track__phase(j->track, j->steps, &sample);
		if (step_track__at(j->track, sample.time_ns) < 0)
			continue;
		if (j->rule ? rule__has(j->rule, phase, sample.cause) : sample.kind == SAMPLE_CPU)
			err = spots__add(&spots, 0, &sample);
	}
	err = err ?: spots__top(&spots, 1, BLAME_SPOTS, top);
	spots__free(&spots);
	j->err = j->err ?: err;
}

/* Who ended the wait before a thread waits for a CPU does not matter. */
bool verdict__one_waker(const struct blame_group *group)
{
	return group->waker_pid && group->waker_ns >= 0.5 * group->wait_ns && group->cause != CAUSE_RUN_QUEUE;
}

bool verdict__failed(const struct job *job, uint32_t pid)
{
	const struct rec_proc *exit = job__exit(job, pid);

	return exit && exit->exit_code;
}

static void say_end(struct judging *j, const struct rec_proc *exit)
{
	char *how = processes__end_text(exit);

	verdict__say(j, &j->verdict->evidence, "process %u, a worker, ended at %.3f s: %s", exit->pid,
		     ((double)exit->time_ns - job__window(j->job)->start_ns) / 1e9, how ?: "");
	free(how);
}

/* Workers that failed. One that lived too short to be known as one is, when it was waited for. */
static void say_ended(struct judging *j)
{
	uint32_t waker = j->group && verdict__one_waker(j->group) ? j->group->waker_pid : 0;
	size_t cnt, said = 0;
	const struct rec_target *targets = job__targets(j->job, &cnt);

	for (size_t i = 0; i < cnt && said < ENDS_MAX; i++) {
		if (targets[i].parent_pid != j->track->pid || !verdict__failed(j->job, targets[i].pid))
			continue;
		if (targets[i].role != ROLE_WORKER && targets[i].pid != waker)
			continue;
		say_end(j, job__exit(j->job, targets[i].pid));
		said++;
	}
}

static void give_evidence(struct judging *j)
{
	const struct blame_group *group = j->group;
	struct spot top[BLAME_SPOTS] = {0};

	if (j->verdict->class == VERDICT_GPU || j->verdict->class == VERDICT_LAUNCH)
		say_busy(j);
	if (j->busy)
		return;
	if (group && !j->rule) {
		say_spots(j, group->spots, BLAME_SPOTS);
		if (verdict__one_waker(group))
			verdict__say(j, &j->verdict->evidence,
				     "%.0f %% of that wait was ended by process %u (its thread %u)",
				     100.0 * group->waker_ns / group->wait_ns, group->waker_pid, group->waker_tid);
		return;
	}
	find_spots(j, top);
	say_spots(j, top, BLAME_SPOTS);
}

/* ---- together ---- */

static size_t count_workers(const struct job *job, uint32_t pid)
{
	size_t cnt, workers = 0;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		workers += targets[i].role == ROLE_WORKER && targets[i].parent_pid == pid;
	return workers;
}

static void judge(struct judging *j)
{
	if (j->track->step_cnt < SLOW_MIN_CNT) {
		say_why(j, "only %zu step%s: record for longer", j->track->step_cnt,
			j->track->step_cnt == 1 ? "" : "s");
		return;
	}
	find_winner(j);
	if (j->rule)
		say_parts(j, j->rule);
	else if (j->group)
		say_group(j, j->group);
	else if (j->busy)
		say_why(j, "the GPU works for %.0f %% of the time of a step", 100 * busy_share(j));
	else if (is_launch_bound(j))
		judge_launches(j);
	else
		judge_cpu(j);
	for (size_t i = 0; i < j->blame->group_cnt; i++) {
		const struct blame_group *group = &j->blame->groups[i];

		if ((j->rule || group != j->group) && group->over_ns >= MENTION_SHARE * j->blame->all.total_ns)
			say_group(j, group);
	}
	give_evidence(j);
	say_ended(j);
	verdict__advise(j);
}

int verdict__new(struct job *job, const struct steps *steps, const struct step_track *track, const struct blame *blame,
		 const struct gpu_steps *gpu, struct verdict *verdict)
{
	struct judging j = {.job = job,
			    .steps = steps,
			    .track = track,
			    .blame = blame,
			    .gpu = gpu,
			    .verdict = verdict,
			    .workers = count_workers(job, track->pid)};

	*verdict = (struct verdict){0};
	judge(&j);
	if (j.err)
		verdict__release(verdict);
	return j.err;
}

static void free_texts(struct array *list)
{
	for (size_t i = 0; i < list->cnt; i++)
		free(((char **)list->items)[i]);
	free(list->items);
}

void verdict__release(struct verdict *verdict)
{
	free(verdict->why);
	free_texts(&verdict->evidence);
	free_texts(&verdict->next);
	*verdict = (struct verdict){0};
}
