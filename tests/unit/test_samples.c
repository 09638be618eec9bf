// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Stacks, samples and exact calls in the model. That the report is pstats' and that exports are read by others is what
 * tests/replay/test_advanced_format.py and test_export_samples.py show; here are rules, and records that lie.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"
#include "user/analysis/flame/profile.h"
#include "user/export/export.h"
#include "user/report/report.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void *new_record(enum rec_type type, size_t bytes)
{
	struct rec_hdr *record = calloc(1, bytes);

	*record = (struct rec_hdr){.type = type, .size = bytes};
	return record;
}

static int add_record(struct job *job, void *record)
{
	int err = add_copy(job, record);

	free(record);
	return err;
}

static struct rec_code *new_code(__u64 id, __u64 file, __u64 name, __u32 line_cnt, const struct code_line *lines)
{
	struct rec_code *code = new_record(REC_CODE, sizeof(*code) + line_cnt * sizeof(*lines));

	code->id = id;
	code->file = file;
	code->name = name;
	code->first_line = 1;
	code->line_cnt = line_cnt;
	if (line_cnt)
		memcpy(code->lines, lines, line_cnt * sizeof(*lines));
	return code;
}

static struct rec_stack *new_stack(__u64 id, __u32 frame_cnt, const __u64 *codes)
{
	struct rec_stack *stack = new_record(REC_STACK, sizeof(*stack) + frame_cnt * sizeof(*stack->frames));

	stack->id = id;
	stack->frame_cnt = frame_cnt;
	for (__u32 i = 0; i < frame_cnt; i++)
		stack->frames[i] = (struct stack_frame){.code = codes[i], .offset = i};
	return stack;
}

static struct rec_path *new_path(__u64 id, __u32 span_cnt, const struct path_span *spans)
{
	struct rec_path *path = new_record(REC_PATH, sizeof(*path) + span_cnt * sizeof(*spans));

	path->id = id;
	path->span_cnt = span_cnt;
	if (span_cnt)
		memcpy(path->spans, spans, span_cnt * sizeof(*spans));
	return path;
}

static struct rec_sample sample(enum sample_kind kind, enum wait_cause cause, __u64 stack, __u64 path)
{
	return (struct rec_sample){.hdr = {.type = REC_SAMPLE, .size = sizeof(struct rec_sample)},
				   .time_ns = 7,
				   .weight_ns = 100,
				   .pid = 1,
				   .tid = 2,
				   .stack = stack,
				   .path = path,
				   .waits = 1,
				   .syscall = -1,
				   .kind = kind,
				   .cause = cause};
}

static void add_sample(struct job *job, enum sample_kind kind, enum wait_cause cause, __u64 stack, __u64 path)
{
	struct rec_sample record = sample(kind, cause, stack, path);

	assert_int_equal(add_copy(job, &record), 0);
}

/* ---- what is kept ---- */

static void test_lines(void **state)
{
	static const struct code_line lines[] = {{0, 10}, {4, 12}, {10, 0}, {12, -3}, {20, 9}};
	static const struct {
		uint32_t offset, line;
	} expected[] = {{0, 10}, {3, 10}, {4, 12}, {9, 12}, {10, 0}, {12, 0}, {19, 0}, {20, 9}, {UINT32_MAX, 9}};
	struct code code = {.lines = (struct code_line *)lines, .line_cnt = COUNT(lines)}, late = {0};

	for (size_t i = 0; i < COUNT(expected); i++)
		assert_int_equal(code__line(&code, expected[i].offset), expected[i].line);
	code.lines++;
	code.line_cnt--;
	assert_int_equal(code__line(&code, 3), 0);
	assert_int_equal(code__line(&late, 0), 0);
}

static void test_sample(void **state)
{
	struct rec_sample record = sample(SAMPLE_CPU, CAUSE_GIL, 50, 60);
	const struct samples *samples;
	struct job *job = job__new();
	struct sample found;
	uint32_t pid, tid;

	assert_int_equal(samples__cnt(job__samples(job)), 0);
	record.native = 70;
	record.kernel = 80;
	record.step = 3;
	record.syscall = 202;
	add_copy(job, &record);
	record.kind = SAMPLE_WAIT;
	record.cause = CAUSE_NONE;
	record.tid = 3;
	record.stack = 51;
	add_copy(job, &record);
	samples = job__samples(job);
	assert_int_equal(samples__cnt(samples), 2);
	found = samples__get(samples, 0);
	assert_int_equal(found.time_ns, 7);
	assert_int_equal(found.weight_ns, 100);
	assert_int_equal(found.native, 70);
	assert_int_equal(found.kernel, 80);
	assert_int_equal(found.pid, 1);
	assert_int_equal(found.tid, 2);
	assert_int_equal(found.step, 3);
	assert_int_equal(found.syscall, 202);
	assert_int_equal(found.stack, 1);
	assert_int_equal(found.path, 1);
	assert_int_equal(found.kind, SAMPLE_CPU);
	assert_int_equal(found.cause, CAUSE_NONE);
	found = samples__get(samples, 1);
	assert_int_equal(found.cause, CAUSE_UNKNOWN);
	assert_int_equal(found.stack, 2);
	assert_int_equal(found.thread, 2);
	assert_int_equal(samples__thread_end(samples), 3);
	samples__thread(samples, 2, &pid, &tid);
	assert_int_equal(pid, 1);
	assert_int_equal(tid, 3);
	/* Stacks and paths may come later, and may not come. */
	assert_false(stacks__stack(job__stacks(job), 1).known);
	assert_false(stacks__path(job__stacks(job), 1).known);
	add_record(job, new_stack(51, 2, (const __u64[]){90, 91}));
	assert_false(stacks__stack(job__stacks(job), 1).known);
	assert_int_equal(stacks__stack(job__stacks(job), 2).cnt, 2);
	assert_false(stacks__code(job__stacks(job), 1).known);
	assert_true(stacks__stack(job__stacks(job), 0).known);
	assert_true(stacks__path(job__stacks(job), 0).known);
	job__free(job);
}

static void test_first_of_an_id_stays(void **state)
{
	static const struct code_line lines[] = {{0, 1}, {2, 5}}, other[] = {{0, 8}};
	static const struct path_span span = {.name = 1, .kind = SPAN_ACTION};
	struct job *job = job__new();
	struct code code;

	/* But the lines may come with a later one: the first process may have had none to read. */
	add_record(job, new_code(5, 1, 2, 0, NULL));
	add_record(job, new_code(5, 3, 4, 2, lines));
	add_record(job, new_code(5, 1, 2, 1, other));
	code = stacks__code(job__stacks(job), 1);
	assert_int_equal(code.file, 1);
	assert_int_equal(code.name, 2);
	assert_int_equal(code.line_cnt, 2);
	assert_int_equal(code__line(&code, 3), 5);
	add_record(job, new_stack(6, 1, (const __u64[]){5}));
	add_record(job, new_stack(6, 0, NULL));
	assert_int_equal(stacks__stack(job__stacks(job), 1).cnt, 1);
	add_record(job, new_path(7, 1, &span));
	add_record(job, new_path(7, 0, NULL));
	assert_int_equal(stacks__path(job__stacks(job), 1).cnt, 1);
	assert_int_equal(job__malformed(job), 0);
	job__free(job);
}

static void test_calls_are_cumulative(void **state)
{
	struct rec_calls record = {.hdr = {.type = REC_CALLS, .size = sizeof(record)}, .pid = 1, .code = 5, .path = 6};
	struct job *job = job__new();
	const struct calls *calls;
	size_t cnt;

	for (__u64 i = 1; i <= 3; i++) {
		record.calls = 10 * i;
		record.primitive_calls = i;
		add_copy(job, &record);
	}
	record.path = 0;
	add_copy(job, &record);
	record.pid = 2;
	add_copy(job, &record);
	calls = samples__calls(job__samples(job), &cnt);
	assert_int_equal(cnt, 3);
	assert_int_equal(calls[0].calls, 30);
	assert_int_equal(calls[0].primitive_calls, 3);
	assert_int_equal(calls[1].path, 0);
	assert_int_equal(calls[2].pid, 2);
	job__free(job);
}

/* ---- causes ---- */

enum { FILE_LOADER = 100, FILE_OTHER, FILE_NEAR, TRY_GET, GET, NEXT, TRY_GET_OLD, COMM_NAME, SYNC_NAME, ACTION_NAME };

static struct job *job_of_causes(void)
{
	static const __u64 code_names[][2] = {{FILE_LOADER, TRY_GET}, {FILE_LOADER, GET},   {FILE_LOADER, NEXT},
					      {FILE_OTHER, TRY_GET},  {FILE_NEAR, TRY_GET}, {FILE_LOADER, TRY_GET_OLD}};
	static const struct path_span spans[] = {{.name = ACTION_NAME, .kind = SPAN_ACTION},
						 {.name = COMM_NAME, .kind = SPAN_COMM},
						 {.name = SYNC_NAME, .kind = SPAN_SYNC},
						 {.name = ACTION_NAME, .kind = SPAN_LABEL}};
	struct job *job = job__new();

	add_text(job, FILE_LOADER, "/usr/lib/python3/site-packages/torch/utils/data/dataloader.py");
	add_text(job, FILE_OTHER, "/home/me/dataloader.py");
	add_text(job, FILE_NEAR, "/home/me/mytorch/utils/data/dataloader.py");
	add_text(job, TRY_GET, "_MultiProcessingDataLoaderIter._try_get_data");
	add_text(job, GET, "_MultiProcessingDataLoaderIter._get_data");
	add_text(job, NEXT, "_SingleProcessDataLoaderIter._next_data");
	add_text(job, TRY_GET_OLD, "_try_get_data");
	/* Each code by itself, and the first one below and above another. */
	for (__u64 i = 0; i < COUNT(code_names); i++) {
		add_record(job, new_code(i + 1, code_names[i][0], code_names[i][1], 0, NULL));
		add_record(job, new_stack(i + 1, 1, (const __u64[]){i + 1}));
	}
	add_record(job, new_stack(10, 3, (const __u64[]){4, 1, 3}));
	for (__u32 i = 1; i <= COUNT(spans); i++)
		add_record(job, new_path(i, i, spans));
	return job;
}

static void test_causes(void **state)
{
	static const struct {
		enum wait_cause cause;
		__u64 stack, path;
		unsigned int refined;
	} expected[] = {
		{CAUSE_POLL, 1, 0, CAUSE_DATA_WAIT},
		{CAUSE_LOCK, 2, 1, CAUSE_DATA_WAIT},
		{CAUSE_UNKNOWN, 6, 1, CAUSE_DATA_WAIT},
		{CAUSE_POLL, 10, 0, CAUSE_DATA_WAIT},
		/* The process itself reads the data: it waits for what the kernel says. */
		{CAUSE_PIPE, 3, 0, CAUSE_PIPE},
		{CAUSE_POLL, 4, 0, CAUSE_POLL},
		{CAUSE_POLL, 5, 0, CAUSE_POLL},
		/* What says more than the stack. */
		{CAUSE_GIL, 1, 0, CAUSE_GIL},
		{CAUSE_RUN_QUEUE, 1, 0, CAUSE_RUN_QUEUE},
		{CAUSE_DISK_READ, 1, 2, CAUSE_DISK_READ},
		{CAUSE_PAGE_FAULT, 0, 3, CAUSE_PAGE_FAULT},
		/* The innermost span that waits. */
		{CAUSE_SOCKET, 0, 2, CAUSE_COLLECTIVE},
		{CAUSE_LOCK, 0, 3, CAUSE_GPU_SYNC},
		{CAUSE_SLEEP, 1, 4, CAUSE_GPU_SYNC},
		{CAUSE_LOCK, 0, 99, CAUSE_LOCK},
		{CAUSE_LOCK, 99, 1, CAUSE_LOCK},
	};
	struct job *job = job_of_causes();

	for (size_t i = 0; i < COUNT(expected); i++)
		add_sample(job, SAMPLE_WAIT, expected[i].cause, expected[i].stack, expected[i].path);
	for (size_t i = 0; i < COUNT(expected); i++)
		assert_int_equal(samples__get(job__samples(job), i).cause, expected[i].refined);
	assert_string_equal(sample_cause__name(CAUSE_NONE), "");
	assert_string_equal(sample_cause__name(CAUSE_GIL), "gil");
	assert_string_equal(sample_cause__name(CAUSE_GPU_SYNC), "gpu_sync");
	assert_string_equal(sample_cause__name(CAUSE__END), "");
	/* A stack that comes after its samples, and its names after it. */
	add_record(job, new_stack(99, 1, (const __u64[]){77}));
	add_record(job, new_code(77, 200, TRY_GET, 0, NULL));
	assert_int_equal(samples__get(job__samples(job), COUNT(expected) - 1).cause, CAUSE_LOCK);
	add_text(job, 200, "torch/utils/data/dataloader.py");
	assert_int_equal(samples__get(job__samples(job), COUNT(expected) - 1).cause, CAUSE_DATA_WAIT);
	job__free(job);
}

/* ---- forwards ---- */

static void add_interval(struct job *job, enum span_kind kind, __u32 tid, __u64 start_ns, __u64 end_ns, __u32 depth)
{
	struct rec_interval record = {.hdr = {.type = REC_INTERVAL, .size = sizeof(record)},
				      .pid = 1,
				      .tid = tid,
				      .start_ns = start_ns,
				      .duration_ns = end_ns - start_ns,
				      .name = 9,
				      .kind = kind,
				      .depth = depth};

	assert_int_equal(add_copy(job, &record), 0);
}

static void test_forwards(void **state)
{
	static const struct path_span spans[] = {{.name = 1, .kind = SPAN_LABEL}, {.name = 2, .kind = SPAN_LABEL}};
	static const struct {
		__u64 time_ns;
		__u64 path;
		__u32 tid, cnt, at; /* spans of its path, and which of them is the forward or evaluation; cnt: none */
	} expected[] = {{99, 7, 2, 2, 2},
			{100, 7, 2, 3, 1},
			{200, 0, 2, 1, 0},
			{201, 7, 2, 2, 2},
			{150, 7, 3, 2, 2},
			{150, 8, 2, 0, 0},
			{320, 7, 2, 3, 2},
			{150, 7, 2, 3, 1},
			/* and evaluations */
			{150, 7, 4, 3, 1},
			{201, 7, 4, 2, 2}};
	struct job *job = job__new();

	add_record(job, new_path(7, 2, spans));
	for (size_t i = 0; i < COUNT(expected); i++) {
		struct rec_sample record = sample(SAMPLE_CPU, CAUSE_NONE, 0, expected[i].path);

		record.time_ns = expected[i].time_ns;
		record.tid = expected[i].tid;
		add_copy(job, &record);
	}
	add_interval(job, SPAN_FORWARD, 2, 300, 400, 99);
	add_interval(job, SPAN_FORWARD, 2, 100, 200, 1);
	add_interval(job, SPAN_GC, 2, 0, 1000, 0);
	add_interval(job, SPAN_VALIDATION, 4, 100, 200, 1);
	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < COUNT(expected); i++) {
			struct sample found = samples__get(job__samples(job), i);
			struct path path = stacks__path(job__stacks(job), found.path);

			assert_int_equal(path.cnt, expected[i].cnt);
			for (__u32 s = 0; s < path.cnt; s++)
				assert_int_equal(path.spans[s].kind != SPAN_LABEL, s == expected[i].at);
		}
		/* Once more: nothing is put in twice. */
		add_text(job, 9, "forward");
	}
	assert_int_equal(job__malformed(job), 0);
	add_interval(job, SPAN__COUNT, 2, 0, 1, 0);
	add_interval(job, SPAN_NONE, 2, 0, 1, 0);
	assert_int_equal(job__malformed(job), 2);
	job__free(job);
}

/* ---- errors ---- */

static void test_error_bound(void **state)
{
	/* 100 samples of a period are 100 periods, give or take 19.6. */
	assert_true(fabs(profile__error_ns(100 * 10.0 * 10.0) - 196) < 1e-9);
	assert_true(profile__error_ns(0) == 0);
}

/* Reports and exports of whatever is in the job end, and read no byte beyond. */
static void print_all(struct job *job)
{
	static const struct report_options options[] = {{.limit = -1, .leaf = true, .all = true},
							{.json = true, .per_rank = true, .cpu = true},
							{.json = true, .leaf = true}};
	static const char *const formats[] = {"folded", "speedscope", "pprof", "pstats"};
	char *text = NULL;
	size_t bytes;

	for (size_t i = 0; i < COUNT(options); i++) {
		FILE *out = open_memstream(&text, &bytes);

		assert_int_equal((options[i].json ? report_advanced.json : report_advanced.text)(job, &options[i], out),
				 0);
		fclose(out);
		free(text);
	}
	for (size_t i = 0; i < COUNT(formats); i++) {
		const struct export_options export_options = {.name = "x"};
		FILE *out = open_memstream(&text, &bytes);

		assert_int_equal(export__find(formats[i])->write(job, NULL, &export_options, out), 0);
		fclose(out);
		free(text);
	}
}

static void test_malformed(void **state)
{
	static const struct code_line same[] = {{4, 1}, {4, 2}}, down[] = {{4, 1}, {0, 2}};
	static const struct path_span none = {.name = 1}, beyond = {.name = 1, .kind = SPAN__COUNT},
				      nameless = {.kind = SPAN_ACTION};
	struct rec_sample samples[] = {sample(0, 0, 0, 0), sample(SAMPLE_WAIT + 1, 0, 0, 0),
				       sample(SAMPLE_WAIT, CAUSE__COUNT, 0, 0)};
	struct rec_calls calls = {.hdr = {.type = REC_CALLS, .size = sizeof(calls)}, .calls = 1};
	struct job *job = job__new();
	struct rec_stack *stack;
	struct rec_code *code;
	struct rec_path *path;
	__u64 codes[STACK_FRAMES_MAX + 1] = {0};

	add_record(job, new_code(0, 1, 1, 0, NULL));
	add_record(job, new_code(1, 1, 1, COUNT(same), same));
	add_record(job, new_code(1, 1, 1, COUNT(down), down));
	code = new_code(1, 1, 1, 0, NULL);
	code->line_cnt = 1;
	add_copy(job, code);
	code->line_cnt = UINT32_MAX;
	add_record(job, code);
	assert_int_equal(job__malformed(job), 5);
	add_record(job, new_stack(0, 0, NULL));
	add_record(job, new_stack(1, STACK_FRAMES_MAX + 1, codes));
	stack = new_stack(1, 0, NULL);
	stack->frame_cnt = 1;
	add_record(job, stack);
	assert_int_equal(job__malformed(job), 8);
	add_record(job, new_path(0, 0, NULL));
	add_record(job, new_path(1, 1, &none));
	add_record(job, new_path(1, 1, &beyond));
	add_record(job, new_path(1, 1, &nameless));
	path = new_path(1, 0, NULL);
	path->span_cnt = UINT32_MAX;
	add_record(job, path);
	assert_int_equal(job__malformed(job), 13);
	for (size_t i = 0; i < COUNT(samples); i++)
		add_copy(job, &samples[i]);
	assert_int_equal(job__malformed(job), 16);
	add_copy(job, &calls);
	calls.code = 1;
	calls.primitive_calls = 2;
	add_copy(job, &calls);
	assert_int_equal(job__malformed(job), 18);
	assert_int_equal(stacks__code_end(job__stacks(job)), 1);
	assert_int_equal(samples__cnt(job__samples(job)), 0);
	print_all(job);
	job__free(job);
}

/* A record of the five types whose words are small, huge or anything: ids meet, counts lie. */
static void add_random(struct job *job)
{
	static const struct {
		enum rec_type type;
		size_t bytes;
	} types[] = {{REC_CODE, sizeof(struct rec_code)},         {REC_STACK, sizeof(struct rec_stack)},
		     {REC_PATH, sizeof(struct rec_path)},         {REC_SAMPLE, sizeof(struct rec_sample)},
		     {REC_INTERVAL, sizeof(struct rec_interval)}, {REC_CALLS, sizeof(struct rec_calls)},
		     {REC_AROUND, sizeof(struct rec_around)}};
	size_t type = next_random() % COUNT(types), bytes = types[type].bytes + next_random() % 8 * 8;
	struct rec_hdr *record = new_record(types[type].type, bytes);
	uint32_t *words = (uint32_t *)(record + 1);

	for (size_t i = 0; i < (bytes - sizeof(*record)) / sizeof(*words); i++) {
		uint64_t kind = next_random() % 16, value = next_random();

		words[i] = kind < 9 ? 0 : kind < 14 ? value % 5 : kind == 14 ? UINT32_MAX - value % 2 : value;
	}
	if (record->type == REC_SAMPLE) {
		((struct rec_sample *)record)->kind = 1 + next_random() % 2;
		((struct rec_sample *)record)->cause = next_random() % (CAUSE__COUNT + 1);
	}
	assert_int_equal(add_record(job, record), 0);
}

static void test_fuzz(void **state)
{
	for (int round = 0; round < 300; round++) {
		struct job *job = job__new();

		add_text(job, 1, "f");
		add_text(job, 2, "a.b.");
		add_text(job, 3, ".");
		add_text(job, 4, "");
		for (int i = 0; i < 200; i++)
			add_random(job);
		assert_true(job__malformed(job) > 0);
		assert_true(samples__cnt(job__samples(job)) > 0);
		print_all(job);
		job__free(job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_sample),
		cmocka_unit_test(test_first_of_an_id_stays),
		cmocka_unit_test(test_calls_are_cumulative),
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_forwards),
		cmocka_unit_test(test_error_bound),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_fuzz),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
