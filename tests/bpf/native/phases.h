/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For tests of what a step's time was spent in: a job whose steps are timed, and what the last step must have. */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_PHASES_H
#define STEPFLAME_TESTS_BPF_NATIVE_PHASES_H

#include "tests/bpf/native/job.h"

#define SP STACK

enum { F = FN_FIRST, COMM, SAVE }; /* functions */

static inline int phases_setup(void **state)
{
	setup(state);
	native__set_knob(&want_step_times, 1);
	native__set_knob(&step_at[0], 0);
	job__set_fn(COMM, FN_ID(COMM), SPAN_COMM);
	job__set_fn(SAVE, FN_ID(SAVE), SPAN_SAVE);
	return 0;
}

static inline void label(const char *text, u64 ns)
{
	label__run(text, ns, SP);
}

/* One by one, ended by PHASE__COUNT: phase, ns, ... of the boundary that came last; what is not named is 0. */
static inline void expect_phases(int first, ...)
{
	u64 expected[PHASE__COUNT] = {0}, sum = 0;
	const struct rec_step *before = NULL, *step = NULL;
	va_list args;

	va_start(args, first);
	for (int phase = first; phase != PHASE__COUNT; phase = va_arg(args, int))
		expected[phase] = (u64)va_arg(args, int);
	va_end(args);
	for (u32 n = 0; record(REC_STEP, n); n++)
		step = record(REC_STEP, n);
	assert_non_null(step);
	for (u32 n = 0; record(REC_STEP, n) != step; n++)
		if (((const struct rec_step *)record(REC_STEP, n))->tid == step->tid)
			before = record(REC_STEP, n);
	for (u32 phase = 0; phase < PHASE__COUNT; phase++) {
		if (step->phase_ns[phase] != expected[phase])
			print_message("  phase %u\n", phase);
		assert_int_equal(step->phase_ns[phase], expected[phase]);
		sum += expected[phase];
	}
	if (sum && before)
		assert_int_equal(sum, step->time_ns - before->time_ns);
}

#define NOTHING PHASE__COUNT

#endif
