/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space orders of a process (bpf/control.bpf.c): that it be forgotten, and that it rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/bpf/native/kernel.h"

struct proc_command;
struct kernel_name;
int control(struct proc_command *command);
int name_kernel(struct kernel_name *asked);

static long bpf_snprintf(char *text, u32 size, const char *format, u64 *data, u32 bytes)
{
	return !strcmp(format, "%ps") && bytes == 8 ? snprintf(text, size, "at_%llx [m]", (unsigned long long)*data)
						    : -1;
}

#include "bpf/control.bpf.c"

volatile __u32 pid_level;
volatile __u64 pid_ns;

static bool is_known(u32 pid)
{
	return bpf_map_lookup_elem(&procs, &pid);
}

static void add(u32 pid, u32 ended)
{
	struct proc proc = {.ended = ended};

	bpf_map_update_elem(&procs, &pid, &proc, BPF_ANY);
	pid__mark(pid);
}

static int forget(u32 pid)
{
	struct proc_command command = {.what = COMMAND_FORGET, .pid = pid};

	return control(&command);
}

static void what_has_ended_is_forgotten(void **state)
{
	native__reset();
	add(1, true);
	add(2, true);
	assert_int_equal(forget(1), 0);
	assert_false(is_known(1));
	assert_false(pid__may_be_job(1));
	assert_true(is_known(2) && pid__may_be_job(2));
	assert_int_equal(forget(1), 1);
	native__reset();
}

/* A process that has the number of one that ended. */
static void what_runs_is_not(void **state)
{
	native__reset();
	add(1, true);
	add(1, false);
	assert_int_equal(forget(1), 0);
	assert_true(is_known(1) && pid__may_be_job(1));
	native__reset();
}

/* The window closes and opens again; steps are numbered on, and batches of before the rest are forgotten. */
static void what_rests_wakes(void **state)
{
	struct proc_command command = {.what = COMMAND_OPEN, .pid = 1, .start_ns = 10};
	struct proc *proc;
	u32 pid = 1, epoch;

	native__reset();
	add(pid, false);
	proc = bpf_map_lookup_elem(&procs, &pid);
	assert_int_equal(control(&command), 0);
	epoch = proc->step_epoch;
	proc->steps.cnt = 7;
	proc->steps.fetched = proc->steps.for_optimizer = proc->steps.for_backward = 3;
	for (u32 i = 1; i <= 2; i++) {
		command = (struct proc_command){.what = COMMAND_WAKE, .pid = 1, .start_ns = 1}; /* it does not rest */
		assert_int_equal(control(&command), 0);
		assert_int_equal(proc->rests, i - 1);
		command = (struct proc_command){.what = COMMAND_CODES, .pid = 1, .start_ns = 50 * i};
		assert_int_equal(control(&command), 0);
		assert_int_equal(proc->codes.told_since_ns, 50 * i);
		command = (struct proc_command){.what = COMMAND_REST, .pid = 1, .start_ns = 100 * i};
		assert_int_equal(control(&command), 0);
		assert_int_equal(proc->window, WINDOW_RESTING);
		assert_int_equal(proc->codes.told_since_ns, 0);
		assert_int_equal(proc->window_end_ns, 100 * i);
		command = (struct proc_command){.what = COMMAND_WAKE, .pid = 1, .start_ns = 150 * i};
		assert_int_equal(control(&command), 0);
		assert_int_equal(proc->window, WINDOW_OPEN);
		assert_int_equal(proc->window_start_ns, 150 * i);
		assert_int_equal(proc->window_end_ns, 0);
		assert_int_equal(proc->rests, i);
	}
	assert_int_equal(proc->step_epoch, epoch);
	assert_int_equal(proc->steps.cnt, 7);
	assert_int_equal(proc->steps.fetched, 3);
	assert_int_equal(proc->steps.for_optimizer + proc->steps.for_backward, 0);
	/* the steps asked for are over */
	proc->window = WINDOW_DONE;
	command = (struct proc_command){.what = COMMAND_REST, .pid = 1, .start_ns = 900};
	assert_int_equal(control(&command), 0);
	assert_int_equal(proc->window, WINDOW_DONE);
	native__reset();
}

static void a_kernel_function_is_named(void **state)
{
	struct kernel_name name = {.address = 0xabc};

	(void)state;
	assert_int_equal(name_kernel(&name), 0);
	assert_string_equal(name.text, "at_abc [m]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kernel_function_is_named),
		cmocka_unit_test(what_has_ended_is_forgotten),
		cmocka_unit_test(what_runs_is_not),
		cmocka_unit_test(what_rests_wakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
