// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which records a job's part of a recording has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "include/resource_records.h"
#include "user/recording/part.h"

static struct recording_part part;

static int tear_down(void **state)
{
	recording_part__free(&part);
	return 0;
}

static void look(uint32_t pid, uint32_t parent, enum target_role role)
{
	struct rec_target target = {
		.hdr = {.type = REC_TARGET, .size = sizeof(target)}, .pid = pid, .parent_pid = parent};

	target.role = role;
	assert_int_equal(recording_part__look(&part, &target.hdr), 0);
}

static bool has(uint32_t pid)
{
	struct rec_sample sample = {.hdr = {.type = REC_SAMPLE, .size = sizeof(sample)}, .pid = pid};

	return recording_part__has(&part, &sample.hdr);
}

/* Children of children, and forks that were gone before they were looked at; not a rank that another job's process has started. */
static void test_processes(void **state)
{
	struct rec_proc fork = {
		.hdr = {.type = REC_PROC, .size = sizeof(fork)}, .event = PROC_FORK, .pid = 13, .parent_pid = 11};

	assert_int_equal(recording_part__add(&part, 10), 0);
	look(10, 1, ROLE_MAIN);
	look(11, 10, ROLE_WORKER);
	look(12, 11, ROLE_CHILD);
	look(20, 10, ROLE_MAIN);
	look(21, 20, ROLE_WORKER);
	assert_int_equal(recording_part__look(&part, &fork.hdr), 0);
	for (uint32_t pid = 10; pid <= 13; pid++)
		assert_true(has(pid));
	assert_false(has(20));
	assert_false(has(21));
	assert_false(has(1));
}

/* What others refer to, and what is of the whole machine, is in each part. */
static void test_shared(void **state)
{
	const struct rec_name name = {.hdr = {.type = REC_NAME, .size = sizeof(name)}, .id = 10};
	const struct rec_code code = {.hdr = {.type = REC_CODE, .size = sizeof(code)}, .pid = 20};
	const struct rec_host host = {.hdr = {.type = REC_HOST, .size = sizeof(host)}};
	const struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}};
	const struct rec_machine machine = {.hdr = {.type = REC_MACHINE, .size = sizeof(machine)}, .pid = 20};
	const struct rec_agg agg = {.hdr = {.type = REC_AGG, .size = sizeof(agg)}, .key = {.pid = 20}};
	const struct rec_hdr unknown = {.type = REC__COUNT + 1, .size = sizeof(unknown)};

	assert_int_equal(recording_part__add(&part, 10), 0);
	assert_true(recording_part__has(&part, &name.hdr));
	assert_true(recording_part__has(&part, &code.hdr));
	assert_true(recording_part__has(&part, &host.hdr));
	assert_true(recording_part__has(&part, &counter.hdr));
	assert_true(recording_part__has(&part, &machine.hdr));
	assert_true(recording_part__has(&part, &unknown));
	assert_false(recording_part__has(&part, &agg.hdr));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_processes, tear_down),
		cmocka_unit_test_teardown(test_shared, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
