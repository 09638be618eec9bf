// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A model of a DataLoader: each of n workers makes a batch in time P, and the process uses one in
 * time C, so a batch takes the larger of C and P/n, but never less than the CPU time that it costs
 * all of them, spread over the CPUs. The model holds while workers do not slow each other down: with
 * CPU to spare, and with no worker slower than the others. How many may share the work of an IterableDataset, only its
 * program knows.
 */
#include "user/analysis/loader/advice.h"

#include <math.h>
#include <stdlib.h>

#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/lib/saturating.h"

#define HARDLY_WAITS   0.02 /* of the window */
#define SLOWER         1.5  /* times as busy as the median of the others, */
#define BUSY           0.6  /* and at least this busy: otherwise it would have batches ready */
#define CPU_FULL       0.95 /* of the machine */
#define QUEUED         0.1  /* of the workers' time, in waits for a CPU; */
#define COMPUTES       0.5 /* and at least so much of it on a CPU or in such waits: otherwise more workers wait at one time */
#define CROWDED        0.25 /* of the workers' time on CPUs and in waits for them: that of threads without Python */
#define BY_STORAGE     0.5  /* of the workers' time: they wait for disks */
#define BY_OTHERS      0.5  /* of the workers' time: they wait for each other, or for one process */
#define WORTH          0.9  /* of the time of a batch: more workers are worth it if it takes no longer then */
#define BATCHES_ENOUGH 10
#define RESTARTS       0.05 /* of the time, in starts of workers that replace others; */
#define MOST_OF_WAITS  0.5  /* and so much of all that the process waits for workers */

static uint64_t busy_ns(const struct worker *worker)
{
	return worker->seen_ns > worker->idle_ns ? worker->seen_ns - worker->idle_ns : 0;
}

/* Busy share of a worker's time, without its waits for a CPU, which say nothing about the worker. */
static double busy_share_on_cpu(const struct worker *worker)
{
	uint64_t busy = busy_ns(worker);

	busy -= worker->queued_ns < busy ? worker->queued_ns : busy;
	return worker->seen_ns ? (double)busy / worker->seen_ns : 0;
}

/* The median busy share of all workers except one. NAN: no memory, or no other worker. */
static double median_of_others(const struct loader *loader, size_t but)
{
	double *shares = calloc(loader->worker_cnt, sizeof(*shares)), median = NAN;
	size_t cnt = 0;

	for (size_t i = 0; shares && i < loader->worker_cnt; i++)
		if (i != but && loader->workers[i].seen_ns)
			shares[cnt++] = busy_share_on_cpu(&loader->workers[i]);
	if (cnt) {
		qsort(shares, cnt, sizeof(*shares), compare__double);
		median = shares[percentile__index(cnt, 50)];
	}
	free(shares);
	return median;
}

/* Leaves out the longest wait, which may be for the start of the worker. */
static uint64_t later_waits_ns(const struct worker *worker)
{
	return worker->wait_ns - worker->longest_ns;
}

/* Finds a worker whose batches cause most of the waits, and who is busier than the others. */
static uint32_t find_slow_worker(const struct loader *loader)
{
	uint64_t all = 0;

	for (size_t i = 0; i < loader->worker_cnt; i++)
		all = saturating__add(all, later_waits_ns(&loader->workers[i]));
	for (size_t i = 0; i < loader->worker_cnt; i++) {
		const struct worker *worker = &loader->workers[i];

		if (later_waits_ns(worker) > all / 2 && busy_share_on_cpu(worker) > BUSY &&
		    busy_share_on_cpu(worker) > SLOWER * median_of_others(loader, i))
			return i;
	}
	return WORKER_NONE;
}

uint32_t advice__at_once(const struct loader *loader)
{
	uint32_t most = 0;

	for (size_t i = 0; i < loader->worker_cnt; i++) {
		const struct worker *worker = &loader->workers[i];
		uint32_t cnt = 0;

		for (size_t k = 0; k < loader->worker_cnt; k++)
			cnt += loader->workers[k].first_ns <= worker->first_ns &&
			       loader->workers[k].last_ns > worker->first_ns;
		most = cnt > most ? cnt : most;
	}
	return most;
}

/*
 * Computes times per batch. With steps, only the time in steps counts: the process consumes no
 * batches outside them. For one of several loaders, only the time without fetches from the others
 * counts.
 */
static void find_times(struct loader *loader, uint64_t busy)
{
	const struct step_track *track = loader->track;
	uint64_t waited = 0, batches = loader->batches;

	loader->produce_ns = busy / loader->batches;
	if (loader->of_cnt > 1) {
		waited = loader->active_wait_ns;
		if (!loader->active_cnt)
			return;
		loader->consume_ns = waited < loader->active_ns ? (loader->active_ns - waited) / loader->active_cnt : 0;
		loader->batch_ns = loader->active_ns / loader->active_cnt;
		return;
	}

	for (size_t i = 0; i < loader->wait_cnt; i++)
		waited += track && loader->waits[i].step < 0 ? 0 : loader->waits[i].ns;
	if (track && track->step_cnt)
		batches = track->step_cnt * fmax(1, round((double)loader->batches / track->step_cnt));
	loader->consume_ns = waited < loader->observed_ns ? (loader->observed_ns - waited) / batches : 0;
	loader->batch_ns = loader->observed_ns / batches;
}

/* Time that starts of workers, and waits for their first batches, take beyond what a batch takes anyway. */
static uint64_t restarts_ns(const struct loader *loader)
{
	uint64_t usual_ns = loader->first_cnt * loader->produce_ns;

	if (loader->worker_cnt <= loader->at_once)
		return 0;
	return saturating__add(loader->restart_ns,
			       loader->first_wait_ns > usual_ns ? loader->first_wait_ns - usual_ns : 0);
}

/* What the workers did, all together. */
struct work {
	uint64_t busy_ns, cpu_ns, queued_ns, storage_ns; /* of their main threads */
	uint64_t others_cpu_ns;
	uint64_t pool_cpu_ns, pool_queued_ns;
	uint64_t turns_ns;
};

static struct work add_up(struct loader *loader)
{
	struct work all = {0};
	uint32_t threads = 0;

	for (size_t i = 0; i < loader->worker_cnt; i++) {
		const struct worker *worker = &loader->workers[i];

		all.busy_ns = saturating__add(all.busy_ns, busy_ns(worker));
		all.cpu_ns = saturating__add(all.cpu_ns, worker->cpu_ns);
		all.queued_ns = saturating__add(all.queued_ns, worker->queued_ns);
		all.storage_ns = saturating__add(all.storage_ns, worker->storage_ns);
		all.others_cpu_ns = saturating__add(all.others_cpu_ns, worker->others_cpu_ns);
		all.pool_cpu_ns = saturating__add(all.pool_cpu_ns, worker->pool_cpu_ns);
		all.pool_queued_ns = saturating__add(all.pool_queued_ns, worker->pool_queued_ns);
		all.turns_ns = saturating__add(all.turns_ns, worker->turns_ns);
		threads += worker->pool_cnt;
		loader->is_stream |= worker->is_stream;
	}
	loader->threads = loader->worker_cnt ? 1 + threads / loader->worker_cnt : 0;
	return all;
}

/* Whether threads of the workers, more than there are CPUs, have much of what the workers have of CPUs, and want of them. */
static bool has_crowd(const struct loader *loader, const struct work *all)
{
	double pool = (double)all->pool_cpu_ns + all->pool_queued_ns;

	return pool && loader->cpus && pool >= CROWDED * (pool + all->cpu_ns + all->queued_ns) &&
	       (uint64_t)loader->threads * loader->at_once > loader->cpus;
}

/* How long all workers together wait for that process; of those of which a worker knows only the one that it awaits most. */
static uint64_t server_ns(const struct loader *loader, uint32_t server)
{
	uint64_t ns = 0;

	for (size_t i = 0; server && i < loader->worker_cnt; i++)
		if (loader->workers[i].server == server)
			ns = saturating__add(ns, loader->workers[i].server_ns);
	return ns;
}

/* Sets for whom the workers wait. */
static void find_awaited(struct loader *loader, const struct work *all)
{
	uint64_t most_ns = 0;

	for (size_t i = 0; i < loader->worker_cnt; i++) {
		uint64_t ns = server_ns(loader, loader->workers[i].server);

		if (ns <= most_ns)
			continue;
		most_ns = ns;
		loader->server = loader->workers[i].server;
	}
	if (most_ns < all->turns_ns)
		loader->server = 0;
	loader->awaited_share = all->busy_ns ? ((double)all->turns_ns + most_ns) / all->busy_ns : 0;
}

/* More workers would be better, by the model; whether they may be. */
static enum loader_advice advise_more(const struct loader *loader, const struct work *all)
{
	if (loader->awaited_share >= BY_OTHERS)
		return LOADER_TURNS;
	if (loader->is_stream)
		return LOADER_SHARDS;
	return all->storage_ns >= BY_STORAGE * all->busy_ns ? LOADER_STORAGE : LOADER_MORE;
}

static enum loader_advice choose_advice(struct loader *loader, const struct work *all)
{
	bool queued = all->queued_ns > QUEUED * all->busy_ns &&
		      saturating__add(all->cpu_ns, all->queued_ns) > COMPUTES * all->busy_ns;
	double cpu = (double)all->cpu_ns + all->others_cpu_ns + loader->main_cpu_ns;

	if (!loader->produce_ns || !loader->consume_ns)
		return LOADER_UNKNOWN;
	loader->needed = ceil((double)loader->produce_ns / loader->consume_ns);
	loader->restarts_ns = restarts_ns(loader);
	if (loader->restarts_ns >= RESTARTS * loader->observed_ns &&
	    loader->restarts_ns >= MOST_OF_WAITS * saturating__add(loader->wait_ns, loader->restart_ns))
		return LOADER_RESTARTS;
	if (saturating__add(loader->wait_ns, loader->gil_ns) <= HARDLY_WAITS * loader->observed_ns)
		return LOADER_KEEPS_UP;
	loader->slow = find_slow_worker(loader);
	if (loader->slow != WORKER_NONE)
		return LOADER_ONE_SLOW;
	loader->reach_ns =
		fmax(loader->consume_ns, loader->cpus ? cpu / loader->batches / (CPU_FULL * loader->cpus) : INFINITY);
	if (queued || loader->reach_ns > WORTH * loader->batch_ns)
		return has_crowd(loader, all) ? LOADER_THREADS : LOADER_CPU_FULL;
	loader->advised = ceil((double)loader->produce_ns / loader->reach_ns);
	if (loader->advised <= loader->at_once)
		return loader->is_stream ? LOADER_SHARDS : LOADER_UNEVEN; /* some may have no shard */
	return advise_more(loader, all);
}

void advice__find(struct loader *loader, uint32_t cpus)
{
	struct work all = add_up(loader);

	loader->cpus = cpus;
	if (!loader->observed_ns || loader->batches < BATCHES_ENOUGH)
		return;
	find_times(loader, all.busy_ns);
	find_awaited(loader, &all);
	loader->advice = choose_advice(loader, &all);
	if (loader->advice == LOADER_TURNS || loader->advice == LOADER_SHARDS ||
	    (loader->advice == LOADER_ONE_SLOW && loader->is_stream))
		loader->needed = loader->advised = 0;
}
