/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space orders of a process (bpf/control.bpf.c): that it be forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/bpf/native/kernel.h"

struct proc_command;
int control(struct proc_command *command);

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
	assert_true(is_known(2));
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
	assert_true(is_known(1));
	native__reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_has_ended_is_forgotten),
		cmocka_unit_test(what_runs_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
