// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What to try where getting data limits the steps: by where the data come from, and by what those do who make the batches.
 * In: a judge with its evidence. Out: texts.
 */
#include "user/analysis/verdict/evidence.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/loader/worker_stacks.h"
#include "user/analysis/loader/workers.h"
#include "user/lib/digits.h"
#include "user/lib/saturating.h"
#include "user/model/processes.h"
#include "user/model/stacks.h"

/* ---- where the data come from ---- */

/* By which kind of DataLoader a path of spans is in, the innermost one. */
enum loader_kind {
	KIND_NONE,
	KIND_OWN,     /* without workers: the process itself gets the data */
	KIND_WORKERS, /* with some */
};

/* The time of the steps that the verdict is about. */
struct data_time {
	uint64_t all_ns;
	uint64_t own_ns;        /* the part in a DataLoader without workers, */
	uint64_t workers_ns;    /* in one with workers, or where workers are awaited or started, */
	uint64_t validation_ns; /* in evaluations */
};

/* By its label: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__". */
static enum loader_kind kind_of_path(const struct job *job, uint32_t number)
{
	struct path path = stacks__path(job__stacks(job), number);

	for (uint32_t i = path.cnt; i > 0; i--) {
		const char *name = job__name(job, path.spans[i - 1].name);

		if (!name || !strstr(name, "DataLoader"))
			continue;
		if (strstr(name, "SingleProcess"))
			return KIND_OWN;
		if (strstr(name, "MultiProcessing"))
			return KIND_WORKERS;
	}
	return KIND_NONE;
}

static bool is_about(const struct judge *j, const struct sample *s, enum phase phase)
{
	long step = step_track__at(j->track, s->time_ns);

	if (step < 0)
		return false;
	if (j->rule)
		return verdict_rule__has(j->rule, phase, s->cause);
	return j->group && verdict__is_of_group(j, j->group, step) &&
	       (j->group->phase == (int)phase || (s->kind == SAMPLE_WAIT && s->cause == j->group->cause));
}

/* All zeros without samples. */
static struct data_time find_data_time(struct judge *j)
{
	const struct samples *samples = j->track->thread ? job__samples(j->job) : NULL;
	size_t cnt = stacks__path_end(job__stacks(j->job));
	uint8_t *kinds = calloc(cnt + 1, sizeof(*kinds)); /* enum loader_kind by path */
	uint8_t *stacks = samples ? worker_stacks__new(j->job) : NULL;
	struct data_time time = {0};

	if (!kinds || (samples && !stacks))
		j->err = -ENOMEM;
	for (size_t i = 0; kinds && i < cnt; i++)
		kinds[i] = kind_of_path(j->job, i);
	for (size_t i = 0; kinds && stacks && i < samples__cnt(samples); i++) {
		struct sample s;
		enum phase phase;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		s = samples__get(samples, i);
		phase = step_track__phase(j->track, j->steps, &s);
		if (!is_about(j, &s, phase))
			continue;
		time.all_ns = saturating__add(time.all_ns, s.weight_ns);
		if (kinds[s.path] == KIND_WORKERS || s.cause == CAUSE_DATA_WAIT || stacks[s.stack] == STACK_STARTS)
			time.workers_ns = saturating__add(time.workers_ns, s.weight_ns);
		else if (kinds[s.path] == KIND_OWN)
			time.own_ns = saturating__add(time.own_ns, s.weight_ns);
		if (phase == PHASE_VALIDATION)
			time.validation_ns = saturating__add(time.validation_ns, s.weight_ns);
	}
	free(kinds);
	free(stacks);
	return time;
}

static bool is_half(uint64_t part, uint64_t whole)
{
	return whole && part >= whole / 2;
}

/* ---- what the workers want ---- */

/*
 * The loader that the process of the steps waits for most, of those where it gets the data that the verdict is about: in
 * evaluations, or outside of them. NULL: none.
 */
static const struct loader *find_loader(const struct judge *j, const struct workers *workers, bool validation)
{
	const struct loader *loaders, *most = NULL;
	bool most_fits = false;
	size_t cnt;

	loaders = workers__loaders(workers, &cnt);
	for (size_t i = 0; i < cnt; i++) {
		bool fits = loaders[i].of_cnt == 1 || loaders[i].place.validation == validation;

		if (loaders[i].track != j->track || fits < most_fits)
			continue;
		if (!most || fits > most_fits || loaders[i].wait_ns > most->wait_ns)
			most = &loaders[i];
		most_fits = fits;
	}
	return most;
}

static void say_restarts(struct judge *j, const struct loader *loader)
{
	double share = fmin(1, (double)loader->restarts_ns / loader->observed_ns);

	verdict__say(j, &j->verdict->next,
		     "make the DataLoader once, with persistent_workers=True: its workers start anew for each epoch, "
		     "which takes %s s, %.0f %% of the time",
		     DIGITS(loader->restarts_ns / 1e9, 3), 100 * share);
	j->verdict->share = fmax(j->verdict->share, share);
}

static void say_slow(struct judge *j, const struct loader *loader)
{
	struct array *next = &j->verdict->next;
	uint32_t pid = REC_PID(loader->workers[loader->slow].pid);

	if (loader->is_stream)
		verdict__say(
			j, next,
			"more and equal shards of the data set: DataLoader worker %u (process %u) has more of them "
			"than the others, or slower ones",
			loader->slow, pid);
	else
		verdict__say(j, next,
			     "find out why worker %u (process %u) is slower than the other DataLoader workers before "
			     "you add some; stepflame report --io says what it does",
			     loader->slow, pid);
}

static void say_turns(struct judge *j, const struct loader *loader)
{
	struct array *next = &j->verdict->next;

	if (loader->server)
		verdict__say(j, next,
			     "less to ask of process %u, for which its DataLoader workers wait for %.0f %% of their "
			     "work (a copy in each, more at a time): more of them would wait, too",
			     REC_PID(loader->server), 100 * loader->awaited_share);
	else
		verdict__say(j, next,
			     "a lock, a file or a connection of its own for each DataLoader worker: they wait for each "
			     "other for %.0f %% of their work, and more of them would wait, too",
			     100 * loader->awaited_share);
}

/* The advice of `report --io` about a loader's workers, in a sentence. */
static void say_advice(struct judge *j, const struct loader *loader)
{
	struct array *next = &j->verdict->next;

	switch (loader->advice) {
	case LOADER_UNKNOWN:
		verdict__say(j, next,
			     "more DataLoader workers, perhaps: the recording has too few batches, or no samples of "
			     "workers, to say how many would keep up; record for longer");
		break;
	case LOADER_KEEPS_UP:
		if (loader->handover_ns > loader->wait_ns)
			verdict__say(j, next,
				     "larger batches, fewer tensors in each, or no workers if items take little: the "
				     "workers keep up, and the time goes into handing over batches that are there");
		else
			verdict__say(j, next,
				     "stepflame report --io says what its DataLoader workers do: they keep up, and "
				     "more of them would not help");
		break;
	case LOADER_ONE_SLOW:
		say_slow(j, loader);
		break;
	case LOADER_SHARDS:
		verdict__say(
			j, next,
			"more DataLoader workers, only if its data set has as many shards: of an IterableDataset, a "
			"worker that has none makes no batches");
		break;
	case LOADER_TURNS:
		say_turns(j, loader);
		break;
	case LOADER_CPU_FULL:
		verdict__say(j, next,
			     "less work for each item: more DataLoader workers would find no free CPU; stepflame "
			     "report --io says what the workers do");
		break;
	case LOADER_MORE:
		verdict__say(j, next,
			     "more DataLoader workers: with %u a batch would take %s ms, not %s; stepflame report "
			     "--io says what they wait for",
			     loader->advised, DIGITS(loader->reach_ns / 1e6, 3), DIGITS(loader->batch_ns / 1e6, 3));
		break;
	case LOADER_RESTARTS:
		say_restarts(j, loader);
		break;
	case LOADER_UNEVEN:
		verdict__say(j, next,
			     "prefetch_factor in the DataLoader: there are enough workers on average, but batches "
			     "differ in duration");
		break;
	case LOADER_THREADS:
		verdict__say(j, next,
			     "torch.set_num_threads(1), or OMP_NUM_THREADS=1, in its DataLoader workers: each has %u "
			     "threads that compute, for %u CPU%s, and they take the CPUs from each other",
			     loader->threads, loader->cpus, loader->cpus == 1 ? "" : "s");
		break;
	case LOADER_STORAGE:
		verdict__say(j, next,
			     "stepflame report --io says for which files its workers wait: faster storage, larger "
			     "files that are read in order, or a cache in memory; more workers help only if the disk "
			     "has more to give");
		break;
	}
}

static void advise_workers(struct judge *j, bool validation)
{
	struct workers *workers = workers__new(j->job, j->steps);
	static const struct loader none = {.advice = LOADER_UNKNOWN};
	const struct loader *loader;

	if (!workers) {
		j->err = -ENOMEM;
		return;
	}
	loader = find_loader(j, workers, validation);
	if (j->group && j->group->cause == BLAME_EXTRA && !(loader && loader->advice == LOADER_RESTARTS))
		verdict__say(
			j, &j->verdict->next,
			"make the DataLoader once, with persistent_workers=True: it starts its workers for each epoch");
	else
		say_advice(j, loader ?: &none);
	workers__free(workers);
}

void verdict__advise_evaluation(struct judge *j)
{
	struct workers *workers = workers__new(j->job, j->steps);
	const struct loader *loader = workers ? find_loader(j, workers, true) : NULL;

	if (!workers)
		j->err = -ENOMEM;
	if (loader && loader->advice == LOADER_RESTARTS)
		say_restarts(j, loader);
	workers__free(workers);
}

/* ---- together ---- */

const char verdict__far_files[] = "fewer, larger files (an archive, shards), names that are looked up once, or a "
				  "copy on a local disk: its server answers each open and look-up";

static const char *const batches_advice[] = {
	[AWAITED_OTHER] = "ask for batches earlier, while the model works, or more threads or processes that get them",
	[AWAITED_LATE] = "ask for the next batch before the model works on this one: who gets it waits to be asked "
			 "meanwhile",
	[AWAITED_BUSY] = "more threads or processes that get batches, or less work for each: one is too slow for the "
			 "model",
	[AWAITED_TURNS] = "hold the lock for less of what the threads do that get batches, who wait for each other, or "
			  "processes of which each has its own: more threads win nothing",
};

static const char *find_batches_advice(const struct judge *j)
{
	if (j->shares_gil && j->thread == AWAITED_OTHER)
		return "ask for batches earlier, while the model works, or more processes that get them: their work "
		       "is Python, and more threads would wait for each other's GIL";
	if (j->shares_gil && j->thread == AWAITED_BUSY)
		return "more processes that get batches, or less work for each: one is too slow for the model, and its "
		       "work is Python: more threads would wait for each other's GIL";
	return batches_advice[j->thread];
}

/* Whether the process of the steps works for more than half of the time that getting data takes, and does not wait for workers. */
static bool gets_data_itself(const struct judge *j)
{
	double own_ns = j->blame->all.ns[PHASE_DATA][CAUSE_NONE], all_ns = 0;

	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		all_ns += sample_cause__is_anywhere(cause) ? 0 : j->blame->all.ns[PHASE_DATA][cause];
	return j->rule && 2 * own_ns > all_ns;
}

void verdict__advise_input(struct judge *j)
{
	struct array *next = &j->verdict->next;
	const struct step_sum *all = &j->blame->all;
	const struct data_time time = find_data_time(j);
	bool starts = j->group && j->group->cause == BLAME_EXTRA; /* its slow steps start workers: class_of_cause */
	/* Without samples only that there are workers is known. */
	bool of_workers = starts || (time.all_ns ? is_half(time.workers_ns, time.all_ns) : j->workers > 0);

	if (of_workers && j->group && verdict__one_waker(j->group) && verdict__failed(j->job, j->group->waker_pid))
		verdict__say(j, next,
			     "a worker died: read its last output, and check in dmesg whether it ran out of memory");
	else if (j->slow_worker)
		verdict__say(
			j, next,
			"the job waits for one worker, process %u: stepflame report --io says what it does that others "
			"do not",
			j->slow_worker);
	else if (j->far_files && !of_workers)
		verdict__say(j, next, "%s", verdict__far_files);
	else if (all->ns[PHASE_DATA][CAUSE_DISK_READ] > MENTION_SHARE * all->total_ns)
		verdict__say(j, next,
			     "stepflame report --io says which files are read from disk: faster storage, larger files "
			     "that are read in order, or a cache in memory");
	else if (of_workers && gets_data_itself(j))
		verdict__say(
			j, next,
			"less work for each batch in the training process itself (its sampler, unpickling: tensors "
			"instead of objects): workers, however many, take none of that");
	else if (of_workers)
		advise_workers(j, is_half(time.validation_ns, time.all_ns));
	else if (is_half(time.own_ns, time.all_ns))
		verdict__say(j, next, "set num_workers in the DataLoader: the training process itself gets the data");
	else if (j->thread)
		verdict__say(j, next, "%s", find_batches_advice(j));
	else
		verdict__say(
			j, next,
			"get the next batch while the model works on this one: in a DataLoader with workers, or in "
			"a thread or process that fills a queue");
}
