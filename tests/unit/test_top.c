// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The live view without a terminal: rows of a job's states, lines of rows, and what keys do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/unit/build_job.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"
#include "user/model/step_times.h"
#include "user/top/lines.h"
#include "user/top/top.h"

#define PID 10
#define S   1000000000ULL
#define MS  1000000ULL

static struct job *job;
static struct top *top;
static struct top_frame frame;
static struct top_state state;
static const struct top_process each[] = {
	{.pid = PID, .comm = "a\033b", .cpu_percent = 1200, .rss_bytes = 1915000000, .threads = 5},
	{.pid = PID + 1, .role = ROLE_WORKER, .comm = "\xff", .cpu_percent = NAN, .rss_bytes = 8700000, .threads = 2},
};
static const struct top_usage usage = {
	.cpu_percent = 150,
	.processes = 2,
	.threads = 7,
	.each = each,
	.rss_bytes = 1923700000,
	.limits = {.memory_bytes = 8000000000, .memory_left_bytes = 4900000000, .cpus = 2.5, .processors = 4},
};

static int set_up(void **unused)
{
	job = job__new();
	top = top__new();
	top_state__init(&state);
	state.utf8 = true;
	add_target(job, PID, ROLE_MAIN, -1);
	add_text(job, 1, "training_step");
	add_text(job, 2, "backward");
	add_text(job, 3, "/a/b/c/train.py");
	add_text(job, 4, "Model.forward");
	add_text(job, 5, "helper");
	return 0;
}

static int tear_down(void **unused)
{
	top_frame__release(&frame);
	top__free(top);
	job__free(job);
	return 0;
}

static void update(void)
{
	top_frame__release(&frame);
	assert_int_equal(top__update(top, job, &usage, &frame), 0);
	job__forget_samples(job);
}

static void action(__u32 pid, __u64 name, enum span_kind kind, __u64 calls, __u64 total_ns)
{
	assert_int_equal(add_agg(job, (struct agg_key){.pid = pid, .kind = kind, .name = name},
				 (struct agg_val){.calls = calls, .total_ns = total_ns, .first_ns = name}),
			 0);
}

static const struct top_row *row(enum top_view view, const char *name)
{
	const struct top_row *rows = frame.rows[view].items;

	for (size_t i = 0; i < frame.rows[view].cnt; i++)
		if (!strcmp(rows[i].name, name))
			return &rows[i];
	return NULL;
}

static void expect(const struct top_row *r, int column, double value)
{
	assert_non_null(r);
	assert_true(fabs(r->values[column] - value) < 1e-6 * (1 + fabs(value)));
}

/* ---- actions ---- */

static void test_actions(void **unused)
{
	const struct top_row *r;

	add_window(job, 1 * S, 3 * S, 4, STEP_OPTIMIZER);
	action(PID, 1, SPAN_LABEL, 4, 1 * S);
	update();
	r = row(TOP_ACTIONS, "training_step");
	expect(r, 0, 2);   /* calls/s */
	expect(r, 1, 250); /* ms */
	expect(r, 2, 50);
	expect(r, 3, 50);
	expect(r, 4, 4);
	assert_true(fabs(frame.steps_per_s - 2) < 1e-9);

	/* nothing of it in the next two seconds, but another */
	add_window(job, 1 * S, 5 * S, 5, STEP_OPTIMIZER);
	action(PID, 2, SPAN_BACKWARD, 1, 100 * MS);
	update();
	r = row(TOP_ACTIONS, "training_step");
	expect(r, 0, 0);
	assert_true(isnan(r->values[1]));
	expect(r, 2, 0);
	expect(r, 3, 25);
	expect(row(TOP_ACTIONS, "backward"), 2, 5);
	assert_true(fabs(frame.steps_per_s - 0.5) < 1e-9);
}

static void test_processes_are_added(void **unused)
{
	add_target(job, PID + 1, ROLE_MAIN, 1);
	add_target(job, PID + 2, ROLE_WORKER, -1);
	add_window(job, 0, 2 * S, 0, STEP_NONE);
	for (int i = 0; i < 3; i++)
		action(PID + i, 1, SPAN_LABEL, 1, 500 * MS);
	update();
	assert_int_equal(frame.rows[TOP_ACTIONS].cnt, 1);
	expect(row(TOP_ACTIONS, "training_step"), 4, 2); /* not the worker's */
	expect(row(TOP_ACTIONS, "training_step"), 2, 50);
}

static void test_reset(void **unused)
{
	const struct top_row *r;

	add_window(job, 0, 2 * S, 0, STEP_NONE);
	action(PID, 1, SPAN_LABEL, 4, 1 * S);
	update();
	top__reset(top);
	add_window(job, 0, 4 * S, 0, STEP_NONE);
	action(PID, 1, SPAN_LABEL, 5, 1 * S + 200 * MS);
	update();
	r = row(TOP_ACTIONS, "training_step");
	expect(r, 3, 10);
	expect(r, 4, 1);
	add_window(job, 0, 6 * S, 0, STEP_NONE);
	update();
	expect(row(TOP_ACTIONS, "training_step"), 2, 0);
	expect(row(TOP_ACTIONS, "training_step"), 3, 5);
}

/* ---- samples ---- */

static void add_code(__u64 id, __u64 name, __u32 line)
{
	struct rec_code code = {.hdr = {.type = REC_CODE, .size = sizeof(code)}, .id = id, .file = 3, .name = name};

	code.first_line = line;
	assert_int_equal(add_copy(job, &code), 0);
}

/* The innermost function first. */
static void add_stack(__u64 id, __u64 inner, __u64 middle, __u64 outer)
{
	const struct stack_frame frames[] = {{.code = inner}, {.code = middle}, {.code = outer}};
	struct rec_stack stack = {.hdr.type = REC_STACK, .id = id, .frame_cnt = 3};

	assert_int_equal(add_with_array(job, &stack.hdr, sizeof(stack), frames, sizeof(frames)), 0);
}

static void add_sample(__u32 tid, enum sample_kind kind, __u8 cause, __u64 stack, __u64 weight_ns)
{
	struct rec_sample rec = {.hdr = {.type = REC_SAMPLE, .size = sizeof(rec)}, .pid = PID, .tid = tid};

	rec.kind = kind;
	rec.cause = cause;
	rec.stack = stack;
	rec.weight_ns = weight_ns;
	rec.syscall = -1;
	assert_int_equal(add_copy(job, &rec), 0);
}

static void add_stacks(void)
{
	add_code(100, 4, 12);
	add_code(101, 5, 40);
	add_stack(200, 101, 100, 100); /* helper in forward in forward */
}

static void test_functions(void **unused)
{
	const struct top_row *r;

	add_stacks();
	add_window(job, 0, 1 * S, 0, STEP_NONE);
	add_sample(PID, SAMPLE_CPU, CAUSE_NONE, 200, 100 * MS);
	add_sample(PID, SAMPLE_WAIT, CAUSE_LOCK, 200, 300 * MS);
	add_sample(PID + 1, SAMPLE_CPU, CAUSE_NONE, 0, 50 * MS);
	update();
	r = row(TOP_FUNCTIONS, "Model.forward (c/train.py:12)");
	expect(r, 0, 0);
	expect(r, 1, 10); /* recursion counts once */
	expect(r, 2, 30);
	r = row(TOP_FUNCTIONS, "helper (c/train.py:40)");
	expect(r, 0, 10);
	expect(r, 3, 0.1);
	expect(row(TOP_FUNCTIONS, "(no Python frame)"), 0, 5);

	add_window(job, 0, 2 * S, 0, STEP_NONE);
	update();
	r = row(TOP_FUNCTIONS, "helper (c/train.py:40)");
	expect(r, 0, 0);
	expect(r, 3, 0.1);
	top__reset(top);
	add_window(job, 0, 3 * S, 0, STEP_NONE);
	update();
	assert_int_equal(frame.rows[TOP_FUNCTIONS].cnt, 0);
}

static void test_waits_and_threads(void **unused)
{
	const struct top_row *r;

	add_window(job, 0, 2 * S, 0, STEP_NONE);
	add_sample(PID, SAMPLE_CPU, CAUSE_NONE, 0, 500 * MS);
	add_sample(PID, SAMPLE_WAIT, CAUSE_GIL, 0, 1 * S);
	add_sample(PID, SAMPLE_WAIT, CAUSE_RUN_QUEUE, 0, 100 * MS);
	add_sample(PID + 1, SAMPLE_WAIT, CAUSE_GIL, 0, 2 * S);
	update();
	r = row(TOP_WAITS, "gil");
	expect(r, 0, 500);  /* ms/s of main threads */
	expect(r, 1, 1500); /* of all */
	expect(r, 3, 3);
	expect(row(TOP_WAITS, "(on the CPU)"), 0, 250);
	r = row(TOP_THREADS, "10/10: gil 50 %");
	expect(r, 0, 25);
	expect(r, 1, 5);
	expect(r, 2, 50);
	assert_non_null(row(TOP_THREADS, "10/11: gil 100 %"));
	update(); /* a second one at the same time: nothing is known of no time */
	assert_true(isnan(row(TOP_WAITS, "gil")->values[0]));
}

/* The model keeps no sample, thread or stack that it is told to forget; what was counted stays. */
static void test_forget(void **unused)
{
	add_stacks();
	add_window(job, 0, 1 * S, 0, STEP_NONE);
	add_sample(PID, SAMPLE_CPU, CAUSE_NONE, 200, 100 * MS);
	update();
	assert_int_equal(samples__cnt(job__samples(job)), 0);
	assert_int_equal(samples__thread_end(job__samples(job)), 1);
	job__forget_stacks(job);
	assert_int_equal(stacks__stack_end(job__stacks(job)), 1);
	add_stack(201, 101, 101, 101);
	add_sample(PID, SAMPLE_CPU, CAUSE_NONE, 201, 100 * MS);
	add_sample(PID, SAMPLE_CPU, CAUSE_NONE, 200, 100 * MS); /* whose stack is not known any more */
	add_window(job, 0, 2 * S, 0, STEP_NONE);
	update();
	expect(row(TOP_FUNCTIONS, "helper (c/train.py:40)"), 3, 0.2);
	expect(row(TOP_FUNCTIONS, "(no Python frame)"), 0, 10);
}

/* ---- steps ---- */

static void step(__u32 pid, __u64 index, __u64 time_ns, enum step_rule rule)
{
	struct rec_step rec = {.hdr = {.type = REC_STEP, .size = sizeof(rec)}, .pid = pid, .index = index};

	rec.time_ns = time_ns;
	rec.rule = rule;
	assert_int_equal(top__step(top, &rec), 0);
}

static void test_steps(void **unused)
{
	const struct top_row *r;

	add_window(job, 0, 10 * S, 0, STEP_NONE);
	for (int i = 0; i <= 20; i++)
		step(PID, i, S + 100 * MS * i + (i == 20) * 900 * MS, STEP_OPTIMIZER);
	step(PID, 22, 5 * S, STEP_OPTIMIZER); /* one was lost */
	update();
	r = row(TOP_STEPS, "pid 10");
	expect(r, 0, 22);
	expect(r, 1, 2.2);
	expect(r, 2, 1000);
	expect(r, 3, (19 * 100 + 1000) / 20.0);
	expect(r, 4, 100);
	expect(r, 5, 100);
	expect(r, 6, 1000);
	assert_int_equal(r->history->cnt, 20);
	assert_true(r->history->ms[19] == 1000);

	step(PID, 1, 6 * S, STEP_LIGHTNING); /* a better rule */
	step(PID, 2, 7 * S, STEP_LIGHTNING);
	add_window(job, 0, 11 * S, 0, STEP_NONE);
	update();
	expect(row(TOP_STEPS, "pid 10"), 2, 1000);
	expect(row(TOP_STEPS, "pid 10"), 1, 1);
}

/* Only the last of them are kept, and of so many processes. */
static void test_steps_are_bounded(void **unused)
{
	for (int i = 0; i < 3 * STEP_TIMES_KEPT; i++)
		step(PID, i, (i < 2 * STEP_TIMES_KEPT ? 100 : 1000) * MS + i * MS, STEP_OPTIMIZER);
	for (int i = 0; i < 2 * STEP_TIMES_PROCESSES; i++)
		step(1000 + i, 1, S, STEP_OPTIMIZER);
	add_window(job, 0, 1 * S, 0, STEP_NONE);
	update();
	expect(row(TOP_STEPS, "pid 10"), 4, 1);
	assert_int_equal(frame.rows[TOP_STEPS].cnt, STEP_TIMES_PROCESSES);
	assert_int_equal(row(TOP_STEPS, "pid 10")->history->cnt, TOP_HISTORY);
}

/* ---- lines and keys ---- */

static struct array lines;

static const char *line(size_t i)
{
	return i < lines.cnt ? ((struct top_line *)lines.items)[i].text : "";
}

static void draw(void)
{
	top_lines__release(&lines);
	assert_int_equal(top_lines__screen(&frame, &state, &lines), 0);
}

static void press(const char *keys)
{
	for (; *keys; keys++)
		assert_int_equal(top_state__key(&state, *keys), TOP_GO_ON);
	draw();
}

static void many_actions(void)
{
	char name[32];

	add_window(job, 0, 1 * S, 0, STEP_NONE);
	for (int i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "action %02d", i);
		add_text(job, 1000 + i, name);
		action(PID, 1000 + i, SPAN_LABEL, 100 - i, i * MS);
	}
	update();
	state.width = 80;
	state.height = 24;
	draw();
}

static void test_screen(void **unused)
{
	many_actions();
	assert_int_equal(lines.cnt, 24);
	for (size_t i = 0; i < lines.cnt; i++)
		assert_true(strlen(line(i)) <= 80);
	assert_string_equal(line(0), "stepflame top  pid 10  Python 3.11.2  torch 2.6.0  ");
	assert_non_null(strstr(line(1), "CPU 150 %  0 steps"));
	assert_string_equal(line(2), "memory 1.92 GB in 2 processes, 7 threads  limits 3.10 of 8.00 GB, 2.5 CPUs");
	assert_non_null(strstr(line(7), "action 49"));
	assert_non_null(strstr(line(22), "action 34"));
	assert_int_equal(top_state__key(&state, TOP_KEY_PAGE_DOWN), TOP_GO_ON);
	draw();
	assert_non_null(strstr(line(7), "action 34"));
	assert_int_equal(top_state__key(&state, TOP_KEY_END), TOP_GO_ON);
	draw();
	assert_int_equal(state.scroll, 50 - 16);
	assert_non_null(strstr(line(22), "action 00"));
	state.height = 5; /* too low for anything but the header */
	draw();
	top_lines__release(&lines);
}

static void test_keys(void **unused)
{
	many_actions();
	press("s"); /* total %, */
	press("s"); /* calls */
	assert_non_null(strstr(line(5), "by calls"));
	assert_non_null(strstr(line(7), "action 00"));
	press("s"); /* name */
	assert_non_null(strstr(line(7), "action 00"));
	press("<<<");
	assert_non_null(strstr(line(7), "action 49"));
	press("/ON 4");
	assert_non_null(strstr(line(5), "/ON 4_"));
	assert_non_null(strstr(line(16), "action 40"));
	assert_string_equal(line(17), "");
	press("\177\177\177\177\177z\n");
	assert_string_equal(line(7), "no row has that text");
	press("\033");
	assert_non_null(strstr(line(7), "action 49"));
	press("p");
	assert_true(state.paused && strstr(line(5), "PAUSED"));
	press(" ");
	assert_false(state.paused);
	press("6");
	assert_int_equal(state.view, TOP_PROCESSES);
	assert_string_equal(line(7), "   1200    1915       5 10 main a\\x1bb");
	press("\t");
	assert_int_equal(state.view, TOP_ACTIONS);
	press("h");
	assert_non_null(strstr(line(0), "quit"));
	press("x");
	assert_false(state.help);
	assert_int_equal(top_state__key(&state, 'r'), TOP_RESET);
	assert_int_equal(top_state__key(&state, 'q'), TOP_QUIT);
	top_lines__release(&lines);
}

/* What a job puts into a name does not reach the terminal. */
static void test_names(void **unused)
{
	add_text(job, 6, "evil\033[2J \xe2\x80\xae name");
	add_text(job, 7, "[LightningModule]ShapeNetWithALongName.configure_gradient_clipping");
	add_text(job, 8, "\xce\xbb");
	add_window(job, 0, 1 * S, 0, STEP_NONE);
	for (int i = 6; i < 9; i++)
		action(PID, i, SPAN_LABEL, 1, (10 - i) * MS);
	update();
	assert_int_equal(top_lines__batch(&frame, &state, 0, &lines), 0);
	assert_non_null(strstr(line(7), "evil\\x1b[2J \\u202e name"));
	assert_non_null(strstr(line(8), "[LightningModule]ShapeNetWithALongName.configure_gradient_clipping"));
	assert_non_null(strstr(line(9), " \xce\xbb"));
	state.width = 80;
	state.height = 24;
	state.utf8 = false;
	draw();
	assert_int_equal(strlen(line(8)), 80);
	assert_non_null(strstr(line(8), "[LightningModule]Sh..e_gradient_clipping"));
	assert_non_null(strstr(line(9), " ?"));
	top_lines__release(&lines);
}

/* Each line is JSON, whatever bytes the job has in its names. */
static void test_json(void **unused)
{
	const struct top_row *r;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	json_t *json;

	update();
	r = row(TOP_PROCESSES, "11 worker \xff");
	assert_true(r && isnan(r->values[0]));
	expect(r, 1, 8.7);
	assert_int_equal(top_lines__json(&frame, TOP_PROCESSES, 0, out), 0);
	fclose(out);
	json = json_loads(text, 0, NULL);
	assert_non_null(json);
	assert_int_equal(json_integer_value(json_object_get(json, "rss_bytes")), 1923700000);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "limits"), "memory_left_bytes")),
			 4900000000);
	assert_int_equal(json_array_size(json_object_get(json, "processes")), 2);
	json_decref(json);
	free(text);
}

static void test_batch_of_nothing(void **unused)
{
	update();
	state.view = TOP__VIEWS;
	assert_int_equal(top_lines__batch(&frame, &state, 20, &lines), 0);
	assert_true(lines.cnt > TOP__VIEWS);
	state.view = TOP_ACTIONS;
	draw();
	top_lines__release(&lines);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_actions),
		TEST(test_processes_are_added),
		TEST(test_reset),
		TEST(test_functions),
		TEST(test_waits_and_threads),
		TEST(test_forget),
		TEST(test_steps),
		TEST(test_steps_are_bounded),
		TEST(test_screen),
		TEST(test_keys),
		TEST(test_names),
		TEST(test_json),
		TEST(test_batch_of_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
