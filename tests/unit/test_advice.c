/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many DataLoader workers are advised: user/analysis/loader/advice.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "user/analysis/loader/advice.h"

#define MS      1000000ULL
#define BATCHES 100

/* Of one worker, always busy; all times are in ms for a batch. */
struct times {
	uint64_t batch, consume, worker_cpu, queued, main_cpu;
};

static enum loader_advice advise(const struct times *ms, uint32_t cpus, struct loader *loader)
{
	uint64_t window = ms->batch * BATCHES * MS;
	struct worker worker = {
		.last_ns = window,
		.seen_ns = window,
		.cpu_ns = ms->worker_cpu * BATCHES * MS,
		.queued_ns = ms->queued * BATCHES * MS,
	};
	struct loader_wait wait = {.ns = (ms->batch - ms->consume) * BATCHES * MS, .step = -1};

	*loader = (struct loader){
		.of_cnt = 1,
		.workers = &worker,
		.worker_cnt = 1,
		.waits = &wait,
		.wait_cnt = 1,
		.wait_ns = wait.ns,
		.observed_ns = window,
		.batches = BATCHES,
		.main_cpu_ns = ms->main_cpu * BATCHES * MS,
	};
	advice__find(loader, cpus);
	loader->workers = NULL;
	loader->waits = NULL;
	return loader->advice;
}

static void test_sleeping_workers_are_multiplied(void **state)
{
	struct loader loader;

	(void)state;
	assert_int_equal(
		advise(&(struct times){.batch = 40, .consume = 10, .worker_cpu = 2, .main_cpu = 8}, 8, &loader),
		LOADER_MORE);
	assert_int_equal(loader.needed, 4);
	assert_int_equal(loader.advised, 4);
	assert_int_equal((int)(loader.reach_ns / MS), 10);
}

static void test_cpus_bound_what_is_advised(void **state)
{
	struct loader loader;

	(void)state;
	/* 38 ms of CPU time for a batch, on 2 CPUs: 20 ms at best, so two workers. */
	assert_int_equal(
		advise(&(struct times){.batch = 40, .consume = 10, .worker_cpu = 28, .main_cpu = 10}, 2, &loader),
		LOADER_MORE);
	assert_int_equal(loader.needed, 4);
	assert_int_equal(loader.advised, 2);
	assert_int_equal((int)(loader.reach_ns / MS), 20);
	/* On one CPU nothing is won. */
	assert_int_equal(
		advise(&(struct times){.batch = 40, .consume = 10, .worker_cpu = 28, .main_cpu = 10}, 1, &loader),
		LOADER_CPU_FULL);
	assert_int_equal(loader.advised, 0);
	/* Nor is it known how many there are. */
	assert_int_equal(advise(&(struct times){.batch = 40, .consume = 10, .worker_cpu = 2}, 0, &loader),
			 LOADER_CPU_FULL);
}

static void test_others_take_the_cpus(void **state)
{
	struct loader loader;

	(void)state;
	/* A worker that computes waits for a CPU already; for one that sleeps, others may still help. */
	assert_int_equal(
		advise(&(struct times){.batch = 40, .consume = 10, .worker_cpu = 20, .queued = 10}, 8, &loader),
		LOADER_CPU_FULL);
	assert_int_equal(advise(&(struct times){.batch = 40, .consume = 10, .worker_cpu = 5, .queued = 6}, 8, &loader),
			 LOADER_MORE);
}

static void test_workers_that_keep_up(void **state)
{
	struct loader loader;

	(void)state;
	assert_int_equal(advise(&(struct times){.batch = 100, .consume = 99, .worker_cpu = 5}, 8, &loader),
			 LOADER_KEEPS_UP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sleeping_workers_are_multiplied),
		cmocka_unit_test(test_cpus_bound_what_is_advised),
		cmocka_unit_test(test_others_take_the_cpus),
		cmocka_unit_test(test_workers_that_keep_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
