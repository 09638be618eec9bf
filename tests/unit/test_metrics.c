// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The labels of watch's metrics: no two processes have the same, whatever they say of themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/resource_records.h"
#include "user/watch/metrics.h"

#define S 1000000000ull

static struct watched_jobs jobs;
static struct metrics metrics;
static char path[] = "/tmp/stepflame-test-XXXXXX", text[1 << 16];

static int set_up(void **state)
{
	struct watched_job *job = array__add(&jobs.jobs, sizeof(*job));

	job->number = 1;
	strcpy(job->name, "run");
	close(mkstemp(path));
	return 0;
}

static int tear_down(void **state)
{
	metrics__free(&metrics);
	watched_jobs__free(&jobs);
	return unlink(path);
}

static void target(uint32_t pid, int rank)
{
	struct rec_target target = {.hdr = {.type = REC_TARGET, .size = sizeof(target)}, .pid = pid, .rank = rank};
	struct watched_process *process = array__add(&jobs.processes, sizeof(*process));

	*process = (struct watched_process){.pid = pid, .job = 1, .attached = true};
	assert_int_equal(metrics__add(&metrics, &target.hdr, S), 0);
}

static void step(uint32_t pid, uint64_t index)
{
	struct rec_step step = {
		.hdr = {.type = REC_STEP, .size = sizeof(step)}, .pid = pid, .tid = pid, .index = index};

	step.rule = STEP_OPTIMIZER;
	step.time_ns = index * S;
	assert_int_equal(metrics__add(&metrics, &step.hdr, S), 0);
}

static void end(uint32_t pid)
{
	struct rec_proc end = {.hdr = {.type = REC_PROC, .size = sizeof(end)}, .event = PROC_EXIT, .pid = pid};

	assert_int_equal(metrics__add(&metrics, &end.hdr, S), 0);
}

/* The steps of the process with these labels; -1: there is none. */
static int steps_of_job(const char *job, const char *rank, uint64_t now_ns)
{
	const struct session_progress progress = {.now_ns = now_ns};
	char key[128], *at;
	FILE *file;

	assert_int_equal(metrics__write(&metrics, &jobs, &progress, 0, path), 0);
	file = fopen(path, "r");
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	snprintf(key, sizeof(key), "\nstepflame_steps_total{job=\"%s\",rank=\"%s\"} ", job, rank);
	at = strstr(text, key);
	assert_true(!at || !strstr(at + 1, key));
	return at ? atoi(at + strlen(key)) : -1;
}

static int steps_of(const char *rank, uint64_t now_ns)
{
	return steps_of_job("run", rank, now_ns);
}

/* The rank is known before the first step; a process without steps has no time of the last one. */
static void test_rank(void **state)
{
	target(10, 3);
	metrics.cpu_ns = 3 * S / 2;
	assert_int_equal(steps_of("3", S), 0);
	assert_non_null(strstr(text, "\nstepflame_cpu_seconds_total 1.500\n"));
	assert_null(strstr(text, "\nstepflame_last_step_timestamp_seconds{"));
	step(10, 1);
	step(10, 2);
	assert_int_equal(steps_of("3", S), 2);
	assert_non_null(strstr(text, "\nstepflame_last_step_timestamp_seconds{"));
	assert_non_null(strstr(text, "\nstepflame_step_duration_seconds_bucket{job=\"run\",rank=\"3\",le=\"1\"} 1\n"));
}

/* How long it rested for its budget: those rests that are over, and the one that goes on. */
static void test_rests(void **state)
{
	struct rec_rest rest = {.hdr = {.type = REC_REST, .size = sizeof(rest)}, .pid = 10};

	assert_int_equal(steps_of("3", 10 * S), 2);
	assert_null(strstr(text, "stepflame_rested_seconds_total")); /* it has no budget */
	assert_int_equal(metrics__add(&metrics, &rest.hdr, S), 0);
	assert_int_equal(steps_of("3", 10 * S), 2);
	assert_non_null(strstr(text, "\nstepflame_rested_seconds_total{job=\"run\",rank=\"3\"} 0.000\n"));
	rest.cnt = 2;
	rest.before_ns = 3 * S;
	rest.from_ns = 8 * S;
	assert_int_equal(metrics__add(&metrics, &rest.hdr, S), 0);
	assert_int_equal(steps_of("3", 10 * S), 2);
	assert_non_null(strstr(text, "\nstepflame_rested_seconds_total{job=\"run\",rank=\"3\"} 5.000\n"));
	rest.to_ns = 9 * S;
	assert_int_equal(metrics__add(&metrics, &rest.hdr, S), 0);
	assert_int_equal(steps_of("3", 10 * S), 2);
	assert_non_null(strstr(text, "\nstepflame_rested_seconds_total{job=\"run\",rank=\"3\"} 4.000\n"));
}

static void tick(uint64_t index, uint64_t ms)
{
	struct rec_step step = {.hdr = {.type = REC_STEP, .size = sizeof(step)}, .pid = 10, .tid = 10, .index = index};

	step.rule = STEP_TICK;
	step.time_ns = index * S;
	step.phase_ns[PHASE_OTHER] = ms * 1000000;
	assert_int_equal(metrics__add(&metrics, &step.hdr, S), 0);
}

/* Steps in rests count, with those at the ends of the rests; then those that are recorded again. */
static void test_ticks(void **state)
{
	assert_int_equal(steps_of("3", 10 * S), 2);
	tick(3, 0);
	tick(4, 2000);
	tick(5, 40);
	assert_int_equal(steps_of("3", 10 * S), 5);
	assert_non_null(
		strstr(text, "\nstepflame_step_duration_seconds_bucket{job=\"run\",rank=\"3\",le=\"0.1\"} 1\n"));
	assert_non_null(strstr(text, "\nstepflame_step_duration_seconds_count{job=\"run\",rank=\"3\"} 3\n"));
	step(10, 3); /* the third that is recorded */
	assert_int_equal(steps_of("3", 10 * S), 6);
	tick(6, 0); /* it is the same */
	assert_int_equal(steps_of("3", 10 * S), 6);
}

/* What recording costs, once it is known. */
static void test_overhead(void **state)
{
	struct rec_overhead overhead = {.hdr = {.type = REC_OVERHEAD, .size = sizeof(overhead)}, .pid = 10};

	assert_int_equal(metrics__add(&metrics, &overhead.hdr, S), 0);
	assert_int_equal(steps_of("3", 10 * S), 6);
	assert_null(strstr(text, "stepflame_overhead_ratio"));
	overhead.pairs = 9;
	overhead.accounted_micros = 4000;
	overhead.measured_micros = 12000;
	overhead.error_micros = 2500;
	assert_int_equal(metrics__add(&metrics, &overhead.hdr, S), 0);
	assert_int_equal(steps_of("3", 10 * S), 6);
	assert_non_null(strstr(text, "\nstepflame_overhead_ratio{job=\"run\",rank=\"3\",kind=\"accounted\"} 0.004000\n"
				     "stepflame_overhead_ratio{job=\"run\",rank=\"3\",kind=\"measured\"} 0.012000\n"
				     "stepflame_overhead_ratio{job=\"run\",rank=\"3\",kind=\"error\"} 0.002500\n"));
}

/* Two that run say that they are the same rank; one of them is started again; and a pid is used again. */
static void test_same_labels(void **state)
{
	target(11, 3);
	step(11, 5);
	assert_int_equal(steps_of("3", S), 6);
	assert_int_equal(steps_of("pid 11", S), 5);
	end(10);
	assert_int_equal(steps_of("3", S), 5);
	assert_int_equal(steps_of("pid 11", S), -1);
	end(11);
	assert_int_equal(steps_of("3", 2 * S), 5);
	step(11, 1);
	assert_int_equal(steps_of("3", 2 * S), 1);
	end(11);
	assert_int_equal(steps_of("3", 200 * S), -1);
}

/* Of many processes 64 have series, each at most 50, also of a job whose name is hostile; the steps of the others are counted. */
static void test_many(void **state)
{
	struct watched_job *job = array__add(&jobs.jobs, sizeof(*job));
	struct session_progress progress = {.now_ns = 300 * S};
	unsigned int series = 0;
	FILE *file;

	*job = (struct watched_job){.number = 2, .name = "a\"b}\\\n{\x1b\xff"};
	metrics__forget(&metrics);
	for (uint32_t pid = 100; pid < 170; pid++) {
		target(pid, pid - 100);
		((struct watched_process *)jobs.processes.items)[jobs.processes.cnt - 1].job = 2;
		for (uint64_t index = 1; index <= 3; index++)
			step(pid, index);
	}
	assert_int_equal(metrics__write(&metrics, &jobs, &progress, 0, path), 0);
	file = fopen(path, "r");
	while (fgets(text, sizeof(text), file)) {
		for (char *c = text; *c != '\n'; c++)
			assert_true(*c >= ' ' && *c < 127);
		series += *text != '#';
		if (!strncmp(text, "stepflame_left_out_steps_total", 30))
			assert_string_equal(text, "stepflame_left_out_steps_total 18\n");
		if (strstr(text, "{job"))
			assert_non_null(strstr(text, "{job=\"a_b}__{__\",rank=\""));
	}
	fclose(file);
	assert_in_range(series, 64 * 20, 64 * 33);
}

/* Processes that only have torch, and those that have ended, are in nobody's way. */
static void test_idle(void **state)
{
	metrics__forget(&metrics);
	metrics.left_out = 0;
	for (uint32_t pid = 1000; pid < 1000 + METRICS_RANKS; pid++)
		target(pid, -1);
	for (uint32_t pid = 2000; pid < 2000 + METRICS_RANKS; pid++)
		step(pid, 1);
	for (uint32_t pid = 2000; pid < 2000 + METRICS_RANKS; pid++)
		assert_true(metrics__progress(&metrics, pid, &(struct rank_progress){}));
	end(2005);
	target(3000, -1);
	assert_true(metrics__progress(&metrics, 2005, &(struct rank_progress){}));
	step(3000, 1);
	assert_false(metrics__progress(&metrics, 2005, &(struct rank_progress){}));
	assert_int_equal(metrics.left_out, 0);
	step(3001, 1);
	assert_int_equal(metrics.left_out, 1);
}

/* Steps of more processes than have their times kept are left out as well. */
static void test_very_many(void **state)
{
	metrics__forget(&metrics);
	metrics.left_out = 0;
	for (uint32_t pid = 1; pid <= STEP_TIMES_PROCESSES + 2; pid++)
		step(pid, 1);
	assert_int_equal(metrics.left_out, STEP_TIMES_PROCESSES + 2 - METRICS_RANKS);
}

static void start_with(const char *first, const char *second)
{
	const char *const names[] = {first, second};

	metrics__forget(&metrics);
	watched_jobs__free(&jobs);
	for (uint32_t i = 0; i < 2; i++) {
		struct watched_job *job = array__add(&jobs.jobs, sizeof(*job));

		job->number = i + 1;
		strcpy(job->name, names[i]);
	}
}

/* Names of two jobs that look the same in a label: a scrape with two series of the same labels is refused as a whole. */
static void test_alike(void **state)
{
	start_with("run\"", "run\\");
	target(10, 0);
	target(11, 0);
	((struct watched_process *)jobs.processes.items)[1].job = 2;
	step(10, 7);
	step(11, 9);
	assert_int_equal(steps_of_job("run_", "0", S), 7);
	assert_int_equal(steps_of_job("run_", "pid 11", S), 9);
}

/* A program that the process calls, or another jitted function, counts its steps anew: those of before stay. */
static void test_counts_anew(void **state)
{
	start_with("run", "other");
	target(10, 0);
	for (uint64_t index = 1; index <= 100; index++)
		step(10, index);
	assert_int_equal(steps_of("0", S), 100);
	for (uint64_t index = 1; index <= 3; index++)
		step(10, index);
	assert_int_equal(steps_of("0", S), 103);
	step(10, 200); /* the records between are lost */
	assert_int_equal(steps_of("0", S), 300);
}

/* The last figures of a job go by its name, also when the ring has ended, and what is known of jobs with it. */
static void test_last_figures(void **state)
{
	start_with("run", "other");
	target(10, 0);
	step(10, 1);
	step(10, 2);
	end(10);
	metrics__name(&metrics, &jobs);
	watched_jobs__free(&jobs);
	assert_int_equal(steps_of("0", 2 * S), 2);
	assert_null(strstr(text, "job=\"pid 10\""));
	assert_int_equal(steps_of("0", 100 * S), -1);
}

/* A process of no job, of which no steps are known, has no series: it was told late that a child trained, which has ended. */
static void test_told_late(void **state)
{
	struct rec_target late = {.hdr = {.type = REC_TARGET, .size = sizeof(late)}, .pid = 12, .role = ROLE_MAIN};

	assert_int_equal(metrics__add(&metrics, &late.hdr, S), 0);
	assert_int_equal(steps_of("0", S), -1);
	assert_null(strstr(text, "pid 12"));
	step(12, 1);
	assert_int_equal(steps_of_job("pid 12", "pid 12", S), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rank),         cmocka_unit_test(test_rests),
					   cmocka_unit_test(test_ticks),        cmocka_unit_test(test_overhead),
					   cmocka_unit_test(test_same_labels),  cmocka_unit_test(test_many),
					   cmocka_unit_test(test_idle),         cmocka_unit_test(test_very_many),
					   cmocka_unit_test(test_alike),        cmocka_unit_test(test_counts_anew),
					   cmocka_unit_test(test_last_figures), cmocka_unit_test(test_told_late)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
