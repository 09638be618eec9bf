// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples: the Python stack and the open spans of a thread of the target. The timer samples a
 * thread that is running; the scheduler's switches sample a thread that has waited. In: a timer on
 * each CPU, and the scheduler's switches and wake-ups. Out: REC_SAMPLE, and each stack and function
 * the first time.
 *
 *   timer fires ---------------------------------> sample, weighted by the timer's period
 *   switch: the thread leaves -> struct wait --+
 *   wake-up ------------------> struct wait ---+
 *   switch: the thread comes back -------------+-> sample, weighted by the time away
 *
 * Only some waits get a sample, and which is known at their end. A stack does not change while its
 * thread waits, so from Linux 6.18 on BPF can walk it then (bpf/walk_later.h); before, it walks each
 * as the wait begins. A walk at the end costs an interrupt more, so BPF walks at the begin where the
 * last waits at the same place were long enough for a sample.
 *
 * On one CPU these programs do not interrupt each other, except from an NMI.
 */
#include "bpf/around.h"
#include "bpf/beside.h"
#include "bpf/files.h"
#include "bpf/span.h"
#include "bpf/wait_place.h"
#include "bpf/walk_later.h"
#include "bpf/window.h"

/* include/linux/sched.h */
#define TASK_DEAD 0x80

/* arch/x86/entry/syscalls/syscall_64.tbl */
#define SYS_EXECVE   59
#define SYS_EXECVEAT 322

#define RAN_SHIFT    9 /* of a random number of 32 bits: 8 ms, longer than most have a CPU */

volatile __u32 thread_visit = VISIT_OPEN; /* set by user space: enum thread_visit */

/* The period of each CPU's timer; user space writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer_period);
} timer_periods SEC(".maps");

struct sample_scratch {
	struct stack_scratch stack;
	struct path_scratch path;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sample_scratch);
} sample_scratch SEC(".maps");

/*
 * The scratch memory of this CPU, until scratch__release. NULL (counted): this is an NMI, and the
 * program that it interrupted uses the memory.
 */
static __always_inline struct sample_scratch *scratch__acquire(void)
{
	static const u32 zero = 0;
	struct sample_scratch *scratch = bpf_map_lookup_elem(&sample_scratch, &zero);

	if (!scratch || scratch->stack.busy) {
		count(CNT_SAMPLES_LOST);
		return NULL;
	}
	scratch->stack.busy = 1;
	return scratch;
}

static __always_inline void scratch__release(struct sample_scratch *scratch)
{
	scratch->stack.busy = 0;
}

static __always_inline struct rec_sample *sample__reserve(void)
{
	struct rec_sample *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec)
		count(CNT_SAMPLES_LOST);
	return rec;
}

static __always_inline void sample__begin(struct rec_sample *rec, const struct proc *proc, u32 pid, u32 tid)
{
	rec->hdr.type = REC_SAMPLE;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->pid = pid;
	rec->tid = tid;
	rec->step = proc->steps.cnt;
	rec->waker_pid = rec->waker_tid = 0;
	rec->ran_pid = 0;
	rec->file = 0;
}

/*
 * A sample stands for one period of its timer. The first sample after a change of the period also
 * stands for half of the period before, which the change cut off after half of its length on
 * average. The time since the last sample is no measure, since the timer may not fire while a CPU
 * is idle.
 */
static __always_inline u64 timer__weight(u64 now)
{
	static const u32 zero = 0;
	const struct timer_period *period = bpf_map_lookup_elem(&timer_periods, &zero);
	bool first;

	if (!period)
		return 0;
	first = now - period->since_ns < period->period_ns + period->period_ns / 2;
	return period->period_ns + (first ? period->before_ns / 2 : 0);
}

/*
 * Name id of the file that the thread is reading or writing, if the file has a row already; else 0.
 */
static __always_inline u64 timer__file(struct task_struct *task)
{
	struct file_at at = {};
	const struct file_val *row = syscall__file(task, &at) ? bpf_map_lookup_elem(&file_rows, &at.key) : NULL;

	return row ? row->name : 0;
}

/* What is known of the task's spans. NULL: nothing, or only from before a rest of its process. */
static __always_inline struct thread *thread__seen(struct task_struct *task, const struct proc *proc)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);

	return t && !thread__is_stale(t, proc) ? t : NULL;
}

static __always_inline void timer__sample(struct bpf_perf_event_data *ctx, const struct proc *proc, u32 pid,
					  struct task_struct *task, struct sample_scratch *scratch, u64 weight_ns)
{
	struct thread *t = thread__seen(task, proc);
	const struct pt_regs *user = (const struct pt_regs *)bpf_task_pt_regs(task);
	bool in_kernel = !(ctx->regs.cs & 3);
	u64 path = t ? path__of(&scratch->path, t) : 0;
	u64 stack = stack__current(&scratch->stack, proc, pid);
	struct rec_sample *rec = sample__reserve();

	if (!rec) /* at once: the verifier of Linux 6.1 accepts no later check */
		return;
	sample__begin(rec, proc, pid, task_tid(task));
	if (t) {
		t->gap_sampled = 1;
		around__request(t, path);
	}
	rec->time_ns = bpf_ktime_get_ns();
	rec->weight_ns = weight_ns;
	rec->stack = stack;
	rec->path = path;
	rec->native = user->ip;
	rec->kernel = in_kernel ? ctx->regs.ip : 0;
	rec->waits = 0;
	rec->syscall = in_kernel ? regs__syscall(user) : -1;
	rec->kind = SAMPLE_CPU;
	rec->cause = CAUSE_NONE;
	rec->file = in_kernel ? timer__file(task) : 0;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

SEC("perf_event")
int sample_timer(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 pid = task_pid(task);
	struct proc *proc = proc__of(pid);
	struct sample_scratch *scratch;
	u64 start;

	if (!proc || !window__is_open(proc))
		return 0;
	start = bpf_ktime_get_ns();
	scratch = scratch__acquire();
	if (!scratch)
		return 0;
	timer__sample(ctx, proc, pid, task, scratch, timer__weight(start));
	scratch__release(scratch);
	__sync_fetch_and_add(&proc->cost.sampler_ns, bpf_ktime_get_ns() - start);
	return 0;
}

/*
 * Fills in what the thread waits for. cause: CAUSE_NONE: the system call decides. state: the task
 * state in which the thread waits.
 */
static __always_inline void wait__fill(struct wait *w, struct task_struct *task, const struct proc *proc, u32 cause,
				       u32 state)
{
	const struct pt_regs *user = (const struct pt_regs *)bpf_task_pt_regs(task);
	struct thread *t;

	w->native = user->ip;
	w->syscall = regs__syscall(user);
	w->cause = cause ? cause : cause__of(task, &proc->py, user, w->syscall, state);
	w->woken_ns = 0;
	w->ran_ns = task->se.sum_exec_runtime;
	w->waker_pid = w->waker_tid = 0;
	w->stack = w->file = 0;
	w->ran_pid = 0;
	w->walked = 0;
	w->one_in = 1;
	w->place = wait__place(w, user);
	t = thread__seen(task, proc);
	if (t)
		t->gap_sampled = 1; /* the wait's sample may come only after the forward around it has ended */
	w->gil_sampled = w->cause == CAUSE_GIL && !(t && (t->depth || t->gap_ns));
}

/* Name id of the file that the current thread waits for; 0: none, or unknown. */
static __attribute__((noinline)) u64 wait__file(const struct wait *w, struct task_struct *task)
{
	switch (w->cause) {
	case CAUSE_DISK_READ:
	case CAUSE_DISK_WRITE:
	case CAUSE_FSYNC:
		return syscall__file_name(task);
	case CAUSE_PAGE_FAULT:
		return fault__file_name(task);
	}
	return 0;
}

/*
 * Does BPF walk the stack as this wait begins? It always does so while the sum of waits for the GIL
 * is empty, since waits__flush needs a stack.
 */
static __always_inline bool wait__wants_stack(const struct wait *w, const struct proc *proc)
{
	if (proc->window == WINDOW_CLOSED && !proc->forked_ns)
		return false;
	if (w->owed_cnt || (w->gil_sampled && !w->gil.ns) || w->syscall == SYS_EXECVE || w->syscall == SYS_EXECVEAT)
		return true; /* at the end of an exec the stack is gone */
	return w->one_in <= 1 || bpf_get_prandom_u32() % w->one_in == 0;
}

/* A part of a wait that gets a sample: blocked, or queued for a CPU. */
struct wait_part {
	u64 end_ns;
	u32 pid, tid;
	u32 cause;
	u32 pad;
};

static __always_inline void wait__fill_sample(struct rec_sample *rec, const struct wait *w, const struct wait_sum *sum,
					      const struct wait_part *part, u64 path)
{
	rec->time_ns = part->end_ns;
	rec->weight_ns = sum->ns;
	rec->stack = w->stack;
	rec->path = path;
	rec->native = w->native;
	rec->kernel = 0;
	rec->waits = sum->cnt + 1;
	rec->syscall = w->syscall;
	rec->kind = SAMPLE_WAIT;
	rec->cause = part->cause;
	rec->waker_pid = w->waker_pid;
	rec->waker_tid = w->waker_tid;
	rec->ran_pid = part->cause == CAUSE_RUN_QUEUE ? w->ran_pid : 0;
	rec->file = part->cause == CAUSE_RUN_QUEUE ? 0 : w->file;
}

/*
 * Emits a sample of a part, weighted by `sum`: of its own time (cnt 0), or of waits before it; or
 * notes it in `owed`, if its stack is walked later. t: NULL: the thread has had no event. 0
 * (counted): the ring buffer is full.
 */
__weak __noinline int wait__emit(const struct proc *proc, struct thread *t, struct wait *w, const struct wait_sum *sum,
				 const struct wait_part *part)
{
	struct sample_scratch *scratch;
	struct rec_sample *rec;
	u64 path = 0;

	if (!proc || !w || !sum || !part)
		return 0;
	scratch = t && t->depth ? scratch__acquire() : NULL;
	if (t)
		t->gap_sampled = 1;
	if (t && scratch) {
		scratch->path.until_ns = part->end_ns; /* the thread may have run on since, unseen */
		path = path__of(&scratch->path, t);
		scratch->path.until_ns = 0;
		around__request(t, path);
		scratch__release(scratch);
	}
	if (w->walks_later && w->owed_cnt < OWED_MAX) {
		rec = &w->owed[BOUND_INDEX(w->owed_cnt, OWED_MAX)];
		sample__begin(rec, proc, part->pid, part->tid);
		wait__fill_sample(rec, w, sum, part, path);
		w->owed_cnt++;
		return 1;
	}
	rec = sample__reserve();
	if (!rec)
		return 0;
	sample__begin(rec, proc, part->pid, part->tid);
	wait__fill_sample(rec, w, sum, part, path);
	if (rec->stack == STACK_NOT_WALKED)
		count(CNT_STACK_LOST);
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	return 1;
}

/* wait__emit, with what it has to know of the task. */
static __always_inline bool wait__send(const struct proc *proc, u32 pid, struct task_struct *task, struct wait *w,
				       const struct wait_sum *sum, u32 cause, u64 now)
{
	struct wait_part part = {.end_ns = now, .pid = pid, .tid = task_tid(task), .cause = cause};

	return wait__emit(proc, thread__seen(task, proc), w, sum, &part);
}

/*
 * One part of a wait has ended: blocked, or queued for a CPU. A long part gets a sample of its own.
 * BPF picks a shorter part with a probability proportional to its length; its sample then carries
 * the sum of the parts before it. Its own time goes into the sum for a later sample, so the size of
 * the sum does not influence which part is picked.
 */
static __always_inline void wait__sample(const struct proc *proc, u32 pid, struct task_struct *task, struct wait *w,
					 bool queued, u64 ns, u64 now)
{
	bool gil = w->gil_sampled;
	struct wait_sum *sum = gil ? (queued ? &w->gil_queued : &w->gil) : queued ? &w->queued : &w->blocked;
	u32 cause = queued ? CAUSE_RUN_QUEUE : w->cause;
	struct wait_sum one = {.ns = ns};

	if (!gil && ns >= wait_threshold_ns) {
		if (wait__send(proc, pid, task, w, &one, cause, now))
			return;
	} else if (sum->ns && wait__is_picked(w, proc, ns)) {
		if (wait__send(proc, pid, task, w, sum, cause, now))
			sum->ns = sum->cnt = 0;
	}
	sum->ns += ns;
	sum->cnt++;
}

static __always_inline bool is_counted(const struct proc *proc)
{
	return window__is_open(proc) || window__is_over(proc);
}

struct time_range {
	u64 since, now;
};

/* The process of a task that has a CPU, as in struct rec_sample. */
static __always_inline u32 task__ran_pid(struct task_struct *task)
{
	u32 pid = task_pid(task);

	return pid || !LOAD_HERE(task->tgid) ? pid : REC_PID_HIDDEN;
}

/*
 * Notes who had the CPU during the wait: the task that leaves it now, for as long as it had it. Who
 * had it before that is not known: then whoever leaves it at other waits, in proportion to how long
 * each had it. Else programs that run for microseconds at the end of long waits had it all the time.
 */
static __always_inline void wait__note_ran(struct wait *w, struct task_struct *before, u64 away_ns)
{
	u32 pid = task__ran_pid(before), chance = bpf_get_prandom_u32();
	u64 had_ns = before->se.sum_exec_runtime - before->se.prev_sum_exec_runtime;

	if (!pid)
		return;
	if (!w->ran_usual || chance >> RAN_SHIFT < had_ns)
		w->ran_usual = pid;
	w->ran_pid = had_ns < away_ns && chance % away_ns >= had_ns ? w->ran_usual : pid;
}

/*
 * A thread was away from the CPU. Not a global function: before Linux 6.8 a global function cannot
 * take a task.
 */
static __attribute__((noinline)) int wait__ended(const struct proc *proc, u32 pid, struct task_struct *task,
						 struct wait *w, const struct time_range *away)
{
	u64 since = away->since, now = away->now, woken;

	if (since < window__since(proc))
		since = window__since(proc);
	if (since >= now)
		return 0;
	wait__learn(w, now - since);
	woken = w->cause == CAUSE_RUN_QUEUE ? since : w->woken_ns ? w->woken_ns : now;
	woken = woken < since ? since : woken > now ? now : woken;
	if (woken > since)
		wait__sample(proc, pid, task, w, false, woken - since, woken);
	if (now > woken)
		wait__sample(proc, pid, task, w, true, now - woken, now);
	return 0;
}

/*
 * A thread comes to the CPU (the current task is still the previous one, `before`), or the window of
 * its process ends. With VISIT_CUT the wait so far becomes a sample, and the wait goes on.
 */
static __always_inline void wait__end(struct task_struct *task, struct task_struct *before, u32 visit, bool later)
{
	struct wait *w = task__is_beside(task) ? NULL : bpf_task_storage_get(&waits, task, NULL, 0);
	struct proc *proc;
	u64 now, since, ready;
	u32 pid;

	if (!w || !w->since_ns) /* most tasks are not the job's and end here */
		return;
	pid = task_pid(task);
	proc = bpf_map_lookup_elem(&procs, &pid);
	if (!proc || (window__is_over(proc) && visit != VISIT_CLOSE && visit != VISIT_REST)) /* these end the wait */
		return;
	now = window__is_over(proc) ? proc->window_end_ns : bpf_ktime_get_ns();
	/*
	 * A switch and a visit may run at the same time: only one of them gets the wait, and a
	 * thread that is running has none.
	 */
	since = visit == VISIT_CUT ? w->since_ns : __sync_lock_test_and_set(&w->since_ns, 0);
	if (!since || !is_counted(proc))
		return;
	if (visit == VISIT_CUT && __sync_val_compare_and_swap(&w->since_ns, since, now) != since)
		return;
	later = later && stack__has_python(proc);
	w->walks_later = later && !w->walked && !w->owed_cnt;
	ready = w->woken_ns > since ? w->woken_ns : since;
	if (before && now > ready)
		wait__note_ran(w, before, now - ready);
	wait__ended(proc, pid, task, w, &(struct time_range){since, now});
	if (later && w->walks_later && w->owed_cnt)
		walk_later__request(task);
	w->walks_later = 0;
}

/*
 * The current thread leaves the CPU, but BPF did not see it come: some kernels do not report
 * switches from certain tasks. The run-time account of the thread says how long it ran since; time
 * that a hypervisor took meanwhile counts as part of the wait.
 */
static __always_inline void wait__end_unseen(const struct proc *proc, u32 pid, struct task_struct *task, struct wait *w,
					     u64 now)
{
	u64 since = w->since_ns, ran = task->se.sum_exec_runtime - w->ran_ns;

	if (!since || since >= now || !is_counted(proc))
		return;
	w->since_ns = 0;
	wait__ended(proc, pid, task, w, &(struct time_range){since, ran < now - since ? now - ran : since});
}

/*
 * The current thread leaves the CPU. BPF notes the wait even if the window is closed, since it may
 * open during the wait: at a step, or when user space comes to a fork. But BPF does not walk the
 * stack then, since the window may also stay closed.
 */
static __always_inline void wait__begin(struct task_struct *task, struct task_struct *next, u32 cause, u32 state,
					bool later)
{
	u32 pid = task_pid(task);
	struct proc *proc = proc__of(pid);
	struct sample_scratch *scratch;
	struct wait *w;
	u64 start;

	if (!proc || window__is_over(proc))
		return;
	start = bpf_ktime_get_ns();
	w = bpf_task_storage_get(&waits, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w) {
		count(CNT_SAMPLES_LOST);
		return;
	}
	later = later && stack__has_python(proc);
	if (later && w->since_ns && !w->walked)
		w->stack = STACK_NOT_WALKED; /* it has run since */
	wait__end_unseen(proc, pid, task, w, start);
	wait__fill(w, task, proc, cause, state);
	w->ran_pid = cause == CAUSE_RUN_QUEUE ? task__ran_pid(next) : 0;
	w->one_in = wait__walked_one_in(w, proc, next, later);
	scratch = wait__wants_stack(w, proc) ? scratch__acquire() : NULL;
	if (scratch) {
		w->stack = stack__current(&scratch->stack, proc, pid);
		w->walked = 1;
		if (later)
			walk_later__send(w, w->stack);
		if (w->gil_sampled)
			w->gil_stack = w->stack;
		scratch__release(scratch);
	}
	w->file = wait__file(w, task);
	w->since_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(&proc->cost.sampler_ns, w->since_ns - start);
}

/* The thread or the window ends: emits the waits for the GIL that no sample carries yet. */
static __attribute__((noinline)) int waits__flush(struct task_struct *task)
{
	u32 pid = task_pid(task);
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct wait *w = proc ? bpf_task_storage_get(&waits, task, NULL, 0) : NULL;
	u64 now;

	if (!w)
		return 0;
	now = window__is_over(proc) ? proc->window_end_ns : bpf_ktime_get_ns();
	if (w->owed_cnt && task == bpf_get_current_task_btf())
		walk_later__send(w, 0); /* waits of the exit itself, in which no Python runs */
	w->stack = w->gil_stack;
	if (w->gil.ns && wait__send(proc, pid, task, w, &w->gil, CAUSE_GIL, now))
		w->gil.ns = w->gil.cnt = 0;
	if (w->gil_queued.ns && wait__send(proc, pid, task, w, &w->gil_queued, CAUSE_RUN_QUEUE, now))
		w->gil_queued.ns = w->gil_queued.cnt = 0;
	return 0;
}

static __always_inline void on_switch(bool preempt, struct task_struct *prev, struct task_struct *next,
				      unsigned int prev_state, bool later)
{
	bool runs_on = preempt || !prev_state;

	if (!runs_on && prev_state & TASK_DEAD)
		waits__flush(prev);
	else
		wait__begin(prev, next, runs_on ? CAUSE_RUN_QUEUE : CAUSE_NONE, prev_state, later);
	wait__end(next, prev, VISIT_OPEN, later);
}

/* User space loads one of these two programs. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sample_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	on_switch(preempt, prev, next, prev_state, false);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sample_switch_later, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	on_switch(preempt, prev, next, prev_state, can_walk_later());
	return 0;
}

/*
 * Runs in the context of the waker; sched_wakeup may run elsewhere. If an interrupt wakes the
 * thread, the current task is the one that the interrupt happened to hit, mostly not one of the
 * job.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(sample_waking, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct wait *w = task__is_beside(task) ? NULL : bpf_task_storage_get(&waits, task, NULL, 0);
	u32 pid;

	if (!w || !w->since_ns || w->woken_ns)
		return 0;
	w->woken_ns = bpf_ktime_get_ns();
	pid = task_pid(waker);
	if (bpf_map_lookup_elem(&procs, &pid)) {
		w->waker_pid = pid;
		w->waker_tid = task_tid(waker);
	}
	return 0;
}

/*
 * Visits each thread of the target when a window opens and when it closes: a wait in progress
 * counts from the opening, or up to the closing. This program cannot read the memory of the thread,
 * so at the opening user space reads the Python stacks of the waits in progress.
 */
SEC("iter/task")
int sample_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct proc *proc;
	struct wait *w;
	u32 pid;

	if (!task)
		return 0;
	pid = task_pid(task);
	proc = bpf_map_lookup_elem(&procs, &pid);
	if (thread_visit == VISIT_REST && (!proc || proc->window != WINDOW_RESTING))
		return 0;
	if (thread_visit != VISIT_OPEN) {
		wait__end(task, NULL, thread_visit, false);
		if (thread_visit != VISIT_CUT)
			waits__flush(task);
		return 0;
	}
	if (!proc || proc->window != WINDOW_OPEN || task->on_cpu)
		return 0;
	w = bpf_task_storage_get(&waits, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (w && !w->since_ns) {
		wait__fill(w, task, proc, CAUSE_NONE, task->__state);
		w->since_ns = bpf_ktime_get_ns();
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
