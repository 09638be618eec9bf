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
	assert_int_equal(recording_part__scan(&part, &target.hdr), 0);
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
	assert_true(recording_part__needs_reading(&part));
	look(10, 1, ROLE_MAIN);
	look(11, 10, ROLE_WORKER);
	look(12, 11, ROLE_CHILD);
	look(20, 10, ROLE_MAIN);
	look(21, 20, ROLE_WORKER);
	assert_int_equal(recording_part__scan(&part, &fork.hdr), 0);
	for (uint32_t pid = 10; pid <= 13; pid++)
		assert_true(has(pid));
	assert_false(has(20));
	assert_false(has(21));
	assert_false(has(1));
}

/* What is of the whole machine is in each part. */
static void test_of_all(void **state)
{
	const struct rec_host host = {.hdr = {.type = REC_HOST, .size = sizeof(host)}};
	const struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}};
	const struct rec_machine machine = {.hdr = {.type = REC_MACHINE, .size = sizeof(machine)}, .pid = 20};
	const struct rec_agg agg = {.hdr = {.type = REC_AGG, .size = sizeof(agg)}, .key = {.pid = 20}};
	const struct rec_hdr unknown = {.type = REC__COUNT + 1, .size = sizeof(unknown)},
			     cut = {.type = REC_STEP, .size = 8};

	assert_int_equal(recording_part__add(&part, 10), 0);
	assert_true(recording_part__has(&part, &host.hdr));
	assert_true(recording_part__has(&part, &counter.hdr));
	assert_true(recording_part__has(&part, &machine.hdr));
	assert_true(recording_part__has(&part, &unknown));
	assert_true(recording_part__has(&part, &cut)); /* the reader counts it */
	assert_false(recording_part__has(&part, &agg.hdr));
}

static bool has_name(uint64_t id)
{
	const struct rec_name name = {.hdr = {.type = REC_NAME, .size = sizeof(name)}, .id = id};

	return recording_part__has(&part, &name.hdr);
}

/* A sample refers to a stack, that to a function, and that to names; all of these stand before it. */
static void test_references(void **state)
{
	struct rec_code code = {.hdr = {.type = REC_CODE, .size = sizeof(code)}, .id = 100, .file = 101, .name = 102};
	struct {
		struct rec_stack stack;
		struct stack_frame frame;
	} stack = {.stack = {.hdr = {.type = REC_STACK, .size = sizeof(stack)}, .id = 103, .frame_cnt = 1},
		   .frame = {.code = 100}};
	struct {
		struct rec_path path;
		struct path_span span;
	} path = {.path = {.hdr = {.type = REC_PATH, .size = sizeof(path)}, .id = 104, .span_cnt = 1},
		  .span = {.name = 105}};
	struct rec_around around = {.hdr = {.type = REC_AROUND, .size = sizeof(around)}, .name = 105, .stack = 106};
	struct rec_sample sample = {
		.hdr = {.type = REC_SAMPLE, .size = sizeof(sample)}, .pid = 10, .stack = 103, .path = 104};
	struct rec_sample other = {
		.hdr = {.type = REC_SAMPLE, .size = sizeof(other)}, .pid = 20, .stack = 107, .native = 108};
	const struct rec_hdr *all[] = {&code.hdr,   &stack.stack.hdr, &path.path.hdr,
				       &around.hdr, &sample.hdr,      &other.hdr};

	assert_int_equal(recording_part__add(&part, 10), 0);
	while (recording_part__needs_reading(&part))
		for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
			assert_int_equal(recording_part__scan(&part, all[i]), 0);
	for (size_t i = 0; i < 5; i++)
		assert_true(recording_part__has(&part, all[i]));
	assert_false(recording_part__has(&part, &other.hdr));
	assert_true(has_name(101) && has_name(102) && has_name(105));
	stack.stack.id = 106; /* around the span */
	assert_true(recording_part__has(&part, &stack.stack.hdr));
	stack.stack.id = 107;
	assert_false(recording_part__has(&part, &stack.stack.hdr));
	assert_false(has_name(108));
}

/* Names of spans are packed: then all are kept. */
static void test_spans(void **state)
{
	struct rec_spans spans = {.hdr = {.type = REC_SPANS, .size = sizeof(spans)}, .pid = 10};

	assert_int_equal(recording_part__add(&part, 10), 0);
	for (int reading = 0; reading < 2; reading++) {
		assert_true(recording_part__needs_reading(&part));
		assert_int_equal(recording_part__scan(&part, &spans.hdr), 0);
	}
	assert_false(recording_part__needs_reading(&part));
	assert_true(has_name(1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_processes, tear_down),
		cmocka_unit_test_teardown(test_of_all, tear_down),
		cmocka_unit_test_teardown(test_references, tear_down),
		cmocka_unit_test_teardown(test_spans, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
