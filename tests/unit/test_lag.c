// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which rank holds the others up: plants of known size among ranks that wait for each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/analysis/live/trigger.c"

#define US    1000ull
#define MS    1000000ull
#define S     1000000000ull
#define RANKS 4

static struct lag lag;
static struct lag_found found;
static uint64_t now_ns, step_cnt;
static unsigned int seed;

static void add_process(uint32_t pid, const char *name)
{
	struct rec_job job = {.hdr = {.type = REC_JOB, .size = sizeof(job)}, .pid = pid};

	strcpy(job.name, name);
	assert_int_equal(lag__add_process(&lag, &job), 0);
}

static int set_up(void **state)
{
	now_ns = 1000 * S;
	step_cnt = 0;
	seed = 1;
	for (uint32_t rank = 0; rank < RANKS; rank++)
		add_process(10 + rank, "run");
	add_process(9, "run"); /* the launcher, which makes no steps */
	return 0;
}

static int tear_down(void **state)
{
	lag__free(&lag);
	return 0;
}

/* All ranks step once; each works for so long, and waits for the last in collectives, which take 2 ms. Returns whether a straggler was seen. */
static bool step(const uint64_t own_ns[RANKS], uint64_t besides_ns)
{
	uint64_t longest_ns = 0;
	bool seen = false;

	for (int rank = 0; rank < RANKS; rank++)
		longest_ns = own_ns[rank] > longest_ns ? own_ns[rank] : longest_ns;
	now_ns += longest_ns + 2 * MS;
	step_cnt++;
	for (int rank = 0; rank < RANKS; rank++) {
		const struct timed_step step = {.pid = 10 + rank,
						.index = step_cnt,
						.end_ns = now_ns + rank,
						.duration_ns = longest_ns + 2 * MS,
						.besides_ns = rank ? 0 : besides_ns,
						.comm_ns = longest_ns + 2 * MS - own_ns[rank]};

		seen |= lag__add_step(&lag, &step, 10, &found);
	}
	return seen;
}

/* For some seconds ranks take 20 ms, more or less by up to a tenth, and rank 2 so much longer. How often a straggler was seen. */
static int steps(uint64_t seconds, unsigned int percent)
{
	uint64_t end_ns = now_ns + seconds * S;
	int seen = 0;

	while (now_ns < end_ns) {
		uint64_t own_ns[RANKS];

		for (int rank = 0; rank < RANKS; rank++)
			own_ns[rank] = 18 * MS + rand_r(&seed) % (4 * MS);
		own_ns[2] += 20 * MS * percent / 100;
		seen += step(own_ns, 0);
	}
	return seen;
}

static void test_planted(void **state)
{
	uint64_t begin_ns, begin_step;

	assert_int_equal(steps(60, 0), 0);
	begin_ns = now_ns;
	begin_step = step_cnt;
	while (!steps(1, 15))
		assert_true(now_ns < begin_ns + 30 * S);
	assert_int_equal(found.pid, 12);
	assert_in_range(found.since_step, begin_step - 200, begin_step + 200);
	assert_in_range(found.own_ns - found.others_ns, 2500 * US, 3500 * US);
	/* It is told once, and again when it had been well in between. */
	assert_int_equal(steps(300, 15), 0);
	assert_int_equal(steps(30, 0), 0);
	assert_int_equal(steps(30, 15), 1);
}

/* A quiet hour, and one in which a rank is longer, but by too little. */
static void test_quiet(void **state)
{
	assert_int_equal(steps(3600, 0), 0);
	assert_int_equal(steps(3600, 6), 0);
}

/* A rank that is late for ten seconds at a time is none for good. */
static void test_bursts(void **state)
{
	for (int i = 0; i < 30; i++) {
		assert_int_equal(steps(8, 15), 0);
		assert_int_equal(steps(8, 0), 0);
	}
}

/* What rank 0 does in checkpoints is no work of a step. */
static void test_checkpoints(void **state)
{
	const uint64_t usual[RANKS] = {20 * MS, 20 * MS, 20 * MS, 20 * MS},
		       saves[RANKS] = {40 * MS, 20 * MS, 20 * MS, 20 * MS};

	for (int i = 0; i < 10000; i++)
		assert_false(i % 5 ? step(usual, 0) : step(saves, 20 * MS));
}

/* Who is in no collective, or of another job, or of none, is not compared. */
static void test_others(void **state)
{
	struct timed_step step = {.duration_ns = 40 * MS};

	add_process(50, "other");
	add_process(51, "");
	add_process(52, "run"); /* without collectives */
	for (uint64_t i = 0; i < 2000; i++) {
		for (uint32_t pid = 50; pid < 53; pid++) {
			step.pid = pid;
			step.index = i;
			step.end_ns = now_ns += 10 * MS;
			assert_false(lag__add_step(&lag, &step, 10, &found));
		}
	}
	assert_int_equal(steps(60, 0), 0);
}

/* A rank that ends, and one that comes, change what is compared, and nothing else. */
static void test_come_and_go(void **state)
{
	assert_int_equal(steps(30, 0), 0);
	lag__end_process(&lag, 12);
	add_process(12, "run");
	assert_int_equal(steps(60, 0), 0);
	assert_int_equal(steps(60, 15), 1);
}

/* torchrun gives no name by itself: ranks are known by where they meet. Another user who says so is none of them. */
static void test_meet(void **state)
{
	struct rec_job job = {.hdr = {.type = REC_JOB, .size = sizeof(job)}, .meets = "127.0.0.1 29500"};

	for (job.pid = 10; job.pid < 10 + RANKS; job.pid++)
		assert_int_equal(lag__add_process(&lag, &job), 0);
	assert_int_equal(steps(60, 15), 1);
	assert_int_equal(found.pid, 12);
	job.pid = 12;
	job.uid = 1000;
	assert_int_equal(lag__add_process(&lag, &job), 0);
	assert_int_equal(steps(60, 15), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_planted, set_up, tear_down),
					   cmocka_unit_test_setup_teardown(test_quiet, set_up, tear_down),
					   cmocka_unit_test_setup_teardown(test_bursts, set_up, tear_down),
					   cmocka_unit_test_setup_teardown(test_checkpoints, set_up, tear_down),
					   cmocka_unit_test_setup_teardown(test_others, set_up, tear_down),
					   cmocka_unit_test_setup_teardown(test_come_and_go, set_up, tear_down),
					   cmocka_unit_test_setup_teardown(test_meet, set_up, tear_down)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
