// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A candidate is something that may bound a step, with its share of the time of all steps, and the
 * share from which it is worth mentioning. Of those that have it, the one with the most time wins,
 * since that time could be won; a phase wins over a cause that is spread over phases. Slow steps are
 * candidates, too, with the time that they took beyond ordinary ones: if they are most of the
 * winner's time, they say more.
 */
#include "user/analysis/verdict/verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/verdict/evidence.h"
#include "user/lib/digits.h"

static const char *const class_names[] = {
#define X(id, name) [VERDICT_##id] = name,
	STEPFLAME_VERDICTS(X)
#undef X
};

const char *verdict_class__name(enum verdict_class class)
{
	return class_names[class];
}

/* Shares of the time of all steps. */
#define SLOW_SHARE       0.05 /* lost in slow steps of one cause */
#define CPU_SLOW_SHARE   0.15 /* likewise, in work that all steps do but some need longer for */
#define VALIDATION_SHARE 0.1  /* likewise, in what a program does on purpose */
#define GC_SHARE         0.1  /* in collections of garbage */

#define WRITTEN_SHARE    0.3 /* of extra work */
#define NEARLY_ALL       0.9 /* of a rule's time */
#define MOST_OF_RULE     0.7 /* likewise: slow steps say more */
#define PHASE_FIRST      1.3 /* so many times its time counts: what a phase waits for is often spread over others */

/* Time in a phase, or by a cause in any other phase, that counts towards a class. */
static const struct verdict_rule rules[] = {
	{VERDICT_INPUT, 0.2, PHASE_DATA, {CAUSE_DATA_WAIT, NONE, NONE}, "goes into getting data"},
	{VERDICT_COMM, 0.2, PHASE_COMM, {CAUSE_COLLECTIVE, NONE, NONE}, "goes into collectives"},
	{VERDICT_GPU, 0.3, NONE, {CAUSE_GPU_SYNC, NONE, NONE}, "waits for the GPU"},
	{VERDICT_CHECKPOINT, 0.1, PHASE_CHECKPOINT, {CAUSE_FSYNC, CAUSE_DISK_WRITE, NONE}, "goes into writing to disk"},
	{VERDICT_COMPILE, 0.1, PHASE_COMPILE, {NONE, NONE, NONE}, "goes into XLA's compiles"},
	{VERDICT_COMPUTE, 0.3, NONE, {CAUSE_XLA_WAIT, NONE, NONE}, "waits for what XLA computes"},
	{VERDICT_MEMORY, 0.1, NONE, {CAUSE_PAGE_FAULT, NONE, NONE}, "waits for memory (page faults)"},
	{VERDICT_LOCK, 0.1, NONE, {CAUSE_LOCK, CAUSE_GIL, NONE}, "waits for locks that other threads hold"},
	{VERDICT_THREAD, 0.1, NONE, {CAUSE_THREAD_WAIT, NONE, NONE}, "waits for what other threads or processes do"},
	{VERDICT_STARVED, 0.1, NONE, {CAUSE_RUN_QUEUE, NONE, NONE}, "waits for a free CPU"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_SLEEP, NONE, NONE}, "is spent sleeping"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_DISK_READ, NONE, NONE}, "waits for reads from disk"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_FILE_SYSTEM, NONE, NONE}, "waits for a file system on FUSE or the network"},
	{VERDICT_UNCLEAR,
	 0.1,
	 NONE,
	 {CAUSE_PIPE, CAUSE_SOCKET, CAUSE_POLL},
	 "waits for pipes, sockets, or any of several files"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_CHILD_WAIT, NONE, NONE}, "waits for child processes"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_PAUSED, NONE, NONE}, "is paused from outside (signal, debugger, freezer)"},
	{VERDICT_UNCLEAR, 0.1, NONE, {CAUSE_UNKNOWN, NONE, NONE}, "waits for an unknown cause"},
};

#define RULE_CNT (sizeof(rules) / sizeof(*rules))

/* ---- who wins ---- */

static double rule__share(const struct verdict_rule *rule, const struct step_sum *sum)
{
	double ns = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		for (unsigned int cause = 0; cause < CAUSE__END; cause++)
			if (verdict_rule__has(rule, phase, cause))
				ns += sum->ns[phase][cause];
	return ns / sum->total_ns;
}

/* Whether the wait, which alone does not imply a class, lies in getting data. */
static bool rule__is_in_data(const struct verdict_rule *rule, const struct step_sum *sum)
{
	double ns = 0, in_data = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		for (unsigned int cause = 0; cause < CAUSE__END; cause++)
			if (verdict_rule__has(rule, phase, cause)) {
				ns += sum->ns[phase][cause];
				in_data += phase == PHASE_DATA ? sum->ns[phase][cause] : 0;
			}
	return in_data >= NEARLY_ALL * ns;
}

/* Work that waits for the disk to take its writes is a checkpoint, whoever writes it. */
static bool is_written(const struct blame_group *group)
{
	return (group->wait == CAUSE_FSYNC || group->wait == CAUSE_DISK_WRITE) &&
	       group->wait_ns >= WRITTEN_SHARE * group->cause_ns;
}

static enum verdict_class class_of_cause(struct judge *j, const struct blame_group *group)
{
	switch (group->cause) {
	case BLAME_VALIDATION:
		return VERDICT_VALIDATION;
	case BLAME_EXTRA:
		return is_written(group)                   ? VERDICT_CHECKPOINT
		       : verdict__starts_workers(j, group) ? VERDICT_INPUT
							   : VERDICT_EXTRA;
	case BLAME_CHECKPOINT:
		return VERDICT_CHECKPOINT;
	case BLAME_COMPILE:
		return VERDICT_COMPILE;
	case BLAME_GC:
		return VERDICT_PYTHON;
	default:
		return VERDICT_UNCLEAR;
	}
}

/* The class of a group of slow steps. */
static enum verdict_class class_of_group(struct judge *j, const struct blame_group *group)
{
	enum verdict_class class = class_of_cause(j, group);

	if (class != VERDICT_UNCLEAR || group->cause == CAUSE_UNKNOWN || group->cause == CAUSE_PAUSED)
		return class;
	if (group->phase == PHASE_DATA || group->cause == CAUSE_DISK_READ || group->cause == CAUSE_FILE_SYSTEM)
		return VERDICT_INPUT;
	if (group->cause == BLAME_PYTHON)
		return VERDICT_PYTHON;
	if (group->cause == BLAME_OP)
		return VERDICT_CPU_OP;
	for (size_t i = 0; i < RULE_CNT && class == VERDICT_UNCLEAR; i++)
		if (verdict_rule__has(&rules[i], group->phase, group->cause))
			class = rules[i].class;
	/* A wait that implies no class, in a function that other steps do not call. */
	return class == VERDICT_UNCLEAR && group->place.rare ? VERDICT_EXTRA : class;
}

/*
 * The share from which slow steps of one cause become the verdict; 0: never. If the machine stops
 * now and then, no code is to blame.
 */
static double least_of_group(const struct blame_group *group)
{
	if (group->cause == CAUSE_UNKNOWN || group->cause == BLAME_SKIPPED)
		return 0;
	if (group->cause >= BLAME_PYTHON)
		return CPU_SLOW_SHARE;
	return group->cause == BLAME_VALIDATION ? VALIDATION_SHARE : SLOW_SHARE;
}

/*
 * What a fix could gain. Waits for a CPU are not the fault of a second kind of work, any more than
 * of the steps around it.
 */
static double group__share(const struct blame_group *group, const struct step_sum *all)
{
	bool work = group->cause == BLAME_EXTRA || group->cause == BLAME_VALIDATION;

	return (double)(group->over_ns - (work ? group->queue_ns : 0)) / all->total_ns;
}

/* The rule with the most time; NULL: none has enough. */
static const struct verdict_rule *find_rule(const struct judge *j)
{
	const struct verdict_rule *best = NULL;
	double most = 0;

	for (size_t i = 0; i < RULE_CNT; i++) {
		double share = rule__share(&rules[i], &j->blame->all);
		double counts = share * (rules[i].phase != NONE ? PHASE_FIRST : 1);

		if (share < rules[i].share || counts <= most)
			continue;
		most = counts;
		best = &rules[i];
	}
	return best;
}

static enum verdict_class class_of_rule(const struct judge *j, const struct verdict_rule *rule)
{
	return rule->class == VERDICT_UNCLEAR && rule__is_in_data(rule, &j->blame->all) ? VERDICT_INPUT : rule->class;
}

static void find_winner(struct judge *j)
{
	const struct step_sum *all = &j->blame->all;
	const struct verdict_rule *rule = find_rule(j);
	double of_rule = rule ? rule__share(rule, all) : 0, gc = (double)all->gc_ns / all->total_ns;

	if (rule) {
		j->rule = rule;
		j->share = of_rule;
		j->verdict->class = class_of_rule(j, rule);
	}
	for (size_t i = 0; i < j->blame->group_cnt; i++) {
		const struct blame_group *group = &j->blame->groups[i];
		double least = least_of_group(group), share = group__share(group, all);
		enum verdict_class class;

		if (!least || share < least)
			continue;
		class = class_of_group(j, group);
		if (share <= j->share && !(j->rule && class == j->verdict->class && share >= MOST_OF_RULE * of_rule))
			continue;
		j->rule = NULL;
		j->group = group;
		j->share = share;
		j->verdict->class = class;
	}
	if (gc >= GC_SHARE && gc > j->share &&
	    !(j->group && j->group->cause == BLAME_GC && j->share >= MOST_OF_RULE * gc)) {
		j->rule = NULL;
		j->group = NULL;
		j->share = gc;
		j->collects = true;
		j->verdict->class = VERDICT_PYTHON;
	}
	if (j->busy_share >= fmax(j->share, BUSY_SHARE) && !(j->by_nvml && j->has_ranks)) {
		j->rule = NULL;
		j->group = NULL;
		j->collects = false;
		j->busy = true;
		j->verdict->class = VERDICT_GPU;
	}
}

/* ---- why ---- */

static void say_group_in_verdict(struct judge *j, const struct blame_group *group)
{
	double share = 100 * group__share(group, &j->blame->all);
	char *rhythm = rhythm__text(&group->rhythm, group->step_cnt), *place = NULL, cause[64];
	bool work = group->cause == BLAME_EXTRA || group->cause == BLAME_VALIDATION;

	if (group->place.outer.code)
		place = place__text(j->job, &group->place);
	if (!rhythm || (group->place.outer.code && !place)) {
		j->err = -ENOMEM;
		goto out;
	}
	if (group->cause == BLAME_GC)
		snprintf(cause, sizeof(cause), "gc of generation %u", group->gc_generation);
	else if (group->cause == BLAME_EXTRA)
		snprintf(cause, sizeof(cause), "work that other steps do not have");
	else if (group->phase != ANY && group->cause != BLAME_CHECKPOINT && group->cause != BLAME_VALIDATION)
		snprintf(cause, sizeof(cause), "%s in %s", blame_cause__name(group->cause), phase__name(group->phase));
	else
		snprintf(cause, sizeof(cause), "%s", blame_cause__name(group->cause));
	if (work)
		verdict__say_why(j, "%.1f %% of the time goes into %s, in %u slow step%s%s%s%s%s%s", share, cause,
				 group->step_cnt, group->step_cnt == 1 ? "" : "s", *rhythm ? " (" : "", rhythm,
				 *rhythm ? ")" : "", place ? ": " : "", place ?: "");
	else
		verdict__say_why(j, "%.1f %% of the time is lost in %u slow step%s%s%s%s, to %s%s%s", share,
				 group->step_cnt, group->step_cnt == 1 ? "" : "s", *rhythm ? " (" : "", rhythm,
				 *rhythm ? ")" : "", cause, place ? ": " : "", place ?: "");
out:
	free(rhythm);
	free(place);
}

/* The cause of most of a rule's time, CAUSE_NONE: it is on the CPU. Sets *share of that time. */
static unsigned int main_cause(const struct judge *j, const struct verdict_rule *rule, double *share)
{
	double best_ns = 0, sum = 0;
	unsigned int best = CAUSE_NONE;

	for (unsigned int cause = 0; cause < CAUSE__END; cause++) {
		double ns = 0;

		for (int phase = 0; phase < PHASE__COUNT; phase++)
			if (verdict_rule__has(rule, phase, cause))
				ns += j->blame->all.ns[phase][cause];
		sum += ns;
		if (ns <= best_ns)
			continue;
		best_ns = ns;
		best = cause;
	}
	*share = best_ns / sum;
	return best;
}

/* Says what makes up most of a rule's time: "of that 95 % data_wait". */
static void say_parts(struct judge *j, const struct verdict_rule *rule)
{
	double of_rule;
	unsigned int cause = main_cause(j, rule, &of_rule);

	/* Whoever reads that it sleeps looks for a sleep in its steps. */
	if (rule->class == VERDICT_UNCLEAR && verdict__passed_share(j) >= MOST_OF_RULE)
		verdict__say_why(
			j, "%.0f %% of the time of a step waits for other threads or processes, while these wait: %s",
			100 * j->share, sample_cause__name(cause));
	else if (rule->class == VERDICT_LOCK && cause == CAUSE_GIL && of_rule >= NEARLY_ALL)
		verdict__say_why(j, "%.0f %% of the time of a step waits for the GIL (Python's lock)", 100 * j->share);
	/* Only what the rule's own text does not say. */
	else if (!j->track->thread || (rule->phase == NONE && of_rule >= 0.99 && (int)cause == rule->causes[0]))
		verdict__say_why(j, "%.0f %% of the time of a step %s", 100 * j->share, rule->what);
	else
		verdict__say_why(j, "%.0f %% of the time of a step %s, %.0f %% of that %s%s", 100 * j->share,
				 rule->what, 100 * of_rule, cause ? "waiting: " : "on the CPU",
				 sample_cause__name(cause));
}

static double share_of_cause(const struct step_sum *sum, unsigned int cause)
{
	uint64_t ns = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		ns += sum->ns[phase][cause];
	return sum->total_ns ? (double)ns / sum->total_ns : 0;
}

/* Other programs, as often as the job itself: its limit, or its own threads. */
static void say_who_has_the_cpus(struct judge *j)
{
	char text[2 * CPU_LIMIT_TEXT];
	int err = cpu_limit__find(j->job, j->track->pid, j->track->thread,
				  share_of_cause(&j->blame->all, CAUSE_RUN_QUEUE), &j->cpus);

	j->err = j->err ?: err;
	cpu_limit__text(&j->cpus, text);
	if (*text)
		verdict__say_why(j, "%s", text);
}

/* Sets the single phase and cause that the headline names, for programs that read it. */
static void set_named(struct judge *j)
{
	struct verdict *verdict = j->verdict;
	double of_rule;

	verdict->phase = ANY;
	if (j->group && !j->rule) {
		verdict->cause = j->group->cause;
		verdict->phase = j->group->phase;
		verdict->share = j->share;
	} else if (j->rule) {
		verdict->cause = main_cause(j, j->rule, &of_rule);
		verdict->phase = j->rule->phase == NONE ? ANY : j->rule->phase;
		verdict->share = j->share;
	} else if (j->collects) {
		verdict->cause = BLAME_GC;
		verdict->share = j->share;
	}
}

/* ---- what to try next, by the class ---- */

static bool is_jax_alone(const struct job *job)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	bool jax = false;

	for (size_t i = 0; i < cnt; i++) {
		if (targets[i].torch[0])
			return false;
		jax = jax || targets[i].jax[0];
	}
	return jax;
}

static void advise_python(struct judge *j)
{
	struct array *next = &j->verdict->next;

	if (j->collects || (j->group && j->group->cause == BLAME_GC))
		verdict__say(j, next,
			     "gc.freeze() when all is set up, or a higher gc.set_threshold(); if the program calls "
			     "gc.collect(), less often");
	else if (j->verdict->place)
		verdict__say(j, next,
			     "less Python there: in operators, in native code, or in another process; stepflame report "
			     "--advanced --cpu says what that function calls");
	else
		verdict__say(
			j, next, "%s",
			is_jax_alone(j->job)
				? "more of the step under jax.jit; stepflame report --advanced --cpu says which "
				  "functions"
				: "stepflame report --advanced --cpu says which functions; torch.compile, or larger "
				  "batches, take Python out of the step");
}

static const char *const advice[VERDICT__COUNT] = {
	[VERDICT_UNCLEAR] = "stepflame report --advanced --leaf says what runs there",
	[VERDICT_CPU_OP] = "stepflame record --ops, then report --ops, says which operators",
	[VERDICT_GPU] = "fewer waits for the GPU: no .item(), .cpu() or print() of tensors in each step",
	[VERDICT_LAUNCH] =
		"fewer and larger kernels: torch.compile(mode=\"reduce-overhead\") makes CUDA graphs of them",
	[VERDICT_COMM] = "gradient accumulation with no_sync(), larger buckets, a faster network",
	[VERDICT_CHECKPOINT] =
		"save less often, or in the background: torch.distributed.checkpoint.async_save, a thread",
	[VERDICT_MEMORY] = "see whether it swaps (vmstat 1), or maps files that do not stay in memory",
	[VERDICT_LOCK] =
		"stepflame dump -p PID, or report --advanced --per-rank, says what the other threads do meanwhile",
	[VERDICT_THREAD] =
		("start that thread's work earlier, or share it among more threads or processes; stepflame report "
		 "--advanced --per-rank says what the threads do"),
	[VERDICT_STARVED] = "see what else runs (top), and the CPU limit of the container",
	[VERDICT_COMPILE] =
		("the same shapes in each call (pad batches, drop_last=True), or torch.compile(dynamic=True); "
		 "TORCH_LOGS=recompiles says what changed"),
	[VERDICT_COMPUTE] = "stepflame report --advanced --cpu says which functions, record --ops which operators",
	[VERDICT_VALIDATION] =
		"validate less often, or on fewer batches, if you can; stepflame flame shows what it does",
	[VERDICT_EXTRA] = "do it less often, or in another process, if you can; stepflame flame shows what it does",
};

static const char ask_earlier[] = "ask earlier, or in another thread, so that no step waits for the answer";

/* Of waits that imply no class. */
static const char *const advice_of_waits[CAUSE__COUNT] = {
	[CAUSE_SLEEP] = "wait for the event itself instead of sleeping, or do that in another thread or process",
	[CAUSE_DISK_READ] = "stepflame report --io says which files; read them earlier, in another thread or process",
	[CAUSE_PIPE] = ask_earlier,
	[CAUSE_SOCKET] = ask_earlier,
	[CAUSE_POLL] = ask_earlier,
	[CAUSE_CHILD_WAIT] = "start the child earlier, or look at its end in another thread: no step then waits for it",
};

/* For processes with JAX and without torch. */
static const char *const advice_jax[VERDICT__COUNT] = {
	[VERDICT_CPU_OP] = "larger batches; more under one jax.jit, jax.lax.scan over steps",
	[VERDICT_GPU] = "fewer float(), print() or block_until_ready() of values in each step",
	[VERDICT_LAUNCH] = "fewer and larger kernels: more under one jax.jit, jax.lax.scan over steps",
	[VERDICT_CHECKPOINT] = "save less often, or in the background: orbax's AsyncCheckpointer, a thread",
	[VERDICT_COMPILE] =
		("the same shapes, dtypes and static arguments in each call: pad batches; JAX_LOG_COMPILES=1 says "
		 "what was compiled"),
	[VERDICT_COMPUTE] =
		"fewer float(), print() or block_until_ready() of values in each step: calls are asynchronous",
};

/* By enum cpu_holder. */
static const char *const starved_advice[] = {
	[CPU_HELD_OTHERS] = "see what else runs (top)",
	[CPU_HELD_QUOTA] =
		"raise the CPU limit of its container (cpu.max); below it, fewer threads (OMP_NUM_THREADS) and workers",
	[CPU_HELD_ALLOWED] = "let it run on more CPUs (taskset, cpuset), or with fewer threads (OMP_NUM_THREADS) and "
			     "workers",
	[CPU_HELD_ITSELF] =
		"fewer threads (OMP_NUM_THREADS, torch.set_num_threads) and DataLoader workers, so that they do "
		"not take CPUs from each other",
};

/* By who of the job ran while it waited. */
static const char *const fewer_advice[CPU_RAN_OTHERS] = {
	[CPU_RAN_THREADS] = "fewer threads (OMP_NUM_THREADS, torch.set_num_threads): they take CPUs from each other",
	[CPU_RAN_PROCESSES] =
		"fewer DataLoader workers or other child processes, or fewer threads in each (torch.set_num_threads): "
		"they take the CPUs from the process that trains",
	[CPU_RAN_RANKS] = "fewer threads in each rank (OMP_NUM_THREADS, torch.set_num_threads), or fewer ranks on this "
			  "machine: together they have more threads than there are CPUs",
};

#define A_QUARTER 0.25 /* of the time for which it waits for a CPU, that its own had: worth a word beside others */

static const char *find_starved_advice(const struct cpu_limit *cpus)
{
	if (cpus->holder == CPU_HELD_ITSELF && cpu_ran__is_known(&cpus->ran))
		return fewer_advice[cpu_ran__most_of_own(&cpus->ran)];
	return starved_advice[cpus->holder];
}

static const char *const thread_advice[] = {
	[AWAITED_OTHER] = "less work for those that the steps wait for, or ask them earlier, while the model works; "
			  "stepflame report --advanced --per-rank says what they do",
	[AWAITED_LATE] = "ask those that the steps wait for earlier, while the model works: they wait to be asked "
			 "meanwhile",
	[AWAITED_BUSY] = "less work for those that the steps wait for, or share it among more threads or processes: "
			 "they work all the time; stepflame report --advanced --per-rank says at what",
	[AWAITED_TURNS] = "hold the lock for less of what those threads do that the steps wait for: they wait for each "
			  "other",
};

static const char busy_in_python[] =
	"less work for those that the steps wait for, or share it among more processes (more threads would wait for "
	"each other's GIL): they work all the time; stepflame report --advanced --per-rank says at what";
static const char keeps_gil[] =
	"do in another process, or in smaller parts, what the threads do that keep the GIL, without "
	"which no thread runs Python; stepflame report --advanced --per-rank says what that is";
static const char write_less[] = "write less there (a log, a progress bar), or in another thread: what reads it does "
				 "not keep up";

static const char force_less[] = "force what it writes to the disk (fsync, a commit) less often, or in another thread; "
				 "stepflame report --io says which files";

/* Whether what is forced to the disk is no checkpoint that torch saves. */
static bool forces_others(const struct judge *j)
{
	const struct step_sum *all = &j->blame->all;
	double saved = 0;

	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		saved += all->ns[PHASE_CHECKPOINT][cause];
	return j->verdict->cause == CAUSE_FSYNC && saved < MENTION_SHARE * all->total_ns;
}

static const char *find_advice(const struct judge *j)
{
	enum verdict_class class = j->verdict->class;

	if (class == VERDICT_CHECKPOINT && forces_others(j))
		return force_less;

	if (j->busy)
		return j->by_nvml
			       ? "the GPU is the limit: mixed precision, fewer or fused kernels (torch.compile), or a "
				 "faster GPU; stepflame record --gpu auto, then report --gpu, says which kernels"
			       : "the GPU is the limit: stepflame report --gpu says which kernels; use mixed "
				 "precision, or a faster GPU";
	if (j->verdict->cause == CAUSE_PAUSED)
		return "find out who pauses it: the scheduler of the cluster (cgroup.freeze), a kill -STOP, a debugger "
		       "(TracerPid in /proc/PID/status), a suspended machine";
	if (j->far_files && j->verdict->cause == CAUSE_FILE_SYSTEM)
		return verdict__far_files;
	if (j->thread && j->verdict->cause == CAUSE_GIL && class == VERDICT_LOCK)
		return keeps_gil;
	if (j->thread == AWAITED_TURNS && class == VERDICT_LOCK)
		return thread_advice[j->thread];
	if (j->thread && j->writes && (class == VERDICT_UNCLEAR || class == VERDICT_THREAD))
		return write_less;
	if (j->thread && class == VERDICT_EXTRA)
		return "do it less often, or ask for it earlier, while the model works; stepflame report --advanced "
		       "--per-rank says what the others do";
	if (j->thread && (class == VERDICT_UNCLEAR || class == VERDICT_THREAD))
		return j->shares_gil && j->thread == AWAITED_BUSY ? busy_in_python : thread_advice[j->thread];
	if (class == VERDICT_STARVED && find_starved_advice(&j->cpus))
		return find_starved_advice(&j->cpus);
	if (class == VERDICT_UNCLEAR && j->verdict->cause < CAUSE__COUNT && advice_of_waits[j->verdict->cause])
		return advice_of_waits[j->verdict->cause];
	return is_jax_alone(j->job) && advice_jax[class] ? advice_jax[class] : advice[class];
}

/* What helps against the wait that extra work is, if it is one: nobody has to wait in another process, too. */
static const char *find_advice_of_extra(const struct judge *j)
{
	const struct blame_group *group = j->group;
	unsigned int cause;

	if (j->verdict->class != VERDICT_EXTRA || !group || j->thread)
		return NULL;
	cause = group->cause == BLAME_EXTRA && group->wait_ns >= MOST_OF_RULE * group->cause_ns ? group->wait
												: group->cause;
	return cause < CAUSE__COUNT ? advice_of_waits[cause] : NULL;
}

/* Adds what to try. */
static void advise(struct judge *j)
{
	const char *text = find_advice(j), *of_extra = find_advice_of_extra(j);

	if (of_extra) {
		verdict__say(j, &j->verdict->next, "%s", of_extra);
		verdict__say(j, &j->verdict->next, "or do it less often; stepflame flame shows what it does");
	} else if (j->verdict->class == VERDICT_INPUT) {
		verdict__advise_input(j);
	} else if (j->verdict->class == VERDICT_PYTHON) {
		advise_python(j);
	} else if (text && !j->verdict->next.cnt) {
		if (j->verdict->class == VERDICT_VALIDATION)
			verdict__advise_evaluation(j);
		verdict__say(j, &j->verdict->next, "%s", text);
	}
	if (j->verdict->class == VERDICT_STARVED && j->cpus.holder == CPU_HELD_OTHERS &&
	    cpu_ran__is_known(&j->cpus.ran) && cpu_ran__own_share(&j->cpus.ran) >= A_QUARTER)
		verdict__say(j, &j->verdict->next, "%s", fewer_advice[cpu_ran__most_of_own(&j->cpus.ran)]);
}

/* ---- together ---- */

static size_t count_worker_processes(const struct job *job, uint32_t pid)
{
	size_t cnt, workers = 0;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		workers += targets[i].role == ROLE_WORKER && targets[i].parent_pid == pid;
	return workers;
}

/* In each step another rank is last: what helps is that none is. */
static void say_turns(struct judge *j, const struct turns *turns)
{
	bool computes = !turns->cause && (turns->phase == PHASE_FORWARD || turns->phase == PHASE_BACKWARD);

	verdict__say_why(j,
			 "the ranks wait for each other in turn: %s ms of each step, and collectives themselves take "
			 "%s ms; who is last has more %s%s in %s",
			 DIGITS(turns->waits_ns / 1e6, 3), DIGITS(turns->collectives_ns / 1e6, 3),
			 turns->cause ? "waiting: " : "on the CPU", sample_cause__name(turns->cause),
			 phase__name(turns->phase));
	if (computes)
		verdict__say(
			j, &j->verdict->next,
			"batches of equal work in all ranks: samples of like length in each step's batches (buckets, "
			"packing), or as many tokens; a faster network wins none of that wait");
	else
		verdict__say(j, &j->verdict->next,
			     "find out what takes longer in some steps of each rank%s; a faster network wins none of "
			     "that wait",
			     turns->phase == PHASE_DATA        ? ": its data, its workers, its disk"
			     : turns->cause == CAUSE_RUN_QUEUE ? ": too few CPUs for all ranks"
							       : "");
}

static void judge_steps(struct judge *j)
{
	if (j->track->step_cnt < SLOW_MIN_CNT) {
		verdict__say_why(j, "only %zu step%s: record for longer", j->track->step_cnt,
				 j->track->step_cnt == 1 ? "" : "s");
		return;
	}
	verdict__find_busy(j);
	find_winner(j);
	if (j->rule)
		say_parts(j, j->rule);
	else if (j->group)
		say_group_in_verdict(j, j->group);
	else if (j->busy)
		verdict__say_why(j, "the GPU works for %.0f %% of the time of a step%s", 100 * j->busy_share,
				 j->by_nvml ? ", by NVML" : "");
	else if (j->collects)
		verdict__say_why(j, "%.0f %% of the time of a step goes into the collection of garbage (gc)",
				 100 * j->share);
	else if (!verdict__judge_launches(j))
		verdict__judge_cpu(j);
	if (j->verdict->class == VERDICT_STARVED)
		say_who_has_the_cpus(j);
	if (j->verdict->class == VERDICT_COMM && j->rule && j->straggler && j->straggler->turns.waits_ns)
		say_turns(j, &j->straggler->turns);
	set_named(j);
	verdict__give_evidence(j);
	if (j->holder)
		verdict__say_why(j, "%s", j->holder);
	verdict__find_gain(j);
	if (j->thread && j->rule && j->rule->causes[0] == CAUSE_PIPE && j->verdict->class == VERDICT_UNCLEAR)
		j->verdict->class = VERDICT_THREAD;
	advise(j);
}

/* The others wait for this rank: says what its steps have beyond theirs. */
static void judge_straggler(struct judge *j)
{
	const struct straggler *straggler = j->straggler;
	struct verdict *verdict = j->verdict;
	double step_ns = j->track->rule_of_slow.median_ns;

	verdict->class = VERDICT_STRAGGLER;
	verdict->cause = straggler->cause;
	verdict->phase = straggler->slower ? ANY : (int)straggler->phase;
	verdict->share = fmin(1, straggler->more_ns / step_ns);
	verdict->place = straggler->place.outer.code ? place__text(j->job, &straggler->place) : NULL;
	if (straggler->slower) {
		verdict__say_why(
			j, "%s holds the others up, %s ms of each step of %s ms: its CPU is slower, in all phases",
			straggler->name, DIGITS(straggler->more_ns / 1e6, 3), DIGITS(step_ns / 1e6, 3));
		verdict__say(j, &verdict->evidence, "%s", straggler->why);
		verdict__say(j, &verdict->next, "see what else runs beside %s (top), and how fast its CPUs are clocked",
			     straggler->name);
		return;
	}
	verdict__say_why(j, "%s holds the others up, %s ms of each step of %s ms: %s%s in %s%s%s", straggler->name,
			 DIGITS(straggler->more_ns / 1e6, 3), DIGITS(step_ns / 1e6, 3),
			 straggler->cause ? "waiting, " : "on the CPU", sample_cause__name(straggler->cause),
			 phase__name(straggler->phase), verdict->place ? ", " : "", verdict->place ?: "");
	if (straggler->cause == CAUSE_RUN_QUEUE)
		say_who_has_the_cpus(j);
	verdict__say(j, &verdict->evidence, "%s", straggler->why);
	verdict__say(j, &verdict->next, "find out what %s does there that the others do not%s", straggler->name,
		     straggler->phase == PHASE_DATA        ? ": its shard of the data, its disk, its workers"
		     : straggler->cause == CAUSE_RUN_QUEUE ? ": what else runs on its CPUs"
							   : "");
}

static void free_text_list(struct array *list)
{
	for (size_t i = 0; i < list->cnt; i++)
		free(((char **)list->items)[i]);
	free(list->items);
}

void verdict__release(struct verdict *verdict)
{
	free(verdict->why);
	free(verdict->place);
	free_text_list(&verdict->evidence);
	free_text_list(&verdict->next);
	*verdict = (struct verdict){0};
}

/* Whether the time that the winner counts has what the straggler's steps have beyond those of the others. */
static bool winner_has(const struct judge *j, const struct straggler *straggler)
{
	if (straggler->slower)
		return false;
	if (j->rule)
		return verdict_rule__has(j->rule, (int)straggler->phase, straggler->cause);
	if (!j->group)
		return false;
	return j->group->phase == ANY ? j->group->cause == straggler->cause : j->group->phase == (int)straggler->phase;
}

/* Whether that is as much as what limits all ranks, which have the rest of the winner's time, too. */
static bool is_headline(const struct judge *j)
{
	double more = j->straggler->more_ns / j->track->rule_of_slow.median_ns;

	return more >= j->share - (winner_has(j, j->straggler) ? more : 0);
}

/* Judges the steps of the straggler's rank, and what the others wait for. */
static void judge_ranks(struct judge *j)
{
	const struct judge begin = *j;

	judge_steps(j);
	if (j->err)
		return;
	if (!is_headline(j)) {
		verdict__say(j, &j->verdict->evidence, "%s holds the others up, %s ms of each step of %s ms: %s",
			     j->straggler->name, DIGITS(j->straggler->more_ns / 1e6, 3),
			     DIGITS(j->track->rule_of_slow.median_ns / 1e6, 3), j->straggler->why);
		return;
	}
	free(j->holder);
	verdict__release(j->verdict);
	j->verdict->phase = ANY;
	*j = begin;
	judge_straggler(j);
}

int verdict__new(struct job *job, const struct steps *steps, const struct step_track *track, const struct blame *blame,
		 const struct gpu_steps *gpu, const struct straggler *straggler, struct verdict *verdict)
{
	struct judge j = {.job = job,
			  .steps = steps,
			  .track = track,
			  .blame = blame,
			  .gpu = gpu,
			  .straggler = straggler,
			  .verdict = verdict,
			  .workers = count_worker_processes(job, track->pid)};

	*verdict = (struct verdict){.phase = ANY};
	if (straggler && straggler->index >= 0 && track->step_cnt >= SLOW_MIN_CNT)
		judge_ranks(&j);
	else
		judge_steps(&j);
	free(j.holder);
	if (j.err)
		verdict__release(verdict);
	return j.err;
}
