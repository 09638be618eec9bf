/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sampler (bpf/samples.bpf.c) on the job of job.h: what happens on its CPU goes in, samples come out. */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_SAMPLER_H
#define STEPFLAME_TESTS_BPF_NATIVE_SAMPLER_H

#include "tests/bpf/native/seen.h"

#define LICENSE LICENSE_OF_SAMPLES /* job.h has included a program with one of its own */
#include "bpf/samples.bpf.c"
#undef LICENSE
#define LICENSE LICENSE_OF_PROCESS
#include "bpf/process.bpf.c"
#undef LICENSE

#include "tests/bpf/native/random.h"

#define PERIOD    10101010
#define THRESHOLD 100000
#define USER_IP   0x401234
#define KERNEL_IP 0xffffffff81000042ULL
#define NATIVE_IP 0x7f0000004242ULL
#define USER_CS   0x33
#define KERNEL_CS 0x10
#define RUNNABLE  0 /* prev_state of the scheduler's switch */
#define SLEEPS    1
#define BLOCKED   2 /* cannot be interrupted */
#define STOPPED   4
#define TRACED    8

static struct {
	struct pt_regs user;
	struct task_struct other; /* of a process that is none of ours */
	struct pid other_pid;
	u64 thread_pointer[2];
	u64 function, frame;
	u32 read; /* samples looked at */
	/* a task work, run as the thread returns to user space */
	struct task_struct *worker;
	int (*work)(struct bpf_map *map, void *key, void *value);
} cpu;

static bool walks_at_end; /* as from Linux 6.18 on */

int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *work, void *map__map,
				       int (*callback)(struct bpf_map *map, void *key, void *value), void *aux__prog)
{
	(void)work, (void)map__map, (void)aux__prog;
	cpu.worker = task;
	cpu.work = callback;
	return 0;
}

static inline void return_to_user(void)
{
	if (cpu.worker != native.task)
		return;
	cpu.worker = NULL;
	cpu.work(NULL, NULL, NULL);
}

static inline struct pt_regs in_call(long number, u64 di, u64 si, u64 dx)
{
	return (struct pt_regs){
		.orig_ax = number, .ip = NATIVE_IP, .cx = NATIVE_IP, .di = di, .si = si, .dx = dx, .cs = USER_CS};
}

static inline struct pt_regs in_user(void)
{
	return (struct pt_regs){.orig_ax = ~0ul, .ip = USER_IP, .cx = 5, .cs = USER_CS};
}

static inline int samples_setup(void **state)
{
	(void)state;
	job__start(12);
	memset(&cpu, 0, sizeof(cpu));
	native__set_knob(&sample_period_ns, PERIOD);
	native__set_knob(&want_syscalls, 1);
	native__set_knob(&wait_threshold_ns, THRESHOLD);
	*(struct timer_period *)bpf_map_lookup_elem(&timer_periods, &(u32){0}) = (struct timer_period){0, PERIOD, 0};
	thread_visit = VISIT_OPEN;
	cpu.user = in_user();
	native.user = &cpu.user;
	cpu.other = (struct task_struct){.pid = 1, .tgid = 1, .group_leader = &cpu.other, .thread_pid = &cpu.other_pid};
	job.task.thread.fsbase = job.thread.thread.fsbase = (u64)cpu.thread_pointer;
	job.proc->py.tss_offset = 8;
	job.proc->py.code_type = job.py.code_type;
	cpu.function =
		fakepy__function_of(&job.py, fakepy__text(&job.py, "/home/me/a.py"), fakepy__text(&job.py, "f"), 1);
	cpu.frame = fakepy__frame(&job.py, cpu.function, 0);
	fakepy__set_instr(&job.py, cpu.frame, cpu.function, 2);
	cpu.thread_pointer[1] = fakepy__tstate(&job.py, cpu.frame);
	return 0;
}

/* ---- what happens on the CPU ---- */

static inline void timer(u64 cs, u64 ip)
{
	sample_timer(&(struct bpf_perf_event_data){.regs = {.cs = cs, .ip = ip}});
}

static inline void switch_to(struct task_struct *next, u32 state)
{
	struct task_struct *prev = native.task;

	(walks_at_end ? sample_switch_later : sample_switch)(false, prev, next, state);
	native.task = next;
}

static inline void preempt_by(struct task_struct *next)
{
	struct task_struct *prev = native.task;

	(walks_at_end ? sample_switch_later : sample_switch)(true, prev, next, RUNNABLE);
	native.task = next;
}

/* Outside of a call for memory, which cannot be interrupted. */
static inline void away(void)
{
	switch_to(&cpu.other, regs__syscall(&cpu.user) < 0 ? BLOCKED : SLEEPS);
}

static inline void back(void)
{
	switch_to(&job.task, SLEEPS);
	return_to_user();
}

/* A wait of the job's thread, from the CPU to the CPU. */
static inline void wait_for(u64 blocked_ns, u64 queued_ns)
{
	away();
	wait_ns(blocked_ns);
	sample_waking(&job.task);
	wait_ns(queued_ns);
	back();
}

static inline void visit(enum thread_visit what)
{
	struct task_struct *const tasks[] = {NULL, &cpu.other, &job.task, &job.thread};

	thread_visit = what;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++)
		sample_threads(&(struct bpf_iter__task){.task = tasks[i]});
}

/* ---- what came out ---- */

/* The next sample. */
static inline const struct rec_sample *next_sample(void)
{
	const struct rec_sample *rec = record(REC_SAMPLE, cpu.read++);

	assert_non_null(rec);
	assert_int_equal(rec->hdr.size, sizeof(*rec));
	assert_int_equal(rec->pid, JOB_PID);
	return rec;
}

static inline void expect_no_more(void)
{
	assert_null(record(REC_SAMPLE, cpu.read));
}

static inline const struct rec_sample *expect_wait(u32 cause, u64 weight_ns, u32 waits_)
{
	const struct rec_sample *rec = next_sample();

	assert_int_equal(rec->kind, SAMPLE_WAIT);
	assert_int_equal(rec->cause, cause);
	assert_int_equal(rec->weight_ns, weight_ns);
	assert_int_equal(rec->waits, waits_);
	assert_int_equal(rec->kernel, 0);
	return rec;
}

#endif
