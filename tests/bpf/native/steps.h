/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For tests of step boundaries: what a training loop does, a part at a time, and how far its process has counted. */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_STEPS_H
#define STEPFLAME_TESTS_BPF_NATIVE_STEPS_H

#include "tests/bpf/native/job.h"

#define SP STACK /* of every event: nothing here lives in a native frame */

static inline void data(void)
{
	wait_ns(1);
	label__run(DATA_LABEL, 10, SP);
}

static inline void optimizer(const char *label)
{
	wait_ns(1);
	label__run(label, 4, SP);
}

static inline void expect_steps(u32 rule, u64 steps)
{
	assert_int_equal(job.proc->steps.rule, rule);
	assert_int_equal(job.proc->steps.cnt, steps);
}

#endif
