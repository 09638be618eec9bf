/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sampler (bpf/samples.bpf.c): what the timer and the scheduler's events of a process's threads become, to the nanosecond. What a
 * wait is for is test_wait_causes.c's, windows are test_sample_windows.c's, what the threads' Python stacks are is test_pystack.c's.
 */
#include <math.h>

#include "tests/bpf/native/sampler.h"

/* ---- the timer ---- */

static void test_timer(void **state)
{
	const struct rec_sample *rec;
	struct seen seen;

	(void)state;
	job.proc->steps.cnt = 7;
	native.task = &job.thread;
	timer(USER_CS, USER_IP);
	rec = next_sample();
	assert_int_equal(rec->kind, SAMPLE_CPU);
	assert_int_equal(rec->time_ns, 1000);
	assert_int_equal(rec->weight_ns, PERIOD);
	assert_int_equal(rec->tid, JOB_PID + 1);
	assert_int_equal(rec->step, 7);
	assert_int_equal(rec->path, 0);
	assert_int_equal(rec->native, USER_IP);
	assert_int_equal(rec->kernel, 0);
	assert_int_equal(rec->syscall, -1);
	assert_int_equal(rec->cause, CAUSE_NONE);
	assert_int_equal(rec->waits, 0);
	seen = seen__read();
	assert_int_equal(seen__stack(&seen, rec->stack).cnt, 1);
	seen__free(&seen);
	/* in the kernel: for a system call, and for a page */
	cpu.user = in_call(SYS_READ, 0, 0, 0);
	timer(KERNEL_CS, KERNEL_IP);
	rec = next_sample();
	assert_int_equal(rec->native, NATIVE_IP);
	assert_int_equal(rec->kernel, KERNEL_IP);
	assert_int_equal(rec->syscall, SYS_READ);
	cpu.user = in_user();
	timer(KERNEL_CS, KERNEL_IP);
	rec = next_sample();
	assert_int_equal(rec->kernel, KERNEL_IP);
	assert_int_equal(rec->syscall, -1);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* Each sample stands for its period; the first of a new period also for half of the one that was cut off. */
static void test_weights(void **state)
{
	struct timer_period *period = bpf_map_lookup_elem(&timer_periods, &(u32){0});

	(void)state;
	timer(USER_CS, USER_IP);
	assert_int_equal(next_sample()->weight_ns, PERIOD);
	wait_ns(100 * PERIOD); /* the CPU was idle */
	timer(USER_CS, USER_IP);
	assert_int_equal(next_sample()->weight_ns, PERIOD);
	*period = (struct timer_period){bpf_ktime_get_ns(), 2 * PERIOD, PERIOD};
	wait_ns(2 * PERIOD);
	timer(USER_CS, USER_IP);
	assert_int_equal(next_sample()->weight_ns, 2 * PERIOD + PERIOD / 2);
	wait_ns(2 * PERIOD);
	timer(USER_CS, USER_IP);
	assert_int_equal(next_sample()->weight_ns, 2 * PERIOD);
	expect_no_more();
}

/* The spans that are open: told once, by their ids. */
static void test_paths(void **state)
{
	u64 gen = action__new("fit"), path;
	const struct rec_path *rec;

	(void)state;
	action__next(gen, STACK);
	fn__enter(FN_FIRST, FRAME(1));
	for (int i = 0; i < 3; i++)
		timer(USER_CS, USER_IP);
	path = next_sample()->path;
	assert_int_equal(next_sample()->path, path);
	assert_int_equal(next_sample()->path, path);
	assert_int_equal(records(REC_PATH), 1);
	rec = record(REC_PATH, 0);
	assert_int_equal(rec->id, path);
	assert_int_equal(rec->span_cnt, 2);
	assert_int_equal(rec->spans[0].name, latin_id("fit"));
	assert_int_equal(rec->spans[0].kind, SPAN_ACTION);
	assert_int_equal(rec->spans[1].name, FN_ID(FN_FIRST));
	assert_int_equal(rec->spans[1].kind, SPAN_USER);
	/* a wait's, too */
	wait_for(THRESHOLD, 0);
	assert_int_equal(next_sample()->path, path);
	fn__exit(FN_FIRST, FRAME(1));
	timer(USER_CS, USER_IP);
	assert_true(next_sample()->path != path);
	action__next(gen, STACK);
	timer(USER_CS, USER_IP);
	assert_int_equal(next_sample()->path, 0);
	expect_counters(CNT__COUNT);
}

/* ---- what is around a span ---- */

static void action__run(const char *name, u32 samples, u32 instr)
{
	u64 gen = action__new(name);

	action__next(gen, STACK);
	for (u32 i = 0; i < samples; i++)
		timer(USER_CS, USER_IP);
	fakepy__set_instr(&job.py, cpu.frame, cpu.function, instr);
	action__next(gen, STACK);
}

/* Of those that end with a sample in them, and each stack once. */
static void test_around(void **state)
{
	const struct rec_around *rec;
	struct seen seen;
	u64 stack;

	(void)state;
	action__run("fit", 0, 2);
	assert_int_equal(records(REC_AROUND), 0);
	action__run("fit", 3, 2);
	assert_int_equal(records(REC_AROUND), 1);
	rec = record(REC_AROUND, 0);
	assert_int_equal(rec->hdr.size, sizeof(*rec));
	assert_int_equal(rec->name, latin_id("fit"));
	assert_int_equal(rec->kind, SPAN_ACTION);
	assert_int_equal(rec->nested, 0);
	stack = rec->stack;                            /* the ring may move */
	assert_int_equal(stack, next_sample()->stack); /* of the same instruction */
	seen = seen__read();
	assert_int_equal(seen__stack(&seen, stack).cnt, 1);
	seen__free(&seen);
	action__run("fit", 1, 2);
	assert_int_equal(records(REC_AROUND), 1);
	action__run("fit", 1, 4); /* from another place */
	assert_int_equal(records(REC_AROUND), 2);
	assert_true(((const struct rec_around *)record(REC_AROUND, 1))->stack != stack);
	assert_int_equal(around_cnt, 0);
	expect_counters(CNT__COUNT);
}

/* One within another of its name; and a wait is a sample, too. */
static void test_around_nested(void **state)
{
	u64 outer = action__new("fit"), inner = action__new("fit");
	const struct rec_around *rec;

	(void)state;
	action__next(outer, STACK);
	action__next(inner, STACK);
	wait_for(THRESHOLD, 0);
	action__next(inner, STACK);
	action__next(outer, STACK);
	assert_int_equal(records(REC_AROUND), 2);
	rec = record(REC_AROUND, 0);
	assert_int_equal(rec->nested, 1);
	rec = record(REC_AROUND, 1);
	assert_int_equal(rec->nested, 0);
	assert_int_equal(rec->name, latin_id("fit"));
	expect_counters(CNT__COUNT);
}

/* Of a path no more are asked for than that, whatever comes. */
static void test_around_is_bounded(void **state)
{
	(void)state;
	for (u32 i = 0; i < 3 * AROUND_REQUESTS; i++)
		action__run("fit", 2, 2 + 2 * i);
	assert_int_equal(records(REC_AROUND), AROUND_REQUESTS);
	expect_counters(CNT__COUNT);
}

/* ---- waits ---- */

static void test_wait(void **state)
{
	const struct rec_sample *rec;

	(void)state;
	cpu.user = in_call(SYS_CLOCK_NANOSLEEP, 0, 0, 0);
	wait_ns(500);
	away();
	wait_ns(5 * THRESHOLD);
	sample_waking(&job.task);
	wait_ns(10);
	sample_waking(&job.task); /* the first counts */
	wait_ns(3 * THRESHOLD);
	back();
	rec = expect_wait(CAUSE_SLEEP, 5 * THRESHOLD, 1);
	assert_int_equal(rec->time_ns, 1500 + 5 * THRESHOLD);
	assert_int_equal(rec->syscall, SYS_CLOCK_NANOSLEEP);
	assert_int_equal(rec->native, NATIVE_IP);
	assert_true(rec->stack != 0);
	assert_int_equal(rec->waker_pid, 0); /* none of the job's ran then */
	rec = expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD + 10, 1);
	assert_int_equal(rec->time_ns, 1510 + 8 * THRESHOLD);
	assert_int_equal(rec->syscall, SYS_CLOCK_NANOSLEEP);
	/* run at once */
	wait_for(THRESHOLD, 0);
	expect_wait(CAUSE_SLEEP, THRESHOLD, 1);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* Others run: it did not block, whatever it was in. */
static void test_preempted(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	preempt_by(&cpu.other);
	wait_ns(THRESHOLD);
	back();
	expect_wait(CAUSE_RUN_QUEUE, THRESHOLD, 1);
	/* preempted on its way to sleep */
	(walks_at_end ? sample_switch_later : sample_switch)(true, &job.task, &cpu.other, SLEEPS);
	native.task = &cpu.other;
	wait_ns(THRESHOLD + 1);
	back();
	expect_wait(CAUSE_RUN_QUEUE, THRESHOLD + 1, 1);
	/* it gave way */
	switch_to(&cpu.other, RUNNABLE);
	wait_ns(THRESHOLD + 2);
	back();
	expect_wait(CAUSE_RUN_QUEUE, THRESHOLD + 2, 1);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* The kernel does not tell that it comes: known by how long it ran, as it leaves again. */
static void test_unseen(void **state)
{
	const struct rec_sample *rec;

	(void)state;
	cpu.user = in_call(SYS_POLL, 0, 1, 0);
	job.task.se.sum_exec_runtime = 1000000;
	away();
	wait_ns(5 * THRESHOLD);
	sample_waking(&job.task);
	wait_ns(2 * THRESHOLD);
	native.task = &job.task;
	wait_ns(700);
	job.task.se.sum_exec_runtime += 700;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	away();
	rec = expect_wait(CAUSE_POLL, 5 * THRESHOLD, 1);
	assert_int_equal(rec->syscall, SYS_POLL);
	assert_int_equal(expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1)->time_ns, native.now_ns - 700);
	/* the one that has begun now is as any other */
	wait_ns(THRESHOLD);
	back();
	expect_wait(CAUSE_LOCK, THRESHOLD, 1);
	/* preempted; more than it can have run: it was not away */
	preempt_by(&cpu.other);
	wait_ns(3 * THRESHOLD);
	native.task = &job.task;
	wait_ns(100);
	job.task.se.sum_exec_runtime += 100;
	preempt_by(&cpu.other);
	expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD, 1);
	wait_ns(THRESHOLD);
	native.task = &job.task;
	job.task.se.sum_exec_runtime += 2 * THRESHOLD;
	away();
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* The spans of such a wait are those around it, not those that began behind it. */
static void test_unseen_paths(void **state)
{
	u64 gen = action__new("fit"), path;

	(void)state;
	action__next(gen, STACK);
	timer(USER_CS, USER_IP);
	path = next_sample()->path;
	cpu.user = in_call(SYS_CLOCK_NANOSLEEP, 0, 0, 0);
	job.task.se.sum_exec_runtime = 1000000;
	away();
	wait_ns(THRESHOLD);
	native.task = &job.task;
	wait_ns(300);
	fn__enter(FN_FIRST, FRAME(1));
	wait_ns(400);
	job.task.se.sum_exec_runtime += 700;
	away();
	assert_int_equal(expect_wait(CAUSE_SLEEP, THRESHOLD, 1)->path, path);
	wait_ns(THRESHOLD);
	back();
	assert_true(expect_wait(CAUSE_SLEEP, THRESHOLD, 1)->path != path);
	fn__exit(FN_FIRST, FRAME(1));
	action__next(gen, STACK);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* Who had the CPU: the last one that did, or the one that took it where another CPU was idle. */
static void test_who_ran(void **state)
{
	struct task_struct third = {.tgid = 4711, .pid = 4711, .se.sum_exec_runtime = 100 * THRESHOLD}, idle = {0};
	const struct rec_sample *rec;

	(void)state;
	job.thread.se.sum_exec_runtime = 100 * THRESHOLD;
	cpu.user = in_call(SYS_CLOCK_NANOSLEEP, 0, 0, 0);
	preempt_by(&cpu.other);
	wait_ns(THRESHOLD);
	switch_to(&third, SLEEPS);
	wait_ns(THRESHOLD);
	back();
	assert_int_equal(expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1)->ran_pid, 4711);
	preempt_by(&third);
	wait_ns(THRESHOLD);
	switch_to(&idle, SLEEPS);
	wait_ns(1);
	back();
	assert_int_equal(expect_wait(CAUSE_RUN_QUEUE, THRESHOLD + 1, 1)->ran_pid, 4711);
	/* one that it has waited for, and then for a CPU */
	switch_to(&third, SLEEPS);
	wait_ns(THRESHOLD);
	sample_waking(&job.task);
	switch_to(&job.thread, SLEEPS);
	wait_ns(THRESHOLD);
	back();
	assert_int_equal(expect_wait(CAUSE_SLEEP, THRESHOLD, 1)->ran_pid, 0);
	rec = expect_wait(CAUSE_RUN_QUEUE, THRESHOLD, 1);
	assert_int_equal(rec->ran_pid, JOB_PID);
	/* nobody: its CPU was idle */
	switch_to(&idle, SLEEPS);
	wait_ns(THRESHOLD);
	sample_waking(&job.task);
	wait_ns(THRESHOLD);
	back();
	expect_wait(CAUSE_SLEEP, THRESHOLD, 1);
	assert_int_equal(expect_wait(CAUSE_RUN_QUEUE, THRESHOLD, 1)->ran_pid, 0);
	expect_no_more();
}

/* One that has the CPU for a moment at the end of each second wait, and another one that has it for all of the others. */
static void test_who_ran_for_moments(void **state)
{
	struct task_struct brief = {.tgid = 4711, .pid = 4711, .se.sum_exec_runtime = THRESHOLD / 1000};
	struct task_struct busy = {.tgid = 4712, .pid = 4712, .se.sum_exec_runtime = THRESHOLD};
	int moments = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		struct task_struct *last = i % 2 ? &brief : &busy;

		preempt_by(&cpu.other);
		wait_ns(THRESHOLD);
		switch_to(last, SLEEPS);
		back();
		moments += expect_wait(CAUSE_RUN_QUEUE, THRESHOLD, 1)->ran_pid == 4711;
	}
	assert_in_range(moments, 0, 20);
	expect_no_more();
}

/* Two threads in turn on one CPU. */
static void test_threads(void **state)
{
	const struct rec_sample *rec;

	(void)state;
	switch_to(&job.thread, SLEEPS);
	wait_ns(2 * THRESHOLD);
	sample_waking(&job.task);
	switch_to(&job.task, SLEEPS);
	rec = expect_wait(CAUSE_UNKNOWN, 2 * THRESHOLD, 1);
	assert_int_equal(rec->tid, JOB_PID);
	assert_int_equal(rec->waker_pid, JOB_PID);
	assert_int_equal(rec->waker_tid, JOB_PID + 1);
	wait_ns(3 * THRESHOLD);
	sample_waking(&job.thread);
	switch_to(&job.thread, SLEEPS);
	assert_int_equal(expect_wait(CAUSE_UNKNOWN, 3 * THRESHOLD, 1)->tid, JOB_PID + 1);
	expect_no_more();
}

/* Short waits: their sum is in the samples, less those of them that have none yet. */
static void test_short_waits(void **state)
{
	struct {
		u64 ns, cnt;
	} sent[CAUSE__COUNT] = {0}, in[CAUSE__COUNT] = {0};
	const struct wait *w;

	(void)state;
	seed = environment("STEPFLAME_SEED", 1);
	cpu.user = in_call(SYS_CLOCK_NANOSLEEP, 0, 0, 0);
	for (int i = 0; i < 5000; i++) {
		u64 blocked = random_below(i % 100 ? 30000 : 300000), queued = random_below(i % 3 ? 2000 : 20000);

		wait_for(blocked, queued);
		in[CAUSE_SLEEP].ns += blocked;
		in[CAUSE_SLEEP].cnt += blocked > 0;
		in[CAUSE_RUN_QUEUE].ns += queued;
		in[CAUSE_RUN_QUEUE].cnt += queued > 0;
		wait_ns(random_below(1000));
	}
	while (record(REC_SAMPLE, cpu.read)) {
		const struct rec_sample *rec = next_sample();

		assert_true(rec->waits > 1 || rec->weight_ns > 0);
		sent[rec->cause].ns += rec->weight_ns;
		sent[rec->cause].cnt += rec->waits - (rec->waits > 1);
	}
	w = bpf_task_storage_get(&waits, &job.task, NULL, 0);
	assert_true(w->blocked.ns < 20 * THRESHOLD && w->queued.ns < 20 * THRESHOLD);
	assert_int_equal(sent[CAUSE_SLEEP].ns + w->blocked.ns, in[CAUSE_SLEEP].ns);
	assert_int_equal(sent[CAUSE_SLEEP].cnt + w->blocked.cnt, in[CAUSE_SLEEP].cnt);
	assert_int_equal(sent[CAUSE_RUN_QUEUE].ns + w->queued.ns, in[CAUSE_RUN_QUEUE].ns);
	assert_int_equal(sent[CAUSE_RUN_QUEUE].cnt + w->queued.cnt, in[CAUSE_RUN_QUEUE].cnt);
	expect_counters(CNT__COUNT);
}

static void set_line(u32 line)
{
	fakepy__set_instr(&job.py, cpu.frame, cpu.function, line);
}

/* What came since, by its stack. */
static void add_samples(const u64 stacks[2], u64 got[2])
{
	while (record(REC_SAMPLE, cpu.read)) {
		const struct rec_sample *rec = next_sample();

		assert_true(rec->stack == stacks[0] || rec->stack == stacks[1]);
		got[rec->stack == stacks[1]] += rec->weight_ns;
	}
	native__empty_ring();
	cpu.read = 0;
}

/*
 * Waits at two places in turn, blocked for these times and then queued for as long: to each place goes as much as it has
 * waited, but for four standard deviations of what chance leaves.
 */
static void share_waits(const u64 ns[2], double unit_ns)
{
	enum { ROUNDS = 20000 };
	double all = 2.0 * ROUNDS * (ns[0] + ns[1]);
	u64 stacks[2], got[2] = {0};

	for (u32 i = 0; i < 2; i++) {
		set_line(2 + 4 * i);
		timer(USER_CS, USER_IP);
		stacks[i] = next_sample()->stack;
	}
	for (u32 i = 0; i < 2 * ROUNDS; i++) {
		set_line(2 + 4 * (i % 2));
		wait_for(ns[i % 2], ns[i % 2]);
		add_samples(stacks, got);
	}
	waits__flush(&job.task);
	add_samples(stacks, got);
	assert_true(got[0] + got[1] <= all && got[0] + got[1] > 0.99 * all);
	for (u32 i = 0; i < 2; i++) {
		double truth = 2.0 * ROUNDS * ns[i], error = 4 * sqrt(all * unit_ns);

		assert_true(fabs(got[i] - truth) < error);
	}
	expect_counters(CNT__COUNT);
}

static void test_short_waits_by_place(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	share_waits((u64[]){60000, 50000}, THRESHOLD); /* a rhythm of two waits a threshold */
}

static void test_short_waits_unlike(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	share_waits((u64[]){99000, 3000}, THRESHOLD);
}

/* Where a step takes long, a sample stands for more of them. */
static void test_short_waits_of_long_steps(void **state)
{
	static const u64 units[][2] = {
		{0, THRESHOLD},
		{16 * THRESHOLD, THRESHOLD},
		{4 * SHORT_OF_STEP * THRESHOLD, 4 * THRESHOLD},
		{1000000000, SHORT_MAX_NS},
	};

	struct wait *w;

	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	for (u32 i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		u64 cnt = 0, waited = 20000 * 30000ull, expected = waited / units[i][1];

		job.proc->steps.usual_ns = units[i][0];
		for (int wait = 0; wait < 20000; wait++) {
			wait_for(30000, 0);
			cnt += record(REC_SAMPLE, cpu.read) != NULL;
			native__empty_ring();
			cpu.read = 0;
		}
		assert_true(fabs((double)cnt - expected) < 5 * sqrt(expected));
		w = bpf_task_storage_get(&waits, &job.task, NULL, 0);
		w->blocked = w->queued = (struct wait_sum){0};
		share_waits((u64[]){60000, 20000}, units[i][1]);
	}
}

/* ---- waits for the GIL: one in some has its stack taken ---- */

static void gil_setup(void)
{
	job.proc->py.gil_address = 0x7f0000010000ULL;
	job.proc->py.gil_bytes = 208;
	cpu.user = in_call(SYS_FUTEX, 0x7f0000010000ULL, 0, 0);
}

static void test_gil_by_place(void **state)
{
	(void)state;
	gil_setup();
	share_waits((u64[]){4900000, 300000}, GIL_UNIT_NS);
}

static void test_gil_walks(void **state)
{
	u64 reads, walked = 0;

	(void)state;
	gil_setup();
	for (int i = 0; i < 4000; i++) {
		reads = native.reads;
		wait_for(THRESHOLD, 0);
		walked += native.reads > reads;
	}
	assert_true(walked > 4000 / GIL_WALKED - 110 && walked < 4000 / GIL_WALKED + 110);
}

/* A thread that trains has each. */
static void test_gil_of_steps(void **state)
{
	u64 gen = action__new("fit");

	(void)state;
	action__next(gen, STACK);
	gil_setup();
	for (int i = 0; i < 50; i++) {
		wait_for(THRESHOLD + i, 2 * THRESHOLD);
		assert_true(expect_wait(CAUSE_GIL, THRESHOLD + i, 1)->stack != 0);
		assert_true(expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1)->stack != 0);
	}
	expect_no_more();
	visit(VISIT_CLOSE);
	expect_no_more();
}

/* A thread that ends, or a window that closes, leaves none behind. */
static void test_gil_flush(void **state)
{
	const struct rec_sample *rec;

	(void)state;
	gil_setup();
	wait_for(2 * THRESHOLD, 3 * THRESHOLD);
	expect_no_more();
	visit(VISIT_CLOSE);
	rec = expect_wait(CAUSE_GIL, 2 * THRESHOLD, 2);
	assert_true(rec->stack != 0);
	assert_int_equal(expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD, 2)->stack, rec->stack);
	visit(VISIT_CLOSE);
	expect_no_more();
	wait_for(THRESHOLD, 0);
	switch_to(&cpu.other, TASK_DEAD);
	assert_true(expect_wait(CAUSE_GIL, THRESHOLD, 2)->stack != 0);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* ---- threads and processes that end, begin, change ---- */

static void test_exit(void **state)
{
	(void)state;
	switch_to(&cpu.other, TASK_DEAD);
	assert_null(bpf_task_storage_get(&waits, &job.task, NULL, 0));
	wait_ns(THRESHOLD);
	visit(VISIT_CLOSE);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

static void test_fork(void **state)
{
	struct pid pid = {.numbers = {{JOB_PID + 100}}};
	struct task_struct child = {.pid = JOB_PID + 100, .tgid = JOB_PID + 100, .thread_pid = &pid};
	struct proc *proc;
	u32 key = child.pid;

	(void)state;
	child.group_leader = &child;
	child.thread.fsbase = job.task.thread.fsbase;
	process_fork(&job.task, &child);
	native.task = &child;
	timer(USER_CS, USER_IP); /* not watched yet */
	expect_no_more();
	proc = bpf_map_lookup_elem(&procs, &key);
	proc->window = WINDOW_OPEN;
	proc->window_start_ns = native.now_ns;
	timer(USER_CS, USER_IP);
	assert_int_equal(((const struct rec_sample *)record(REC_SAMPLE, 0))->pid, JOB_PID + 100);
	assert_true(((const struct rec_sample *)record(REC_SAMPLE, 0))->stack != 0);
	cpu.read++;
	/* another program: nothing is known of its Python */
	process_exec(&child);
	timer(USER_CS, USER_IP);
	assert_int_equal(((const struct rec_sample *)record(REC_SAMPLE, 1))->stack, 0);
	expect_counters(CNT__COUNT);
}

/* ---- what is lost is counted ---- */

static void test_ring_full(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	timer(USER_CS, USER_IP);
	next_sample();
	native.ring_full = true;
	timer(USER_CS, USER_IP);
	assert_int_equal(counter(CNT_SAMPLES_LOST), 1);
	wait_for(THRESHOLD, 0);
	assert_int_equal(counter(CNT_SAMPLES_LOST), 2);
	native.ring_full = false;
	/* its time is in that of a short one */
	do
		wait_for(THRESHOLD - 1, 0);
	while (!record(REC_SAMPLE, cpu.read));
	assert_true(next_sample()->weight_ns >= THRESHOLD);
	expect_no_more();
	expect_counters(CNT_SAMPLES_LOST, 2, CNT__COUNT);
}

static void test_no_room(void **state)
{
	struct sample_scratch *room = bpf_map_lookup_elem(&sample_scratch, &(u32){0});

	(void)state;
	room->stack.busy = 1; /* an NMI has come between */
	timer(USER_CS, USER_IP);
	expect_no_more();
	expect_counters(CNT_SAMPLES_LOST, 1, CNT__COUNT);
	room->stack.busy = 0;
	native.storage_failures = 1;
	away();
	back();
	expect_no_more();
	expect_counters(CNT_SAMPLES_LOST, 2, CNT__COUNT);
	timer(USER_CS, USER_IP);
	next_sample();
}

/* ---- stacks that are walked when the wait is over ---- */

/* The thread leaves the CPU; its last waits here were short, and BPF has not walked its stack. */
static void away_unwalked(void)
{
	u64 reads;

	for (int i = 0; i < 8; i++)
		wait_for(1, 0);
	for (;;) {
		reads = native.reads;
		away();
		if (native.reads == reads)
			return;
		back();
	}
}

/* The thread leaves the CPU again before it returns to user space. */
static void test_walked_at_the_next_wait(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	away_unwalked();
	wait_ns(2 * THRESHOLD);
	switch_to(&job.task, SLEEPS);
	expect_no_more();
	preempt_by(&cpu.other);
	assert_true(expect_wait(CAUSE_LOCK, 2 * THRESHOLD, 1)->stack > STACK_NOT_WALKED);
	wait_ns(3 * THRESHOLD);
	back();
	assert_true(expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD, 1)->stack > STACK_NOT_WALKED);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* The thread has run on, as after an exec: its stack is another one. */
static void test_run_on_before_the_walk(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	away_unwalked();
	wait_ns(THRESHOLD);
	switch_to(&job.task, SLEEPS);
	cpu.user = in_user();
	return_to_user();
	assert_int_equal(expect_wait(CAUSE_LOCK, THRESHOLD, 1)->stack, STACK_NOT_WALKED);
	expect_counters(CNT_STACK_LOST, 1, CNT__COUNT);
}

/* BPF does not see the thread come back, and has not walked its stack: a long wait has lost it. */
static void test_unseen_unwalked(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	job.task.se.sum_exec_runtime = 1000000;
	for (u64 i = 0; i < 2; i++) {
		away_unwalked();
		wait_ns(i ? THRESHOLD : THRESHOLD - 1);
		native.task = &job.task;
		wait_ns(700);
		job.task.se.sum_exec_runtime += 700;
		away();
		back();
	}
	assert_int_equal(expect_wait(CAUSE_LOCK, THRESHOLD, 1)->stack, STACK_NOT_WALKED);
	expect_no_more();
	expect_counters(CNT_STACK_LOST, 1, CNT__COUNT);
}

/* Where waits are short, few stacks are walked as they begin; where one was long, those of the next. */
static void test_walks_where_waits_are_long(void **state)
{
	u64 reads, walked = 0;

	(void)state;
	cpu.user = in_call(SYS_FUTEX, 0, 0, 0);
	away_unwalked();
	back();
	for (int i = 0; i < 3200; i++) {
		reads = native.reads;
		wait_for(1, 0);
		walked += native.reads > reads;
	}
	assert_true(walked > 60 && walked < 140);
	away_unwalked();
	wait_ns(100 * THRESHOLD);
	reads = native.reads;
	back();
	assert_true(native.reads > reads);
	assert_true(expect_wait(CAUSE_LOCK, 100 * THRESHOLD, 1)->stack > STACK_NOT_WALKED);
	for (int i = 0; i < 2; i++) {
		reads = native.reads;
		away();
		assert_true(native.reads > reads);
		wait_ns(1);
		back();
	}
	for (int i = 0; i < 100; i++) { /* another program takes its time, a thread of the kernel does not */
		reads = native.reads;
		preempt_by(&cpu.other);
		assert_true(native.reads > reads);
		wait_ns(1);
		back();
	}
	cpu.other.flags = PF_KTHREAD;
	walked = 0;
	for (int i = 0; i < 3200; i++) {
		reads = native.reads;
		preempt_by(&cpu.other);
		walked += native.reads > reads;
		wait_ns(1);
		back();
	}
	assert_true(walked > 60 && walked < 140);
	cpu.user.sp += 64; /* elsewhere */
	reads = native.reads;
	away();
	assert_true(native.reads > reads);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, samples_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_timer),
		TEST(test_weights),
		TEST(test_paths),
		TEST(test_around),
		TEST(test_around_nested),
		TEST(test_around_is_bounded),
		TEST(test_wait),
		TEST(test_preempted),
		TEST(test_who_ran),
		TEST(test_who_ran_for_moments),
		TEST(test_unseen),
		TEST(test_unseen_paths),
		TEST(test_threads),
		TEST(test_short_waits),
		TEST(test_short_waits_by_place),
		TEST(test_short_waits_unlike),
		TEST(test_short_waits_of_long_steps),
		TEST(test_gil_by_place),
		TEST(test_gil_walks),
		TEST(test_gil_of_steps),
		TEST(test_gil_flush),
		TEST(test_exit),
		TEST(test_fork),
		TEST(test_ring_full),
		TEST(test_no_room),
	};

	const struct CMUnitTest later[] = {
		TEST(test_wait),
		TEST(test_preempted),
		TEST(test_who_ran),
		TEST(test_who_ran_for_moments),
		TEST(test_short_waits),
		TEST(test_short_waits_by_place),
		TEST(test_short_waits_unlike),
		TEST(test_short_waits_of_long_steps),
		TEST(test_gil_by_place),
		TEST(test_gil_of_steps),
		TEST(test_gil_flush),
		TEST(test_exit),
		TEST(test_fork),
		TEST(test_walked_at_the_next_wait),
		TEST(test_run_on_before_the_walk),
		TEST(test_unseen_unwalked),
		TEST(test_walks_where_waits_are_long),
	};
	int failed = cmocka_run_group_tests_name("walked as a wait begins", tests, NULL, NULL);

	walks_at_end = true;
	return failed + cmocka_run_group_tests_name("walked as a wait ends", later, NULL, NULL);
}
