// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What to try next, by the class of a verdict. */
#include "verdict_private.h"

static void advise_input(struct judging *j)
{
	struct array *next = &j->verdict->next;
	const struct step_sum *all = &j->blame->all;
	bool waited = false;

	/* A process that waits for workers has some, whether the recording knows them as such or not. */
	for (int phase = 0; phase < PHASE__COUNT; phase++)
		waited |= all->ns[phase][CAUSE_DATA_WAIT] > 0;
	if (waited && j->group && verdict__one_waker(j->group) && verdict__failed(j->job, j->group->waker_pid))
		verdict__say(
			j, next,
			"a worker has died: see its last words, and whether it was killed for want of memory (dmesg)");
	else if (waited && j->group && verdict__one_waker(j->group))
		verdict__say(j, next, "one worker is waited for, process %u: see what it does that others do not",
			     j->group->waker_pid);
	else if (waited || j->workers)
		verdict__say(j, next, "more DataLoader workers, persistent_workers=True, a larger prefetch_factor");
	else
		verdict__say(j, next, "set num_workers: the training process itself gets the data");
	if (all->ns[PHASE_DATA][CAUSE_DISK_READ] > MENTION_SHARE * all->total_ns)
		verdict__say(j, next, "faster storage, larger files that are read in order, or a cache in memory");
	verdict__say(j, next, "stepflame report --io says which files were read, and what the workers did");
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

static void advise_python(struct judging *j)
{
	struct array *next = &j->verdict->next;

	if (j->group && j->group->cause == BLAME_GC) {
		verdict__say(j, next,
			     "gc.freeze() when all is set up; a higher gc.set_threshold(); or gc.disable(), and "
			     "gc.collect() "
			     "where it does not hurt");
		return;
	}
	verdict__say(j, next, "stepflame report --advanced --cpu says which functions");
	verdict__say(
		j, next, "%s",
		is_jax_alone(j->job)
			? "more of the step under jax.jit, larger batches, no Python loops over elements"
			: "torch.compile, larger batches, fewer and larger operators, no Python loops over elements");
}

static const char *const advice[VERDICT__COUNT][2] = {
	[VERDICT_UNCLEAR] = {"stepflame report --advanced --leaf says what runs there"},
	[VERDICT_CPU_OP] = {"stepflame record --ops, then report --ops, says which operators",
			    "a GPU; torch.set_num_threads() to the cores that there are; bfloat16; torch.compile"},
	[VERDICT_GPU] =
		{"fewer waits for the GPU: no .item(), .cpu() or print() of tensors in each step",
		 "else the GPU is what bounds: mixed precision, torch.compile, or a faster one; stepflame report --gpu "
		 "says which kernels"},
	[VERDICT_LAUNCH] = {"fewer and larger kernels: torch.compile, fused optimizers, larger batches",
			    "CUDA graphs: torch.compile(mode=\"reduce-overhead\"), torch.cuda.graphs"},
	[VERDICT_COMM] = {"stepflame report --steps --per-rank: the rank that waits least is waited for",
			  "gradient accumulation with no_sync(), larger buckets, a faster network"},
	[VERDICT_CHECKPOINT] = {"save less often, or aside: torch.distributed.checkpoint.async_save, a thread",
				"faster storage; fsync once, when all is written"},
	[VERDICT_MEMORY] = {"check for swapping (vmstat 1), and mapped files that do not stay in memory",
			    "memory that is used again: pin_memory=True, buffers made once, another malloc"},
	[VERDICT_LOCK] = {"stepflame dump -p PID, or report --advanced --per-rank: what the other threads do meanwhile",
			  "their work in processes of its own, or in native code that lets go of the GIL"},
	[VERDICT_STARVED] = {"see what else runs (top), and the CPU limit of the container",
			     "fewer threads: torch.set_num_threads(), num_workers; nice, taskset, or more cores"},
	[VERDICT_COMPILE] = {"the same shapes, dtypes and static arguments in each call: pad batches, drop_last",
			     "JAX_EXPLAIN_CACHE_MISSES=1 or JAX_LOG_COMPILES=1 says what was compiled and why; "
			     "jax_compilation_cache_dir keeps it"},
	[VERDICT_COMPUTE] =
		{"fewer float(), print() or block_until_ready() of values in each step: calls are asynchronous",
		 "else the computation is what bounds: stepflame report --gpu; bfloat16, a faster device"},
};

/* Where there is JAX and no torch. */
static const char *const advice_jax[VERDICT__COUNT][2] = {
	[VERDICT_CPU_OP] = {"a GPU or TPU; bfloat16",
			    "larger batches; more under one jax.jit, jax.lax.scan over steps"},
	[VERDICT_GPU] =
		{"fewer float(), print() or block_until_ready() of values in each step",
		 "else the GPU is what bounds: bfloat16, or a faster one; stepflame report --gpu says which kernels"},
	[VERDICT_LAUNCH] = {"fewer and larger kernels: more under one jax.jit, larger batches",
			    "jax.lax.scan over steps"},
	[VERDICT_CHECKPOINT] = {"save less often, or aside: orbax's AsyncCheckpointer, a thread",
				"faster storage; fsync once, when all is written"},
	[VERDICT_STARVED] = {"see what else runs (top), and the CPU limit of the container",
			     "fewer processes and threads; nice, taskset, or more cores"},
};

void verdict__advise(struct judging *j)
{
	const char *const *texts = advice[j->verdict->class];
	bool jax = is_jax_alone(j->job);

	if (jax && advice_jax[j->verdict->class][0])
		texts = advice_jax[j->verdict->class];

	if (j->verdict->class == VERDICT_INPUT)
		advise_input(j);
	else if (j->verdict->class == VERDICT_PYTHON)
		advise_python(j);
	else if (j->verdict->class != VERDICT_UNCLEAR || j->rule || j->group)
		for (int i = j->busy; i < 2 && texts[i]; i++)
			verdict__say(j, &j->verdict->next, "%s", texts[i]);
}
