/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* By how much longer steps take while they are recorded (user/session/sources/ticks.h), of jobs for which that is known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "user/session/sources/ticks.h"

#define MS 1e6
#define S  1e9

static struct {
	struct overhead overhead;
	double now_ns, step_ns, longer, noise, drift; /* drift: of a step's length, a second */
	double rest;                                  /* what is accounted in rests */
	uint32_t step_ticks;
} job;

static void start(double step_ns, double longer, double noise, double drift, uint32_t step_ticks)
{
	job.overhead = (struct overhead){0};
	job.now_ns = S;
	job.step_ns = step_ns;
	job.longer = longer;
	job.rest = 0;
	job.noise = noise;
	job.drift = drift;
	job.step_ticks = step_ticks;
	srand(7);
}

static double uniform(void)
{
	return (double)rand() / RAND_MAX;
}

/* The ticks of a step are close together, at its end. Some steps are much longer. */
static void run_step(bool rests)
{
	double ns = job.step_ns * (1 + job.drift * job.now_ns / S) * (rests ? 1 : 1 + job.longer);

	ns *= 1 + job.noise * (uniform() + uniform() - 1) + (uniform() < 0.05) * 3 * uniform();
	for (uint32_t i = 1; i <= job.step_ticks; i++)
		overhead__tick(&job.overhead, job.now_ns + ns - (job.step_ticks - i) * 0.01 * ns, job.step_ticks);
	job.now_ns += ns;
}

/* Windows of 2 s, in which the hits say 1 % each, and rests of 4 s. */
static void run(int windows)
{
	for (int i = 0; i < 2 * windows; i++) {
		double end_ns = job.now_ns + (i % 2 ? 4 : 2) * S;

		while (job.now_ns < end_ns)
			run_step(i % 2);
		overhead__begin(&job.overhead, !(i % 2), i % 2 ? job.rest : 0.01, job.now_ns);
	}
}

static void check(double longer, double within)
{
	struct overhead_estimate estimate;

	assert_true(overhead__estimate(&job.overhead, &estimate));
	assert_true(fabs(estimate.longer - longer) < within);
	assert_true(estimate.error < 2 * within);
	assert_true(fabs(estimate.accounted - 0.01) < 1e-9);
}

static void what_is_longer_is_measured(void **state)
{
	static const double steps_ns[] = {0.3 * MS, 3 * MS, 30 * MS, 300 * MS};

	(void)state;
	for (size_t i = 0; i < sizeof(steps_ns) / sizeof(*steps_ns); i++) {
		start(steps_ns[i], 0.03, 0.02, 0, 1);
		run(70);
		check(0.03, steps_ns[i] < 100 * MS ? 0.002 : 0.01);
	}
	start(3 * MS, 0, 0.02, 0, 1);
	run(70);
	check(0, 0.002);
	start(3 * MS, 0.03, 0.02, 0, 1); /* longer than in rests, where the ticks take 1 % already */
	job.rest = 0.01;
	run(70);
	check(1.03 * 1.01 - 1, 0.002);
}

/* A job that becomes slower and slower, by far more than it pays. */
static void drift_cancels_out(void **state)
{
	(void)state;
	start(3 * MS, 0.03, 0.02, 0.01, 1);
	run(70);
	check(0.03, 0.004);
}

/* Ticks that come in bursts: a value is of whole steps. */
static void steps_may_have_several_ticks(void **state)
{
	(void)state;
	start(8 * MS, 0.03, 0.02, 0, 4);
	run(70);
	check(0.03, 0.004);
}

/* Noise is no result: what is not certain says so, and counts less than what is usual. */
static void error_is_known(void **state)
{
	struct overhead_estimate estimate;
	int inside = 0;

	(void)state;
	for (int i = 0; i < 40; i++) {
		start(40 * MS, 0.02, 0.3, 0, 1);
		srand(i);
		run(33);
		assert_true(overhead__estimate(&job.overhead, &estimate));
		inside += fabs(estimate.longer - 0.02) < estimate.error;
	}
	assert_true(inside >= 34);
	/* After few pairs, too. */
	inside = 0;
	for (int i = 0; i < 400; i++) {
		start(40 * MS, 0.02, 0.3, 0, 1);
		srand(i);
		run(6);
		assert_true(overhead__estimate(&job.overhead, &estimate));
		assert_in_range(estimate.pairs, OVERHEAD_PAIRS_MIN, 6);
		inside += fabs(estimate.longer - 0.02) < estimate.error;
	}
	assert_true(inside >= 0.92 * 400);
}

static void factor_follows_what_is_certain(void **state)
{
	double usual = (start(3 * MS, 0, 0.02, 0, 1), overhead__factor(&job.overhead));

	(void)state;
	assert_true(usual >= 1);
	start(3 * MS, 0.05, 0.01, 0, 1);
	run(70);
	assert_true(fabs(overhead__factor(&job.overhead) - 5) < 0.3);
	start(3 * MS, 0.003, 0.01, 0, 1); /* less than is accounted */
	run(70);
	assert_true(overhead__factor(&job.overhead) == 1);
	start(300 * MS, 0.03, 0.9, 0, 1); /* who knows */
	run(5);
	assert_true(fabs(overhead__factor(&job.overhead) - usual) < 1);
}

/* The first rests, and a job that ticks too seldom, tell nothing. */
static void little_is_nothing(void **state)
{
	struct overhead_estimate estimate;

	(void)state;
	start(3 * MS, 0.03, 0.02, 0, 1);
	run(2);
	assert_false(overhead__estimate(&job.overhead, &estimate));
	start(20 * S, 0.03, 0.02, 0, 1);
	run(50);
	assert_false(overhead__estimate(&job.overhead, &estimate));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_longer_is_measured),     cmocka_unit_test(drift_cancels_out),
		cmocka_unit_test(steps_may_have_several_ticks),   cmocka_unit_test(error_is_known),
		cmocka_unit_test(factor_follows_what_is_certain), cmocka_unit_test(little_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
