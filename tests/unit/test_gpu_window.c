/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What belongs to a window of CUPTI's, and what is said of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "user/session/sources/gpu_reader.h"

static enum gpu_fate judge(struct gpu_window *w, enum gpu_activity kind, uint32_t correlation, uint64_t start_ns,
			   uint64_t end_ns, bool last)
{
	return gpu_window__judge(w, kind, correlation, start_ns, end_ns, 1000, last);
}

static void test_whole_recording(void **state)
{
	struct gpu_window w = {.requested_ns = 10, .begun_ns = 20};

	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 1, 1, 5000, false), GPU_INSIDE);
}

static void test_by_steps(void **state)
{
	struct gpu_window w = {.by_steps = true, .requested_ns = 10, .begun_ns = 20};

	/* In the warm-up, as far as that is known. */
	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 1, 900, 999, false), GPU_OUTSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 1, 900, 1000, false), GPU_UNDECIDED);
	w.steps_start_ns = 100;
	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 1, 90, 100, false), GPU_OUTSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 1, 90, 101, false), GPU_INSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_CALL, UINT32_MAX, 150, 160, false), GPU_INSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_CALL, 3, 170, 180, false), GPU_INSIDE); /* ids wrap */
	w.steps_end_ns = 200;
	assert_int_equal(judge(&w, GPU_ACTIVITY_CALL, 4, 199, 300, false), GPU_INSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_CALL, 5, 200, 300, false), GPU_OUTSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_SYNC, 4, 200, 300, true), GPU_OUTSIDE);
	/* Work that begins behind the end, by when it was asked for. */
	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 4, 200, 300, false), GPU_UNDECIDED);
	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 4, 200, 300, true), GPU_INSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_COPY, UINT32_MAX, 200, 3000, true), GPU_INSIDE);
	assert_int_equal(judge(&w, GPU_ACTIVITY_KERNEL, 5, 200, 300, true), GPU_OUTSIDE);
}

static void check(const struct gpu_window *w, uint64_t start_ns, uint64_t end_ns, enum gpu_window_end end)
{
	struct rec_gpu_window rec;

	assert_true(gpu_window__record(w, &rec));
	assert_int_equal(rec.start_ns, start_ns);
	assert_int_equal(rec.end_ns, end_ns);
	assert_int_equal(rec.end, end);
	assert_int_equal(gpu_window__ns(w), end_ns - start_ns);
}

static void test_bounds(void **state)
{
	struct gpu_window w = {.by_steps = true, .requested_ns = 10};
	struct rec_gpu_window rec;

	assert_false(gpu_window__record(&w, &rec));
	w.begun_ns = 20;
	w.reported_ns = 90;
	assert_false(gpu_window__record(&w, &rec)); /* it warms up */
	w.steps_start_ns = 100;
	assert_false(gpu_window__record(&w, &rec));
	assert_int_equal(gpu_window__ns(&w), 0);
	w.reported_ns = 300;
	check(&w, 100, 300, GPU_WINDOW_OPEN);
	w.begun_ns = 150; /* no warm-up, or too short a one */
	check(&w, 150, 300, GPU_WINDOW_OPEN);
	w.ended_ns = 280; /* the program's end */
	w.end = GPU_WINDOW_EXIT;
	check(&w, 150, 280, GPU_WINDOW_EXIT);
	w.steps_end_ns = 250;
	w.end = GPU_WINDOW_STEPS;
	check(&w, 150, 250, GPU_WINDOW_STEPS);
	w.begun_ns = 251;
	check(&w, 250, 250, GPU_WINDOW_LATE);
	w = (struct gpu_window){
		.by_steps = true, .requested_ns = 10, .refused = true, .end = GPU_WINDOW_BUSY, .error = 39};
	check(&w, 10, 10, GPU_WINDOW_BUSY);
	w.end = GPU_WINDOW_FAILED;
	assert_true(gpu_window__record(&w, &rec));
	assert_int_equal(rec.error, 39);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_recording),
		cmocka_unit_test(test_by_steps),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
