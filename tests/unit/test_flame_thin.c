/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The page of a large recording has fewer rows than there are samples (flame__thin in user/analysis/flame/flame.c), and all of their time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"
#include "user/analysis/flame/flame.h"
#include "user/analysis/steps/steps.h"

#define PID     7
#define START   1000000000ull
#define MS      1000000ull
#define SAMPLES 20000u
#define ROWS    500u

static void add_sample(struct job *job, uint32_t tid, uint64_t time_ns, uint64_t weight_ns, enum wait_cause cause)
{
	struct rec_sample sample = {
		.hdr = {.type = REC_SAMPLE, .size = sizeof(sample)},
		.time_ns = time_ns,
		.weight_ns = weight_ns,
		.pid = PID,
		.tid = tid,
		.kind = cause ? SAMPLE_WAIT : SAMPLE_CPU,
		.cause = cause,
		.waits = cause != 0,
		.syscall = -1,
	};

	assert_int_equal(add_copy(job, &sample), 0);
}

/* By thread. */
static size_t sum_rows(const struct flame *flame, uint64_t sums[2])
{
	size_t cnt, rows = 0;
	const struct flame_thread *threads = flame__threads(flame, &cnt);

	assert_int_equal(cnt, 2);
	for (size_t t = 0; t < cnt; t++) {
		const struct flame_row *of = threads[t].rows.items;

		sums[t] = 0;
		rows += threads[t].rows.cnt;
		for (size_t i = 0; i < threads[t].rows.cnt; i++) {
			sums[t] += of[i].weight_ns;
			assert_true(!i || of[i].end_us >= of[i - 1].end_us);
			assert_true(of[i].end_us <= SAMPLES * MS / 1000);
		}
	}
	return rows;
}

static void test_time_stays(void **state)
{
	struct job *job = job__new();
	struct flame *flame = flame__new();
	uint64_t before[2], after[2], expected[2] = {0}, grain_us, step_grain_us;
	struct steps *steps;

	(void)state;
	add_target(job, PID, ROLE_MAIN, -1);
	add_window(job, START, START + SAMPLES * MS, 0, STEP_NONE);
	for (uint32_t i = 1; i <= SAMPLES; i++) {
		uint64_t ns = 1 + next_random() % MS;

		add_sample(job, PID + i % 2, START + i * MS, ns, next_random() % 3 ? CAUSE_NONE : CAUSE_LOCK);
		expected[(i + 1) % 2] += ns; /* the thread of the first sample comes first */
	}
	steps = steps__new(job);
	assert_int_equal(flame__add(flame, job, steps, false), 0);
	assert_int_equal(sum_rows(flame, before), SAMPLES);
	assert_memory_equal(before, expected, sizeof(expected));
	flame__thin(flame, ROWS, &grain_us, &step_grain_us);
	assert_true(grain_us > 0);
	assert_true(sum_rows(flame, after) <= ROWS);
	assert_memory_equal(after, expected, sizeof(expected));
	flame__free(flame);
	steps__free(steps);
	job__free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_time_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
