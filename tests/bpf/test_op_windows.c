/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Windows of operators (bpf/op_window.h) and of CUPTI's (bpf/gpu_window.h) by schedule, against what torch.profiler.schedule said of each
 * step: tests/data/torch_schedule.txt, which torch_schedule.py there made.
 */
#include "tests/bpf/native/ops.h"

#define TABLE         "tests/data/torch_schedule.txt"
#define STEPS         30
#define SCHEDULES_MAX 1000

enum { NOTHING, WARMUP, RECORD, RECORD_AND_SAVE }; /* torch.profiler.ProfilerAction */

static struct schedule {
	u64 words[OP_SCHEDULE__COUNT];
	int actions[STEPS];
} schedules[SCHEDULES_MAX];
static size_t schedule_cnt;

static bool schedule__scan(struct schedule *s, const char *line)
{
	unsigned skip_first, wait, warmup, active, repeat;
	int at;

	if (sscanf(line, "%u %u %u %u %u %n", &skip_first, &wait, &warmup, &active, &repeat, &at) != 5)
		return false;
	s->words[OP_SKIP_FIRST] = skip_first;
	s->words[OP_WAIT] = wait;
	s->words[OP_WARMUP] = warmup;
	s->words[OP_ACTIVE] = active;
	s->words[OP_REPEAT] = repeat;
	for (int step = 0; step < STEPS; step++) {
		s->actions[step] = line[at + step] - '0';
		if (s->actions[step] < NOTHING || s->actions[step] > RECORD_AND_SAVE)
			return false;
	}
	return true;
}

static int read_table(void **state)
{
	FILE *file = fopen(TABLE, "r");
	char line[128];
	bool good = file;

	while (good && fgets(line, sizeof(line), file)) {
		good = schedule_cnt < SCHEDULES_MAX && schedule__scan(&schedules[schedule_cnt], line);
		schedule_cnt += good;
	}
	if (file)
		fclose(file);
	if (good && schedule_cnt)
		return 0;
	print_message("no table: run this where " TABLE " is\n");
	return -1;
}

static void set_schedule(const u64 *words)
{
	for (int i = 0; i < OP_SCHEDULE__COUNT; i++)
		native__set_knob(&op_schedule[i], words[i]);
}

static void start(const u64 *schedule)
{
	teardown(NULL);
	ops__start();
	set_schedule(schedule);
	*op_proc = (struct op_proc){.pid = JOB_PID};
}

static void expect_window(u32 index, u64 first, u64 steps, const u64 *boundaries)
{
	const struct rec_op_window *rec = record(REC_OP_WINDOW, index);

	assert_non_null(rec);
	assert_int_equal(rec->pid, JOB_PID);
	assert_int_equal(rec->index, index);
	assert_int_equal(rec->first_step, first);
	assert_int_equal(rec->steps, steps);
	assert_int_equal(rec->start_ns, boundaries[first]);
	assert_int_equal(rec->end_ns, boundaries[first + steps]);
	assert_int_equal(rec->cut, 0);
}

struct gpu_told {
	u32 cnt, windows;
	bool warm;
	u64 start_ns; /* of the window that is open, else 0 */
};

static void expect_gpu(struct gpu_told *told, u64 start_ns, u64 end_ns)
{
	const struct rec_gpu_window *rec = record(REC_GPU_WINDOW, told->cnt++);

	assert_non_null(rec);
	assert_int_equal(rec->pid, JOB_PID);
	assert_int_equal(rec->index, told->windows);
	assert_int_equal(rec->start_ns, start_ns);
	assert_int_equal(rec->end_ns, end_ns);
}

/* Told are the end of a window, the begin of the warm-up, and that of the first step, as torch has them. */
static void check_gpu(struct gpu_told *told, int before, int action, u64 now)
{
	if (before == RECORD_AND_SAVE) {
		expect_gpu(told, told->start_ns, now);
		told->windows++;
		told->start_ns = 0;
		told->warm = false;
	}
	if (action == WARMUP && !told->warm) {
		expect_gpu(told, 0, 0);
		told->warm = true;
	}
	if (action >= RECORD && !told->start_ns) {
		told->start_ns = now;
		expect_gpu(told, now, 0);
	}
	assert_null(record(REC_GPU_WINDOW, told->cnt));
	assert_int_equal(job.proc->gpu.window_ns, told->start_ns);
}

/*
 * Armed before step `armed`: what is recorded is what torch records from there on, in windows that end where torch
 * saves.
 */
static void check_schedule(const struct schedule *s, u64 armed)
{
	u64 boundaries[STEPS], in_window = 0;
	u32 windows = 0;
	struct gpu_told told = {};

	start(s->words);
	native__set_knob(&want_gpu_windows, 1);
	job.proc->gpu_window = job.proc->gpu.warm = 0;
	job.proc->gpu.window_ns = 0;
	for (u64 step = 0; step < STEPS; step++) {
		int before = step ? s->actions[step - 1] : NOTHING, action = s->actions[step];

		wait_ns(100);
		op_proc->armed = step >= armed;
		boundaries[step] = native.now_ns;
		step__schedule(job.proc, JOB_PID, native.now_ns);
		check_gpu(&told, before, action, native.now_ns);
		if (before == RECORD_AND_SAVE && in_window) {
			expect_window(windows, step - in_window, in_window, boundaries);
			windows++;
			in_window = 0;
		}
		in_window += action >= RECORD && step >= armed;
		assert_int_equal(op_proc->open, in_window != 0);
		assert_int_equal(op_proc->boundaries, step + 1);
		op__run(0, 1, FRAME(1));
	}
	assert_null(record(REC_OP_WINDOW, windows));
	assert_int_equal(op_proc->index, windows + (in_window != 0));
	assert_int_equal(op_proc->first_boundary_ns, boundaries[0]);
	assert_int_equal(op_proc->last_boundary_ns, boundaries[STEPS - 1]);
}

static void test_schedules(void **state)
{
	for (size_t n = 0; n < schedule_cnt; n++) {
		const struct schedule *s = &schedules[n];

		for (u64 armed = 0; armed < 12; armed += 1 + n % 5) {
			u64 recorded = 0;

			check_schedule(s, armed);
			for (u64 step = armed; step < STEPS; step++)
				recorded += s->actions[step] >= RECORD;
			assert_int_equal(recorded ? op_val(SPAN_OP, OP_ID(0), 0)->calls : 0, recorded);
		}
	}
}

/* By the landmarks of a job, whose steps end with the optimizer's. */
static void test_steps(void **state)
{
	start((u64[]){[OP_SKIP_FIRST] = 1, [OP_WAIT] = 1, [OP_WARMUP] = 1, [OP_ACTIVE] = 2, [OP_REPEAT] = 1});
	op_proc->armed = 1;
	for (u32 step = 0; step < 10; step++) {
		op__run(2 * step % OP_CNT, 5, FRAME(1));
		label__run(OPTIMIZER_LABEL, 3, FRAME(1));
	}
	/*
	 * what precedes the first boundary is no step: the fourth and fifth behind it are recorded, with the
	 * optimizer's label that ends them
	 */
	assert_int_equal(op_row_cnt(), 2 + 1);
	expect_op(SPAN_OP, OP_ID(8), 0, 1, 5, 5);
	expect_op(SPAN_OP, OP_ID(10), 0, 1, 5, 5);
	expect_op(SPAN_LABEL, utf8_id(OPTIMIZER_LABEL), 0, 2, 6, 6);
	assert_non_null(record(REC_OP_WINDOW, 0));
	assert_null(record(REC_OP_WINDOW, 1));
	assert_int_equal(op_proc->counting, 0);
	assert_int_equal(op_proc->hits, 4);
}

/* Only what is wholly in the window has a row. */
static void test_wholly(void **state)
{
	op__enter(0, FRAME(1)); /* begins before it */
	wait_ns(5);
	op_proc->window_start_ns = native.now_ns;
	op__run(2, 3, FRAME(2));
	label__run("inside", 2, FRAME(2));
	op__exit(FRAME(1));
	op__enter(4, FRAME(1)); /* ends after it */
	op__run(6, 1, FRAME(2));
	op_proc->open = 0;
	op__run(8, 1, FRAME(2));
	op__exit(FRAME(1));
	assert_int_equal(op_row_cnt(), 3);
	expect_op(SPAN_OP, OP_ID(2), 0, 1, 3, 3);
	expect_op(SPAN_LABEL, utf8_id("inside"), 0, 1, 2, 2);
	expect_op(SPAN_OP, OP_ID(6), 0, 1, 1, 1);
	expect_counters(CNT__COUNT);
	assert_int_equal(depth(), 0);
}

/* One with a child that was counted, and itself not: the child is. */
static void test_dup_over_the_edge(void **state)
{
	op__enter(0, FRAME(1));
	op_proc->window_start_ns = ++native.now_ns;
	op__run(0, 3, FRAME(2));
	op__exit(FRAME(1));
	expect_op(SPAN_OP, OP_ID(0), 0, 1, 3, 3);
}

static void test_no_room(void **state)
{
	start((u64[]){[OP_ACTIVE] = 1, [OP_WAIT] = 1, [OP_REPEAT] = 0});
	op_proc->armed = 1;
	native.ring_full = true;
	for (int i = 0; i < 4; i++)
		op_window__boundary(op_proc, ++native.now_ns);
	expect_counters(CNT_RING_FULL, 1, CNT__COUNT);
	assert_int_equal(op_proc->index, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, ops_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(schedules), TEST(steps), TEST(wholly), TEST(dup_over_the_edge), TEST(no_room),
	};

	return cmocka_run_group_tests(tests, read_table, NULL);
}
