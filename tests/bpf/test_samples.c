/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sampler (bpf/samples.bpf.c): what the timer and the scheduler's events of a process's threads become, to the nanosecond. What the
 * threads' Python stacks are is test_pystack.c's.
 */
#include "native/seen.h"

#define LICENSE LICENSE_OF_SAMPLES /* job.h has included a program with one of its own */
#include "bpf/samples.bpf.c"
#undef LICENSE
#define LICENSE LICENSE_OF_PROCESS
#include "bpf/process.bpf.c"
#undef LICENSE

#include "native/random.h"

#define PERIOD    10101010
#define THRESHOLD 100000
#define USER_IP   0x401234
#define KERNEL_IP 0xffffffff81000042ULL
#define NATIVE_IP 0x7f0000004242ULL
#define USER_CS   0x33
#define KERNEL_CS 0x10
#define RUNNABLE  0 /* prev_state of the scheduler's switch */
#define SLEEPS    1
#define STOPPED   4
#define TRACED    8

static struct {
	struct pt_regs user;
	struct task_struct other; /* of a process that is none of ours */
	struct pid other_pid;
	u64 thread_pointer[2];
	u64 function;
	u32 read; /* samples looked at */
} cpu;

static struct pt_regs in_call(long number, u64 di, u64 si, u64 dx)
{
	return (struct pt_regs){
		.orig_ax = number, .ip = NATIVE_IP, .cx = NATIVE_IP, .di = di, .si = si, .dx = dx, .cs = USER_CS};
}

static struct pt_regs in_user(void)
{
	return (struct pt_regs){.orig_ax = ~0ul, .ip = USER_IP, .cx = 5, .cs = USER_CS};
}

static int samples_setup(void **state)
{
	u64 frame;

	(void)state;
	job__start(12);
	memset(&cpu, 0, sizeof(cpu));
	native__set_knob(&sample_period_ns, PERIOD);
	native__set_knob(&wait_threshold_ns, THRESHOLD);
	thread_visit = VISIT_OPEN;
	cpu.user = in_user();
	native.user = &cpu.user;
	cpu.other = (struct task_struct){.pid = 1, .tgid = 1, .group_leader = &cpu.other, .thread_pid = &cpu.other_pid};
	job.task.thread.fsbase = job.thread.thread.fsbase = (u64)cpu.thread_pointer;
	job.proc->py.tss_offset = 8;
	job.proc->py.code_type = job.py.code_type;
	cpu.function =
		fakepy__function_of(&job.py, fakepy__text(&job.py, "/home/me/a.py"), fakepy__text(&job.py, "f"), 1);
	frame = fakepy__frame(&job.py, cpu.function, 0);
	fakepy__set_instr(&job.py, frame, cpu.function, 2);
	cpu.thread_pointer[1] = fakepy__tstate(&job.py, frame);
	return 0;
}

/* ---- what happens on the CPU ---- */

static void timer(u64 cs, u64 ip)
{
	sample_timer(&(struct bpf_perf_event_data){.regs = {.cs = cs, .ip = ip}});
}

static void switch_to(struct task_struct *next, u32 state)
{
	struct task_struct *prev = native.task;

	sample_switch(false, prev, next, state);
	native.task = next;
}

static void preempt_by(struct task_struct *next)
{
	struct task_struct *prev = native.task;

	sample_switch(true, prev, next, RUNNABLE);
	native.task = next;
}

static void away(void)
{
	switch_to(&cpu.other, SLEEPS);
}

static void back(void)
{
	switch_to(&job.task, SLEEPS);
}

/* A wait of the job's thread, from the CPU to the CPU. */
static void wait_for(u64 blocked_ns, u64 queued_ns)
{
	away();
	wait_ns(blocked_ns);
	sample_wakeup(&job.task);
	wait_ns(queued_ns);
	back();
}

static void visit(enum thread_visit what)
{
	struct task_struct *const tasks[] = {NULL, &cpu.other, &job.task, &job.thread};

	thread_visit = what;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++)
		sample_threads(&(struct bpf_iter__task){.task = tasks[i]});
}

/* ---- what came out ---- */

/* The next sample. */
static const struct rec_sample *next_sample(void)
{
	const struct rec_sample *rec = record(REC_SAMPLE, cpu.read++);

	assert_non_null(rec);
	assert_int_equal(rec->hdr.size, sizeof(*rec));
	assert_int_equal(rec->pid, JOB_PID);
	return rec;
}

static void expect_no_more(void)
{
	assert_null(record(REC_SAMPLE, cpu.read));
}

static const struct rec_sample *expect_wait(u32 cause, u64 weight_ns, u32 waits_)
{
	const struct rec_sample *rec = next_sample();

	assert_int_equal(rec->kind, SAMPLE_WAIT);
	assert_int_equal(rec->cause, cause);
	assert_int_equal(rec->weight_ns, weight_ns);
	assert_int_equal(rec->waits, waits_);
	assert_int_equal(rec->kernel, 0);
	return rec;
}

/* ---- the timer ---- */

static void test_timer(void **state)
{
	const struct rec_sample *rec;
	struct seen seen;

	(void)state;
	job.proc->steps = 7;
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

static void test_windows(void **state)
{
	static const u32 others[] = {WINDOW_CLOSED, WINDOW_WAITING, WINDOW_DONE};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		job.proc->window = others[i];
		timer(USER_CS, USER_IP);
		wait_for(2 * THRESHOLD, 2 * THRESHOLD);
	}
	job.proc->window = WINDOW_OPEN;
	native.task = &cpu.other;
	timer(USER_CS, USER_IP);
	switch_to(&cpu.other, SLEEPS);
	expect_no_more();
	expect_counters(CNT__COUNT);
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

/* ---- waits ---- */

static void test_wait(void **state)
{
	const struct rec_sample *rec;

	(void)state;
	cpu.user = in_call(SYS_CLOCK_NANOSLEEP, 0, 0, 0);
	wait_ns(500);
	away();
	wait_ns(5 * THRESHOLD);
	sample_wakeup(&job.task);
	wait_ns(10);
	sample_wakeup(&job.task); /* the first counts */
	wait_ns(3 * THRESHOLD);
	back();
	rec = expect_wait(CAUSE_SLEEP, 5 * THRESHOLD, 1);
	assert_int_equal(rec->time_ns, 1510 + 8 * THRESHOLD);
	assert_int_equal(rec->syscall, SYS_CLOCK_NANOSLEEP);
	assert_int_equal(rec->native, NATIVE_IP);
	assert_true(rec->stack != 0);
	rec = expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD + 10, 1);
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
	sample_switch(false, &cpu.other, &job.task, SLEEPS);
	native.task = &job.task;
	expect_wait(CAUSE_RUN_QUEUE, THRESHOLD, 1);
	/* preempted on its way to sleep */
	sample_switch(true, &job.task, &cpu.other, SLEEPS);
	wait_ns(THRESHOLD + 1);
	sample_switch(false, &cpu.other, &job.task, SLEEPS);
	expect_wait(CAUSE_RUN_QUEUE, THRESHOLD + 1, 1);
	/* it gave way */
	switch_to(&cpu.other, RUNNABLE);
	wait_ns(THRESHOLD + 2);
	back();
	expect_wait(CAUSE_RUN_QUEUE, THRESHOLD + 2, 1);
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* Two threads in turn on one CPU. */
static void test_threads(void **state)
{
	(void)state;
	switch_to(&job.thread, SLEEPS);
	wait_ns(2 * THRESHOLD);
	sample_wakeup(&job.task);
	switch_to(&job.task, SLEEPS);
	assert_int_equal(expect_wait(CAUSE_PAGE_FAULT, 2 * THRESHOLD, 1)->tid, JOB_PID);
	wait_ns(3 * THRESHOLD);
	sample_wakeup(&job.thread);
	switch_to(&job.thread, SLEEPS);
	assert_int_equal(expect_wait(CAUSE_PAGE_FAULT, 3 * THRESHOLD, 1)->tid, JOB_PID + 1);
	expect_no_more();
}

/* Short waits: their sum is in the samples, less what is below the threshold yet. */
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

		assert_true(rec->weight_ns >= THRESHOLD);
		sent[rec->cause].ns += rec->weight_ns;
		sent[rec->cause].cnt += rec->waits;
	}
	w = bpf_task_storage_get(&waits, &job.task, NULL, 0);
	assert_true(w->blocked.ns < THRESHOLD && w->queued.ns < THRESHOLD);
	assert_int_equal(sent[CAUSE_SLEEP].ns + w->blocked.ns, in[CAUSE_SLEEP].ns);
	assert_int_equal(sent[CAUSE_SLEEP].cnt + w->blocked.cnt, in[CAUSE_SLEEP].cnt);
	assert_int_equal(sent[CAUSE_RUN_QUEUE].ns + w->queued.ns, in[CAUSE_RUN_QUEUE].ns);
	assert_int_equal(sent[CAUSE_RUN_QUEUE].cnt + w->queued.cnt, in[CAUSE_RUN_QUEUE].cnt);
	expect_counters(CNT__COUNT);
}

/* ---- windows that open and close while threads wait ---- */

static void test_open(void **state)
{
	(void)state;
	native.task = &cpu.other;
	job.thread.on_cpu = 1;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	job.proc->window_start_ns = native.now_ns;
	visit(VISIT_OPEN);
	wait_ns(THRESHOLD);
	sample_wakeup(&job.task);
	back();
	assert_int_equal(expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1)->stack, 0);
	/* one that ran then has not waited */
	switch_to(&job.thread, SLEEPS);
	assert_null(bpf_task_storage_get(&waits, &job.thread, NULL, 0));
	/* visited again, a wait that is known goes on */
	wait_ns(THRESHOLD);
	visit(VISIT_OPEN);
	wait_ns(THRESHOLD);
	sample_wakeup(&job.task);
	back();
	assert_true(expect_wait(CAUSE_CHILD_WAIT, 2 * THRESHOLD, 1)->stack != 0);
	expect_no_more();
}

static void test_close(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	away();
	wait_ns(THRESHOLD);
	visit(VISIT_CLOSE);
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	/* once, whatever comes */
	visit(VISIT_CLOSE);
	wait_ns(THRESHOLD);
	back();
	visit(VISIT_CLOSE);
	expect_no_more();
	/* waiting for a CPU at the end */
	away();
	wait_ns(2 * THRESHOLD);
	sample_wakeup(&job.task);
	wait_ns(3 * THRESHOLD);
	visit(VISIT_CLOSE);
	expect_wait(CAUSE_CHILD_WAIT, 2 * THRESHOLD, 1);
	expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD, 1);
	expect_no_more();
}

/* A wait so far, of one that goes on: in parts, it is as long as it was. */
static void test_cut(void **state)
{
	(void)state;
	job.thread.on_cpu = 1;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	away();
	for (int i = 2; i < 5; i++) {
		wait_ns(i * THRESHOLD);
		visit(VISIT_CUT);
		assert_true(expect_wait(CAUSE_CHILD_WAIT, i * THRESHOLD, 1)->stack != 0);
	}
	wait_ns(THRESHOLD);
	sample_wakeup(&job.task);
	wait_ns(2 * THRESHOLD);
	visit(VISIT_CUT); /* it waits for a CPU */
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1);
	wait_ns(3 * THRESHOLD);
	back();
	expect_wait(CAUSE_RUN_QUEUE, 3 * THRESHOLD, 1);
	visit(VISIT_CUT); /* it runs */
	expect_no_more();
	expect_counters(CNT__COUNT);
}

/* The steps asked for have been seen while a thread waited: it waits until then. */
static void test_done(void **state)
{
	(void)state;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	away();
	wait_ns(THRESHOLD);
	job.proc->window = WINDOW_DONE;
	job.proc->window_end_ns = native.now_ns;
	wait_ns(THRESHOLD);
	back();
	wait_for(THRESHOLD, THRESHOLD);
	expect_no_more();
	visit(VISIT_CLOSE);
	expect_wait(CAUSE_CHILD_WAIT, THRESHOLD, 1);
	visit(VISIT_CLOSE);
	expect_no_more();
}

/* A wait that began before the window, at a step's boundary, opened (--steps), or before user space came to a forked child. */
static void test_open_later(void **state)
{
	(void)state;
	job.thread.on_cpu = 1;
	cpu.user = in_call(SYS_WAIT4, 0, 0, 0);
	for (u32 window = WINDOW_CLOSED; window <= WINDOW_WAITING; window += WINDOW_WAITING) {
		job.proc->window = window;
		away();
		wait_ns(THRESHOLD);
		job.proc->window = WINDOW_OPEN;
		job.proc->window_start_ns = native.now_ns;
		wait_ns(2 * THRESHOLD);
		sample_wakeup(&job.task);
		back();
		assert_int_equal(!expect_wait(CAUSE_CHILD_WAIT, 2 * THRESHOLD, 1)->stack, window == WINDOW_CLOSED);
		/* woken before it, it only waits for a CPU */
		job.proc->window = window;
		away();
		sample_wakeup(&job.task);
		wait_ns(THRESHOLD);
		job.proc->window = WINDOW_OPEN;
		job.proc->window_start_ns = native.now_ns;
		wait_ns(2 * THRESHOLD);
		back();
		expect_wait(CAUSE_RUN_QUEUE, 2 * THRESHOLD, 1);
		/* one that was over by then is none, nor is one whose thread runs since */
		job.proc->window = window;
		wait_for(THRESHOLD, THRESHOLD);
		job.proc->window = WINDOW_OPEN;
		job.proc->window_start_ns = native.now_ns;
		job.task.on_cpu = 1;
		wait_ns(THRESHOLD);
		visit(VISIT_CLOSE);
		visit(VISIT_OPEN);
		job.task.on_cpu = 0;
		expect_no_more();
	}
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
	/* its time is in the next one */
	wait_for(THRESHOLD, 0);
	expect_wait(CAUSE_CHILD_WAIT, 2 * THRESHOLD, 2);
	expect_no_more();
	expect_counters(CNT_SAMPLES_LOST, 2, CNT__COUNT);
}

static void test_no_room(void **state)
{
	struct sample_room *room = bpf_map_lookup_elem(&sample_rooms, &(u32){0});

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

/* ---- causes ---- */

static u32 cause_in(struct pt_regs user, u32 state)
{
	const struct rec_sample *rec;

	cpu.user = user;
	switch_to(&cpu.other, state);
	wait_ns(THRESHOLD);
	sample_wakeup(&job.task);
	back();
	rec = next_sample();
	assert_int_equal(rec->weight_ns, THRESHOLD);
	return rec->cause;
}

static u32 cause_of(long number, u64 di, u64 si)
{
	return cause_in(in_call(number, di, si, 0), SLEEPS);
}

enum { FD_FILE, FD_PIPE, FD_SOCKET, FD_TERMINAL, FD_EVENT, FD_DISK, FD_CLOSED, FD_CNT };

static void test_causes(void **state)
{
	static const struct {
		long number;
		u64 di, si;
		u32 cause;
	} cases[] = {
		{SYS_CLOCK_NANOSLEEP, 0, 0, CAUSE_SLEEP},
		{SYS_NANOSLEEP, 0, 0, CAUSE_SLEEP},
		{SYS_SELECT, 0, 0, CAUSE_SLEEP}, /* of no files */
		{SYS_SELECT, 5, 0, CAUSE_POLL},
		{SYS_PSELECT6, 0, 0, CAUSE_SLEEP},
		{SYS_PSELECT6, 5, 0, CAUSE_POLL},
		{SYS_POLL, 0x1000, 0, CAUSE_SLEEP},
		{SYS_POLL, 0x1000, 1, CAUSE_POLL},
		{SYS_PPOLL, 0x1000, 0, CAUSE_SLEEP},
		{SYS_PPOLL, 0x1000, 2, CAUSE_POLL},
		{SYS_EPOLL_WAIT, 3, 0x1000, CAUSE_POLL},
		{SYS_EPOLL_PWAIT, 3, 0x1000, CAUSE_POLL},
		{SYS_EPOLL_PWAIT2, 3, 0x1000, CAUSE_POLL},
		{SYS_WAIT4, 0, 0, CAUSE_CHILD_WAIT},
		{SYS_WAITID, 0, 0, CAUSE_CHILD_WAIT},
		{SYS_FSYNC, FD_FILE, 0, CAUSE_FSYNC},
		{SYS_FDATASYNC, FD_FILE, 0, CAUSE_FSYNC},
		{SYS_MSYNC, 0, 0, CAUSE_FSYNC},
		{SYS_SYNC, 0, 0, CAUSE_FSYNC},
		{SYS_SYNCFS, 0, 0, CAUSE_FSYNC},
		{SYS_SYNC_FILE_RANGE, 0, 0, CAUSE_FSYNC},
		{SYS_CONNECT, 0, 0, CAUSE_SOCKET},
		{SYS_ACCEPT, 0, 0, CAUSE_SOCKET},
		{SYS_ACCEPT4, 0, 0, CAUSE_SOCKET},
		{SYS_RECVMSG - 2, 0, 0, CAUSE_SOCKET}, /* recvfrom */
		{SYS_RECVMSG, 0, 0, CAUSE_SOCKET},
		{SYS_RECVMMSG, 0, 0, CAUSE_SOCKET},
		{SYS_SENDMMSG, 0, 0, CAUSE_SOCKET},
		{SYS_READ, FD_FILE, 0, CAUSE_DISK_READ},
		{SYS_READ, FD_DISK, 0, CAUSE_DISK_READ},
		{SYS_READ, FD_PIPE, 0, CAUSE_PIPE},
		{SYS_READ, FD_SOCKET, 0, CAUSE_SOCKET},
		{SYS_READ, FD_TERMINAL, 0, CAUSE_UNKNOWN}, /* somebody types */
		{SYS_READ, FD_EVENT, 0, CAUSE_UNKNOWN},
		{SYS_READ, FD_CLOSED, 0, CAUSE_UNKNOWN},
		{SYS_READ, FD_CNT, 0, CAUSE_UNKNOWN},
		{SYS_READ, ~0ull, 0, CAUSE_UNKNOWN},
		{SYS_PREAD64, FD_FILE, 0, CAUSE_DISK_READ},
		{SYS_READV, FD_FILE, 0, CAUSE_DISK_READ},
		{SYS_PREADV, FD_FILE, 0, CAUSE_DISK_READ},
		{SYS_PREADV2, FD_FILE, 0, CAUSE_DISK_READ},
		{SYS_WRITE, FD_FILE, 0, CAUSE_DISK_WRITE},
		{SYS_WRITE, FD_PIPE, 0, CAUSE_PIPE},
		{SYS_WRITE, FD_TERMINAL, 0, CAUSE_UNKNOWN},
		{SYS_PWRITE64, FD_FILE, 0, CAUSE_DISK_WRITE},
		{SYS_WRITEV, FD_SOCKET, 0, CAUSE_SOCKET},
		{SYS_PWRITEV, FD_FILE, 0, CAUSE_DISK_WRITE},
		{SYS_PWRITEV2, FD_FILE, 0, CAUSE_DISK_WRITE},
		{16 /* ioctl */, FD_FILE, 0, CAUSE_UNKNOWN},
		{1023, 0, 0, CAUSE_UNKNOWN},
		{1024, 0, 0, CAUSE_PAGE_FAULT}, /* no call has that number */
	};
	static struct inode inodes[FD_CNT] = {{0100644}, {0010600}, {0140755}, {0020620}, {0000600}, {0060660}};
	struct file files[FD_CNT], *open[FD_CNT + 1] = {0};
	struct fdtable table = {.max_fds = FD_CNT, .fd = open};
	struct files_struct all = {.fdt = &table};

	(void)state;
	for (int i = 0; i < FD_CNT; i++) {
		files[i].f_inode = &inodes[i];
		open[i] = i == FD_CLOSED ? NULL : &files[i];
	}
	job.task.files = &all;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (cause_of(cases[i].number, cases[i].di, cases[i].si) == cases[i].cause)
			continue;
		print_message("case %zu: call %ld\n", i, cases[i].number);
		fail();
	}
	/* in another call, for a disk */
	job.task.in_iowait = 1;
	assert_int_equal(cause_of(217 /* getdents64 */, FD_FILE, 0), CAUSE_DISK_READ);
	assert_int_equal(cause_of(SYS_FSYNC, FD_FILE, 0), CAUSE_FSYNC);
	expect_counters(CNT__COUNT);
}

static void test_futex(void **state)
{
	(void)state;
	job.proc->py.gil_address = 0x7f0000010000ULL;
	job.proc->py.gil_bytes = 208;
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f0000010000ULL, 0), CAUSE_GIL);
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f00000100cfULL, 0), CAUSE_GIL);
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f00000100d0ULL, 0), CAUSE_LOCK);
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f000000ffffULL, 0), CAUSE_LOCK);
	job.proc->py.gil_bytes = 0; /* not known */
	assert_int_equal(cause_of(SYS_FUTEX, 0x7f0000010000ULL, 0), CAUSE_LOCK);
}

/* Outside of calls: a page is not there; or the thread was stopped, by a signal or a debugger, which is no wait of its program's. */
static void test_no_call(void **state)
{
	(void)state;
	assert_int_equal(cause_in(in_user(), SLEEPS), CAUSE_PAGE_FAULT);
	assert_int_equal(cause_in(in_user(), 2), CAUSE_PAGE_FAULT); /* not interruptible */
	assert_int_equal(cause_in(in_user(), STOPPED), CAUSE_UNKNOWN);
	assert_int_equal(cause_in(in_user(), TRACED), CAUSE_UNKNOWN);
	assert_int_equal(cause_in(in_call(SYS_NANOSLEEP, 0, 0, 0), STOPPED), CAUSE_UNKNOWN);
	assert_int_equal(cause_in(in_call(SYS_NANOSLEEP, 0, 0, 0), 0x101), CAUSE_SLEEP); /* killable */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, samples_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_timer),   TEST(test_windows),     TEST(test_paths), TEST(test_wait),    TEST(test_preempted),
		TEST(test_threads), TEST(test_short_waits), TEST(test_open),  TEST(test_close),   TEST(test_cut),
		TEST(test_done),    TEST(test_open_later),  TEST(test_exit),  TEST(test_fork),    TEST(test_ring_full),
		TEST(test_no_room), TEST(test_causes),      TEST(test_futex), TEST(test_no_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
