// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The model: cumulative records, names in every encoding, and records that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"

static int set_up(void **state)
{
	*state = job__new();
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	job__free(*state);
	return 0;
}

static void test_empty(void **state)
{
	struct job *job = *state;
	size_t cnt = 99;

	assert_true(!job__actions(job, &cnt) || !cnt);
	job__counters(job, &cnt);
	assert_int_equal(cnt, 0);
	job__targets(job, &cnt);
	assert_int_equal(cnt, 0);
	job__notes(job, &cnt);
	assert_int_equal(cnt, 0);
	assert_null(job__name(job, 1));
	assert_int_equal(job__window(job)->hdr.type, 0);
	job__free(NULL);
}

#define NAME_IS(encoding, text, bytes, cut_of, expected)                                       \
	do {                                                                                   \
		__u64 id = ++*ids;                                                             \
                                                                                               \
		assert_int_equal(add_name(job, id, (encoding), (text), (bytes), (cut_of)), 0); \
		assert_string_equal(job__name(job, id), (expected));                           \
	} while (0)

static void test_names(void **state)
{
	static const uint16_t ucs2[] = {'a', 0xe4, 0x8a13, 0xd83d, 0xdd25, 0xffff, 0};
	static const uint32_t ucs4[] = {'a', 0x1f525, 0xd800, 0x110000, 0xffffffff, 0x10ffff};
	struct job *job = *state;
	__u64 last = 0, *ids = &last;

	NAME_IS(NAME_UTF8, "plain", 5, 0, "plain");
	NAME_IS(NAME_UTF8, "", 0, 0, "");
	NAME_IS(NAME_UTF8, "\xc3\xa4\xe8\xa8\x93\xf0\x9f\x94\xa5", 9, 0, "\xc3\xa4\xe8\xa8\x93\xf0\x9f\x94\xa5");
	NAME_IS(NAME_UTF8, "\x1b[0m\n", 5, 0, "\x1b[0m\n");
	NAME_IS(NAME_UTF8, "a\0b", 3, 0,
		"a\xef\xbf\xbd"
		"b");
	/* Invalid: a lone lead, a lone continuation, overlong, a surrogate, above U+10FFFF; replaced as Python does. */
	NAME_IS(NAME_UTF8, "a\xc3z", 3, 0, "a\xef\xbf\xbdz");
	NAME_IS(NAME_UTF8, "\x80", 1, 0, "\xef\xbf\xbd");
	NAME_IS(NAME_UTF8, "\xc0\xaf", 2, 0, "\xef\xbf\xbd\xef\xbf\xbd");
	NAME_IS(NAME_UTF8, "\xed\xa0\x80", 3, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	NAME_IS(NAME_UTF8, "\xf4\x90\x80\x80", 4, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	NAME_IS(NAME_UTF8, "\xf0\x9f\x94!", 4, 0, "\xef\xbf\xbd!");
	NAME_IS(NAME_UTF8, "x\xe8\xa8", 3, 0, "x\xef\xbf\xbd");
	NAME_IS(NAME_UTF8, "x\xe8\xa8", 3, 9, "x... (9 bytes)");
	NAME_IS(NAME_UTF8, "long", 4, 600, "long... (600 bytes)");
	NAME_IS(NAME_LATIN1, "\xe4\xff\x7f", 3, 0, "\xc3\xa4\xc3\xbf\x7f");
	NAME_IS(NAME_UCS2, ucs2, sizeof(ucs2), 0,
		"a\xc3\xa4\xe8\xa8\x93\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbf\xef\xbf\xbd");
	NAME_IS(NAME_UCS2, ucs2, 3, 0, "a\xef\xbf\xbd");
	NAME_IS(NAME_UCS2, ucs2, 3, 4, "a... (4 bytes)");
	NAME_IS(NAME_UCS4, ucs4, sizeof(ucs4), 0,
		"a\xf0\x9f\x94\xa5\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xf4\x8f\xbf\xbf");
	NAME_IS(NAME_UCS4, ucs4, 7, 8, "a... (8 bytes)");
	assert_int_equal(job__malformed(job), 0);

	/* The first text of an id stays. */
	add_text(job, 1, "other");
	assert_string_equal(job__name(job, 1), "plain");
}

static void test_many_names(void **state)
{
	struct job *job = *state;
	char text[32];

	for (__u64 id = 1; id <= 5000; id++) {
		snprintf(text, sizeof(text), "name %llu", (unsigned long long)id);
		assert_int_equal(add_text(job, id * 0x9e3779b97f4a7c15ULL, text), 0);
	}
	for (__u64 id = 1; id <= 5000; id++) {
		snprintf(text, sizeof(text), "name %llu", (unsigned long long)id);
		assert_string_equal(job__name(job, id * 0x9e3779b97f4a7c15ULL), text);
	}
}

static void add_flagged(struct job *job, struct agg_key key, __u64 calls, __u64 ns, bool ended)
{
	struct rec_agg agg = {.hdr = {.type = REC_AGG, .size = sizeof(agg), .flags = ended ? REC_ENDED : 0},
			      .key = key,
			      .val = {calls, calls * ns, calls * ns, ns, ns, 7, {0}}};

	assert_int_equal(add_copy(job, &agg), 0);
}

/* The rows of a process that has ended are final: those of a later process with its pid come on top of them. */
static void test_pid_is_used_again(void **state)
{
	const struct agg_key key = {.pid = 1, .kind = SPAN_ACTION, .name = 10};
	const struct job_action *rows;
	struct job *job = *state;
	size_t cnt;

	add_text(job, 10, "step");
	add_flagged(job, key, 2, 100, false);
	add_flagged(job, key, 3, 100, true);
	add_flagged(job, key, 1, 50, false);
	add_flagged(job, key, 5, 50, true);
	add_flagged(job, key, 4, 200, false);
	add_flagged(job, key, 7, 200, false);
	rows = job__actions(job, &cnt);
	assert_int_equal(cnt, 1);
	assert_int_equal(rows[0].val.calls, 3 + 5 + 7);
	assert_int_equal(rows[0].val.total_ns, 300 + 250 + 1400);
	assert_int_equal(rows[0].val.min_ns, 50);
	assert_int_equal(rows[0].val.max_ns, 200);
}

/* What record --max-size has dropped is no part of what events are a share of. */
static void test_dropped(void **state)
{
	struct rec_dropped dropped = {
		.hdr = {.type = REC_DROPPED, .size = sizeof(dropped)}, .time_ns = 800, .states = 2};
	struct job *job = *state;

	add_window(job, 500, 1500, 3, STEP_OPTIMIZER);
	assert_int_equal(job__events_from(job), 500);
	add_copy(job, &dropped);
	assert_int_equal(job__events_from(job), 800);
	dropped.time_ns = 700; /* of another file that was merged */
	add_copy(job, &dropped);
	assert_int_equal(job__events_from(job), 800);
	assert_int_equal(job__dropped(job)->states, 4);
	add_window(job, 900, 1500, 3, STEP_OPTIMIZER);
	assert_int_equal(job__events_from(job), 900);
}

static void test_aggregates_are_cumulative(void **state)
{
	const struct agg_key in_a = {.pid = 1, .kind = SPAN_ACTION, .name = 10, .parent = 20};
	const struct agg_key in_b = {.pid = 1, .kind = SPAN_ACTION, .name = 10, .parent = 21};
	const struct job_action *rows;
	struct job *job = *state;
	size_t cnt;

	add_text(job, 10, "step");
	add_agg(job, in_a, (struct agg_val){1, 100, 90, 100, 100, 7, {0, 1}});
	add_agg(job, in_a, (struct agg_val){3, 300, 270, 50, 150, 7, {0, 2, 1}});
	add_agg(job, in_b, (struct agg_val){2, 40, 40, 10, 30, 5, {1, 1}});
	rows = job__actions(job, &cnt);
	assert_int_equal(cnt, 1);
	assert_string_equal(rows[0].name, "step");
	assert_int_equal(rows[0].val.calls, 5);
	assert_int_equal(rows[0].val.total_ns, 340);
	assert_int_equal(rows[0].val.self_ns, 310);
	assert_int_equal(rows[0].val.min_ns, 10);
	assert_int_equal(rows[0].val.max_ns, 150);
	assert_int_equal(rows[0].val.first_ns, 5);
	assert_int_equal(rows[0].val.hist[0], 1);
	assert_int_equal(rows[0].val.hist[1], 3);
	assert_int_equal(rows[0].val.hist[2], 1);
	assert_int_equal(rows[0].parent_cnt, 2);
	assert_int_equal(rows[0].parents[0], 20);
	assert_int_equal(rows[0].parents[1], 21);

	add_agg(job, in_b, (struct agg_val){4, 80, 80, 10, 30, 5, {0}});
	rows = job__actions(job, &cnt);
	assert_int_equal(rows[0].val.calls, 7);
}

static void test_order_of_rows(void **state)
{
	static const struct agg_key keys[] = {
		{1, SPAN_ACTION, 10, 0}, {1, SPAN_LABEL, 10, 0}, {2, SPAN_ACTION, 10, 0}, {1, SPAN_ACTION, 11, 10}};
	static const __u64 first[] = {40, 10, 30, 20};
	const struct job_action *rows;
	struct job *job = *state;
	size_t cnt;

	for (size_t i = 0; i < 4; i++)
		add_agg(job, keys[i], (struct agg_val){.calls = 1, .first_ns = first[i]});
	/* Never completed: not a row. */
	add_agg(job, (struct agg_key){1, SPAN_ACTION, 12, 0}, (struct agg_val){.first_ns = 1});
	rows = job__actions(job, &cnt);
	assert_int_equal(cnt, 4);
	assert_int_equal(rows[0].kind, SPAN_LABEL);
	assert_int_equal(rows[1].name_id, 11);
	assert_int_equal(rows[2].pid, 2);
	assert_int_equal(rows[3].val.first_ns, 40);
	/* A name that did not come says so, until it comes. */
	assert_string_equal(rows[1].name, "(name lost, id 000000000000000b)");
	assert_null(job__name(job, 11));
	add_text(job, 11, "late");
	rows = job__actions(job, &cnt);
	assert_string_equal(rows[1].name, "late");
}

static void test_last_state_holds(void **state)
{
	const struct rec_target *targets;
	struct job *job = *state;
	size_t cnt;

	add_target(job, 5, ROLE_MAIN, -1);
	add_target(job, 6, ROLE_WORKER, -1);
	add_target(job, 5, ROLE_MAIN, 3);
	targets = job__targets(job, &cnt);
	assert_int_equal(cnt, 2);
	assert_int_equal(targets[0].pid, 5);
	assert_int_equal(targets[0].rank, 3);
	add_window(job, 10, 20, 1, STEP_NONE);
	add_window(job, 10, 30, 2, STEP_LIGHTNING);
	assert_int_equal(job__window(job)->end_ns, 30);
	assert_int_equal(job__window(job)->steps, 2);
}

static void test_counters(void **state)
{
	const struct job_counter *counters;
	struct job *job = *state;
	size_t cnt;

	add_counter(job, "of a later version", 1);
	add_counter(job, "unwound", 2);
	add_counter(job, "open_at_start", 0);
	add_counter(job, "bad_read", 5);
	add_counter(job, "unwound", 3);
	add_counter(job, "of a later version", 4);
	counters = job__counters(job, &cnt);
	assert_int_equal(cnt, 3);
	assert_string_equal(counters[0].name, "unwound");
	assert_int_equal(counters[0].value, 3);
	assert_string_equal(counters[1].name, "bad_read");
	assert_string_equal(counters[2].name, "of a later version");
	assert_int_equal(counters[2].value, 4);
}

static void test_fields_without_end(void **state)
{
	struct rec_target target = {.hdr = {.type = REC_TARGET, .size = sizeof(target)}, .pid = 1};
	struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}, .value = 1};
	struct job *job = *state;
	size_t cnt;

	memset(target.python, 'p', sizeof(target.python));
	memset(target.torch, 0xff, sizeof(target.torch));
	memset(target.command, 'c', sizeof(target.command));
	memcpy(target.command + sizeof(target.command) - 2, "\xe8\xa8", 2);
	memset(counter.name, 'n', sizeof(counter.name));
	assert_int_equal(add_copy(job, &target), 0);
	assert_int_equal(add_copy(job, &counter), 0);
	assert_int_equal(strlen(job__targets(job, &cnt)->python), sizeof(target.python) - 1);
	assert_int_equal(strlen(job__targets(job, &cnt)->torch), 30); /* ten times U+FFFD */
	assert_int_equal(strlen(job__targets(job, &cnt)->command), sizeof(target.command) - 2);
	assert_int_equal(strlen(job__counters(job, &cnt)->name), sizeof(counter.name) - 1);
}

/* Every type, every size below its struct's: counted and skipped, and no byte beyond the record is read. */
static void test_short_records(void **state)
{
	struct job *job = *state;
	size_t cnt;

	for (__u16 type = 0; type < 64; type++) {
		for (__u32 size = sizeof(struct rec_hdr); size < 400; size += 8) {
			struct rec_hdr *record = calloc(1, size);

			*record = (struct rec_hdr){.type = type, .size = size};
			memset(record + 1, 0xff, size - sizeof(*record));
			assert_int_equal(add_copy(job, record), 0);
			free(record);
		}
	}
	assert_true(job__malformed(job) > 0);
	job__actions(job, &cnt);
	job__counters(job, &cnt);
}

static void test_lies(void **state)
{
	/* With 8 bytes of text each. */
	struct rec_name *name = calloc(1, sizeof(*name) + 8);
	struct rec_note *note = calloc(1, sizeof(*note) + 8);
	struct job *job = *state;
	size_t cnt;

	name->hdr = (struct rec_hdr){.type = REC_NAME, .size = sizeof(*name) + 8};
	name->id = 1;
	name->bytes = 9;
	note->hdr = (struct rec_hdr){.type = REC_NOTE, .size = sizeof(*note) + 8};
	note->bytes = UINT32_MAX;
	add_copy(job, name);
	name->bytes = 8;
	name->encoding = 3;
	add_copy(job, name);
	name->encoding = NAME_UTF8;
	name->id = 0;
	add_copy(job, name);
	add_copy(job, note);
	free(name);
	free(note);
	assert_int_equal(job__malformed(job), 4);
	assert_null(job__name(job, 1));
	job__notes(job, &cnt);
	assert_int_equal(cnt, 0);

	add_window(job, 20, 10, 1, STEP_NONE);
	add_window(job, 10, 20, 1, STEP__COUNT);
	add_target(job, 1, ROLE_WORKER + 1, 0);
	add_agg(job, (struct agg_key){1, SPAN_NONE, 1, 0}, (struct agg_val){.calls = 1});
	add_agg(job, (struct agg_key){1, SPAN_OP, 1, 0}, (struct agg_val){.calls = 1});
	add_agg(job, (struct agg_key){1, SPAN__COUNT, 1, 0}, (struct agg_val){.calls = 1});
	add_agg(job, (struct agg_key){1, SPAN_USER, 0, 0}, (struct agg_val){.calls = 1});
	assert_int_equal(job__malformed(job), 11);
	job__actions(job, &cnt);
	assert_int_equal(cnt, 0);
	assert_int_equal(job__window(job)->hdr.type, 0);
}

static void test_sums_do_not_wrap(void **state)
{
	const struct agg_val huge = {.calls = UINT64_MAX / 2 + 1, .total_ns = UINT64_MAX, .self_ns = 1};
	const struct job_action *rows;
	struct job *job = *state;
	size_t cnt;

	add_agg(job, (struct agg_key){1, SPAN_ACTION, 1, 0}, huge);
	add_agg(job, (struct agg_key){1, SPAN_ACTION, 1, 2}, huge);
	rows = job__actions(job, &cnt);
	assert_true(rows[0].val.calls == UINT64_MAX);
	assert_true(rows[0].val.total_ns == UINT64_MAX);
}

static void test_unknown_and_longer_records(void **state)
{
	struct {
		struct rec_counter counter;
		__u64 more[2];
	} longer = {.counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(longer)}, .value = 1, .name = "unwound"}};
	struct rec_hdr unknown = {.type = 4711, .size = sizeof(unknown)};
	struct job *job = *state;
	size_t cnt;

	assert_int_equal(add_copy(job, &longer), 0);
	assert_int_equal(add_copy(job, &unknown), 0);
	assert_int_equal(job__malformed(job), 0);
	job__counters(job, &cnt);
	assert_int_equal(cnt, 1);
}

/* Children are told by number alone, and each pid once, by its last role. */
static void test_counted_children(void **state)
{
	struct job *job = *state;
	size_t cnt;

	assert_int_equal(job__only_count_children(job), 0);
	assert_int_equal(add_target(job, 10, ROLE_MAIN, -1), 0);
	for (__u32 pid = 1; pid < 9; pid++)
		assert_int_equal(add_target(job, pid, ROLE_CHILD, -1), 0);
	assert_int_equal(add_target(job, 8, ROLE_CHILD, -1), 0);
	assert_int_equal(add_target(job, 7, ROLE_WORKER, -1), 0);
	assert_int_equal(add_target(job, 6, ROLE_MAIN, -1), 0);
	assert_int_equal(add_target(job, (4U << 20) - 1, ROLE_WORKER, -1), 0);
	assert_int_equal(add_target(job, 4U << 20, ROLE_CHILD, -1), 0); /* no pid of Linux */
	assert_int_equal(job__target_cnt(job, ROLE_CHILD), 7);
	assert_int_equal(job__target_cnt(job, ROLE_WORKER), 2);
	assert_int_equal(job__target_cnt(job, ROLE_MAIN), 2);
	job__targets(job, &cnt);
	assert_int_equal(cnt, 3);
	assert_false(job__is_main(job, 1));
	assert_true(job__is_main(job, 6));
	/* another child with the pid of one that has ended */
	assert_int_equal(add_proc(job, 5, PROC_FORK), 0);
	assert_int_equal(add_proc(job, 5, PROC_EXIT), 0);
	assert_int_equal(job__target_cnt(job, ROLE_CHILD), 7);
	assert_int_equal(add_target(job, 5, ROLE_CHILD, -1), 0);
	assert_int_equal(add_proc(job, 5, PROC_FORK), 0);
	assert_null(job__exit(job, 5));
	assert_int_equal(job__target_cnt(job, ROLE_CHILD), 8);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_empty),
		TEST(test_names),
		TEST(test_many_names),
		TEST(test_pid_is_used_again),
		TEST(test_dropped),
		TEST(test_aggregates_are_cumulative),
		TEST(test_order_of_rows),
		TEST(test_last_state_holds),
		TEST(test_counters),
		TEST(test_fields_without_end),
		TEST(test_short_records),
		TEST(test_lies),
		TEST(test_sums_do_not_wrap),
		TEST(test_unknown_and_longer_records),
		TEST(test_counted_children),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
