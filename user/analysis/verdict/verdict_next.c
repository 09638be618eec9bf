// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What to try next, by the class of a verdict. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "user/analysis/loader/workers.h"
#include "user/analysis/verdict/verdict_private.h"
#include "user/model/stacks.h"

/* The loader that the process of the steps waits for most. NULL: none. */
static const struct loader *find_loader(const struct judge *j, const struct workers *workers)
{
	const struct loader *loaders, *most = NULL;
	size_t cnt;

	loaders = workers__loaders(workers, &cnt);
	for (size_t i = 0; i < cnt; i++)
		if (loaders[i].track == j->track && (!most || loaders[i].wait_ns > most->wait_ns))
			most = &loaders[i];
	return most;
}

/* The advice of `report --io`, in a sentence. */
static void advise_workers(struct judge *j)
{
	struct workers *workers = workers__new(j->job, j->steps);
	struct array *next = &j->verdict->next;
	const struct loader *loader;

	if (!workers) {
		j->err = -ENOMEM;
		return;
	}
	loader = find_loader(j, workers);
	if (loader && loader->advice == LOADER_RESTARTS) {
		double share = fmin(1, (double)loader->restarts_ns / loader->observed_ns);

		verdict__say(
			j, next,
			"persistent_workers=True in the DataLoader: its workers start anew for each epoch, which takes "
			"%.3g s, %.0f %% of the time",
			loader->restarts_ns / 1e9, 100 * share);
		j->verdict->share = fmax(j->verdict->share, share);
	} else if (j->group && j->group->cause == BLAME_EXTRA)
		verdict__say(j, next,
			     "persistent_workers=True in the DataLoader, where it starts its workers for each epoch");
	else if (loader && loader->advice == LOADER_CPU_FULL)
		verdict__say(
			j, next,
			"less work for each item: more DataLoader workers would find no free CPU; stepflame report "
			"--io says what the workers do");
	else if (loader && loader->advice == LOADER_MORE)
		verdict__say(
			j, next,
			"more DataLoader workers: with %u a batch would take %.3g ms, not %.3g; stepflame report --io "
			"says what they wait for",
			loader->advised, loader->reach_ns / 1e6, loader->batch_ns / 1e6);
	else
		verdict__say(j, next,
			     "more DataLoader workers; stepflame report --io says how many would keep up, and what "
			     "they wait for");
	workers__free(workers);
}

/* Whether a DataLoader without workers got data while samples were taken. */
static bool has_own_loader(const struct judge *j)
{
	const struct stacks *stacks = job__stacks(j->job);

	for (size_t i = 0; i < stacks__path_end(stacks); i++) {
		struct path path = stacks__path(stacks, i);

		for (uint32_t s = 0; s < path.cnt; s++) {
			const char *name = job__name(j->job, path.spans[s].name);

			if (name && strstr(name, "DataLoader") && strstr(name, "SingleProcess"))
				return true;
		}
	}
	return false;
}

static const char far_files_advice[] = "fewer, larger files (an archive, shards), names that are looked up once, or a "
				       "copy on a local disk: its server "
				       "answers each open and look-up";

static void advise_input(struct judge *j)
{
	struct array *next = &j->verdict->next;
	const struct step_sum *all = &j->blame->all;
	bool waited = false;

	/* A process that waits for workers has some, whether or not the recording identifies them. */
	for (int phase = 0; phase < PHASE__COUNT; phase++)
		waited |= all->ns[phase][CAUSE_DATA_WAIT] > 0;
	if (waited && j->group && verdict__one_waker(j->group) && verdict__failed(j->job, j->group->waker_pid))
		verdict__say(j, next,
			     "a worker died: read its last output, and check in dmesg whether it ran out of memory");
	else if (j->slow_worker)
		verdict__say(
			j, next,
			"the job waits for one worker, process %u: stepflame report --io says what it does that others "
			"do not",
			j->slow_worker);
	else if (j->far_files && !j->workers)
		verdict__say(j, next, "%s", far_files_advice);
	else if (all->ns[PHASE_DATA][CAUSE_DISK_READ] > MENTION_SHARE * all->total_ns)
		verdict__say(j, next,
			     "stepflame report --io says which files are read from disk: faster storage, larger files "
			     "that are read in order, or a cache in memory");
	else if (waited || j->workers || (j->group && j->group->cause == BLAME_EXTRA))
		advise_workers(j);
	else if (has_own_loader(j))
		verdict__say(j, next, "set num_workers in the DataLoader: the training process itself gets the data");
	else if (j->thread)
		verdict__say(j, next,
			     "more threads or processes that get batches, or less work for each: one is too slow for "
			     "the model");
	else
		verdict__say(
			j, next,
			"get the next batch while the model works on this one: in a DataLoader with workers, or in "
			"a thread or process that fills a queue");
}

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

	if (j->group && j->group->cause == BLAME_GC)
		verdict__say(j, next,
			     "gc.freeze() when all is set up, or a higher gc.set_threshold(); if the program calls "
			     "gc.collect(), less often");
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

static const char *find_starved_advice(const struct cpu_limit *cpus)
{
	if (cpus->holder == CPU_HELD_ITSELF && cpu_ran__is_known(&cpus->ran))
		return fewer_advice[cpu_ran__most_of_own(&cpus->ran)];
	return starved_advice[cpus->holder];
}

static const char *find_advice(const struct judge *j)
{
	enum verdict_class class = j->verdict->class;

	if (j->busy)
		return "the GPU is the limit: stepflame report --gpu says which kernels; use mixed precision, or a "
		       "faster GPU";
	if (j->verdict->cause == CAUSE_PAUSED)
		return "find out who pauses it: the scheduler of the cluster (cgroup.freeze), a kill -STOP, a debugger "
		       "(TracerPid in /proc/PID/status), a suspended machine";
	if (j->far_files && j->verdict->cause == CAUSE_FILE_SYSTEM)
		return far_files_advice;
	if (j->thread && class == VERDICT_EXTRA)
		return "do it less often, or ask for it earlier, while the model works; stepflame report --advanced "
		       "--per-rank says what the others do";
	if (j->thread && (class == VERDICT_UNCLEAR || class == VERDICT_THREAD))
		return "less work for those that the steps wait for, or ask them earlier, while the model works; "
		       "stepflame report --advanced --per-rank says what they do";
	if (class == VERDICT_STARVED && find_starved_advice(&j->cpus))
		return find_starved_advice(&j->cpus);
	if (class == VERDICT_UNCLEAR && j->verdict->cause < CAUSE__COUNT && advice_of_waits[j->verdict->cause])
		return advice_of_waits[j->verdict->cause];
	return is_jax_alone(j->job) && advice_jax[class] ? advice_jax[class] : advice[class];
}

void verdict__advise(struct judge *j)
{
	const char *text = find_advice(j);

	if (j->verdict->class == VERDICT_INPUT)
		advise_input(j);
	else if (j->verdict->class == VERDICT_PYTHON)
		advise_python(j);
	else if (text && !j->verdict->next.cnt)
		verdict__say(j, &j->verdict->next, "%s", text);
}
