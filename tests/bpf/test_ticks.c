/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The probe that stays in rests (bpf/ticks.bpf.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/bpf/native/kernel.h"

int tick(struct pt_regs *ctx);

#include "bpf/ticks.bpf.c"

const volatile __u32 cookies_by_place;
volatile __u32 pid_level;
volatile __u64 pid_ns;

static struct task_struct task = {.pid = 7, .tgid = 7, .group_leader = &task};
static u32 pid;

static struct proc *set_up(enum proc_window window)
{
	struct proc proc = {.window = window};

	native__reset();
	native.task = &task;
	pid = task_pid(bpf_get_current_task_btf());
	bpf_map_update_elem(&procs, &pid, &proc, BPF_ANY);
	return bpf_map_lookup_elem(&procs, &pid);
}

static void hit(void)
{
	struct pt_regs regs = {};

	tick(&regs);
}

/* A tick is told in a window and in a rest, and says which. */
static void it_ticks(void **state)
{
	static const enum proc_window windows[] = {WINDOW_OPEN, WINDOW_RESTING};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct proc *proc = set_up(windows[i]);
		const struct rec_step *step;

		native.now_ns = 12345;
		hit();
		assert_int_equal(native.ring_bytes, sizeof(*step));
		step = (const void *)native.ring;
		assert_int_equal(step->hdr.type, REC_STEP);
		assert_int_equal(step->hdr.flags, windows[i] == WINDOW_RESTING ? REC_RESTED : 0);
		assert_int_equal(step->rule, STEP_TICK);
		assert_int_equal(step->pid, pid);
		assert_int_equal(step->time_ns, 12345);
		assert_int_equal(proc->cost.hits, 1);
		assert_int_equal(proc->cost.ticks, 1);
	}
	native__reset();
}

/* Not where the process is not recorded; but it pays. */
static void it_is_silent(void **state)
{
	struct proc *proc = set_up(WINDOW_CLOSED);

	(void)state;
	hit();
	assert_int_equal(native.ring_bytes, 0);
	assert_int_equal(proc->cost.ticks, 1);
	native__reset();
	native.task = &task;
	hit(); /* a process that is not known */
	native__reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_ticks), cmocka_unit_test(it_is_silent)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
