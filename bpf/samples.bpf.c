// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples: the Python stack and the spans of a target's thread, when a timer finds it running and after it has waited.
 * In: a timer on each CPU, and the scheduler's switches and wake-ups. Out: REC_SAMPLE, and each stack and function the
 * first time.
 *
 *   timer  ------------------------------> sample, of the timer's period
 *   switch, it leaves -> its wait --+
 *   wake-up           -> its wait --+
 *   switch, it comes  --------------+----> sample, of the time it was away
 *
 * On one CPU none of these programs can interrupt another, except from an NMI.
 */
#include "bpf/around.h"
#include "bpf/files.h"
#include "bpf/span.h"
#include "bpf/window.h"

/* include/linux/sched.h */
#define TASK_STOPPED 0x04
#define TASK_TRACED  0x08
#define TASK_DEAD    0x80

/*
 * Threads that take the GIL from each other wait for it by the ten thousand a second. None of these waits is longer
 * than the interpreter's switch interval, 5 ms, so that one in so many stacks will do. Not of a thread that trains:
 * each of its steps is to have its own waits.
 */
#define GIL_WALKED  4
#define GIL_LONG_NS 5000000

/* Waits that have no sample yet, and will be in that of another one. */
struct wait_sum {
	u64 ns;
	u32 cnt;
	u32 pad;
};

/* A thread that is away from the CPU. */
struct wait {
	u64 since_ns; /* 0: it runs */
	u64 woken_ns; /* 0: not yet */
	u64 ran_ns;   /* how long it ran in its life */
	u64 stack, native;
	u64 gil_stack; /* of its last wait for the GIL of which it was taken */
	u64 file;      /* as in struct rec_sample */
	struct wait_sum blocked, queued, gil, gil_queued;
	s32 syscall;
	u32 cause;
	u32 waker_pid, waker_tid; /* as in struct rec_sample */
	u16 walked;               /* its stack was taken, be it none */
	u16 gil_by_chance;        /* it is one of many for the GIL */
	u32 pad;
};

volatile __u32 thread_visit = VISIT_OPEN; /* set by user space: enum thread_visit */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wait);
} waits SEC(".maps");

/* Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer_spell);
} timer_spells SEC(".maps");

struct sample_room {
	struct stack_room stack;
	struct path_room path;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sample_room);
} sample_rooms SEC(".maps");

/* This CPU's; NULL (counted): an NMI has come between. Given back by room__leave. */
static __always_inline struct sample_room *room__enter(void)
{
	static const u32 zero = 0;
	struct sample_room *room = bpf_map_lookup_elem(&sample_rooms, &zero);

	if (!room || room->stack.busy) {
		count(CNT_SAMPLES_LOST);
		return NULL;
	}
	room->stack.busy = 1;
	return room;
}

static __always_inline void room__leave(struct sample_room *room)
{
	room->stack.busy = 0;
}

__weak __noinline u64 stack__current(struct sample_room *room, const struct proc *proc, u32 pid)
{
	return room && proc ? stack__of(&room->stack, proc, pid) : 0;
}

static __always_inline struct rec_sample *sample__reserve(const struct proc *proc, u32 pid, struct task_struct *task)
{
	struct rec_sample *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_SAMPLES_LOST);
		return NULL;
	}
	rec->hdr.type = REC_SAMPLE;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->pid = pid;
	rec->tid = task_tid(task);
	rec->step = proc->steps.cnt;
	rec->waker_pid = rec->waker_tid = 0;
	rec->pad = 0;
	rec->file = 0;
	return rec;
}

/*
 * What a sample stands for: its timer's period. The first of a spell has on average half of the period before it, too,
 * which was broken off. Not the time since the timer ran out before: it may not do so while a CPU is idle.
 */
static __always_inline u64 timer__weight(u64 now)
{
	static const u32 zero = 0;
	const struct timer_spell *spell = bpf_map_lookup_elem(&timer_spells, &zero);
	bool first;

	if (!spell)
		return 0;
	first = now - spell->since_ns < spell->period_ns + spell->period_ns / 2;
	return spell->period_ns + (first ? spell->before_ns / 2 : 0);
}

/* The file that it reads or writes just now, if it has a row already: its name; 0: none. */
static __always_inline u64 timer__file(struct task_struct *task)
{
	const struct syscall_thread *t = bpf_task_storage_get(&syscall_threads, task, NULL, 0);
	const struct file_val *row =
		t && t->since_ns && t->on_file ? bpf_map_lookup_elem(&file_rows, &t->file.key) : NULL;

	return row ? row->name : 0;
}

static __always_inline void timer__sample(struct bpf_perf_event_data *ctx, const struct proc *proc, u32 pid,
					  struct task_struct *task, struct sample_room *room, u64 weight_ns)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);
	const struct pt_regs *user = (const struct pt_regs *)bpf_task_pt_regs(task);
	bool in_kernel = !(ctx->regs.cs & 3);
	u64 path = t ? path__of(&room->path, t) : 0;
	u64 stack = stack__current(room, proc, pid);
	struct rec_sample *rec = sample__reserve(proc, pid, task);

	if (!rec) /* first: Linux 6.1 forgets what was not asked at once */
		return;
	if (t) {
		t->gap_sampled = 1;
		around__ask(t, path);
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
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct sample_room *room;
	u64 start;

	if (!proc || !window__is_open(proc))
		return 0;
	start = bpf_ktime_get_ns();
	room = room__enter();
	if (!room)
		return 0;
	timer__sample(ctx, proc, pid, task, room, timer__weight(start));
	room__leave(room);
	__sync_fetch_and_add(&proc->paid.sampler_ns, bpf_ktime_get_ns() - start);
	return 0;
}

/* cause: CAUSE_NONE, when its call tells. state: in which it waits. */
static __always_inline void wait__what(struct wait *w, struct task_struct *task, const struct proc *proc, u32 cause,
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
	w->walked = 0;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (t)
		t->gap_sampled = 1; /* the wait may be told only when a forward around it is over */
	w->gil_by_chance = w->cause == CAUSE_GIL && !(t && (t->depth || t->gap_ns));
}

/* Of the current thread. */
static __always_inline u64 wait__file(const struct wait *w, struct task_struct *task)
{
	if (w->cause != CAUSE_DISK_READ && w->cause != CAUSE_DISK_WRITE && w->cause != CAUSE_FSYNC &&
	    w->cause != CAUSE_PAGE_FAULT)
		return 0;
	return syscall_thread__file(bpf_task_storage_get(&syscall_threads, task, NULL, 0));
}

/* The first of many for the GIL always: it is what there is at the end. */
static __always_inline bool wait__wants_stack(const struct wait *w, const struct proc *proc)
{
	return (proc->window != WINDOW_CLOSED || proc->forked_ns) &&
	       (!w->gil_by_chance || !w->gil.ns || bpf_get_prandom_u32() % GIL_WALKED == 0);
}

/* False: it did not fit. */
static __always_inline bool wait__emit(const struct proc *proc, u32 pid, struct task_struct *task, const struct wait *w,
				       const struct wait_sum *sum, u32 cause, u64 stack, u64 now)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);
	struct sample_room *room = t && t->depth ? room__enter() : NULL;
	struct rec_sample *rec;
	u64 path = 0;

	if (t)
		t->gap_sampled = 1;
	if (room) {
		path = path__of(&room->path, t);
		around__ask(t, path);
		room__leave(room);
	}
	rec = sample__reserve(proc, pid, task);
	if (!rec)
		return false;
	rec->time_ns = now;
	rec->weight_ns = sum->ns;
	rec->stack = stack;
	rec->path = path;
	rec->native = w->native;
	rec->kernel = 0;
	rec->waits = sum->cnt;
	rec->syscall = w->syscall;
	rec->kind = SAMPLE_WAIT;
	rec->cause = cause;
	rec->waker_pid = w->waker_pid;
	rec->waker_tid = w->waker_tid;
	rec->file = cause == CAUSE_RUN_QUEUE ? 0 : w->file;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	return true;
}

/*
 * One part of a wait has ended. A long one has a sample of its own. A shorter one becomes that of those before it by a
 * chance that is as large as it is long, and waits for another itself: so what is in the sum has no part in who gets
 * it.
 */
static __always_inline void wait__sample(const struct proc *proc, u32 pid, struct task_struct *task, struct wait *w,
					 bool queued, u64 ns, u64 now)
{
	bool gil = w->gil_by_chance;
	struct wait_sum *sum = gil ? (queued ? &w->gil_queued : &w->gil) : queued ? &w->queued : &w->blocked;
	u32 cause = queued ? CAUSE_RUN_QUEUE : w->cause;
	struct wait_sum one = {.ns = ns, .cnt = 1};

	if (!gil && ns >= wait_threshold_ns) {
		if (wait__emit(proc, pid, task, w, &one, cause, w->stack, now))
			return;
	} else if (sum->ns && w->walked && bpf_get_prandom_u32() % (gil ? GIL_LONG_NS : wait_threshold_ns) < ns) {
		if (wait__emit(proc, pid, task, w, sum, cause, w->stack, now))
			sum->ns = sum->cnt = 0;
	}
	sum->ns += ns;
	sum->cnt++;
}

static __always_inline bool is_counted(const struct proc *proc)
{
	return window__is_open(proc) || proc->window == WINDOW_DONE;
}

struct stretch {
	u64 since, now;
};

/* A thread was away from the CPU. Not global: kernels before 6.8 take no task there. */
static __attribute__((noinline)) int wait__ended(const struct proc *proc, u32 pid, struct task_struct *task,
						 struct wait *w, const struct stretch *away)
{
	u64 since = away->since, now = away->now, woken;

	if (since < window__since(proc))
		since = window__since(proc);
	if (since >= now)
		return 0;
	woken = w->cause == CAUSE_RUN_QUEUE ? since : w->woken_ns ? w->woken_ns : now;
	woken = woken < since ? since : woken > now ? now : woken;
	if (woken > since)
		wait__sample(proc, pid, task, w, false, woken - since, woken);
	if (now > woken)
		wait__sample(proc, pid, task, w, true, now - woken, now);
	return 0;
}

/*
 * A thread comes to the CPU (the current one is another still), or its process's window is over. With VISIT_CUT its
 * wait goes on.
 */
static __always_inline void wait__end(struct task_struct *task, u32 visit)
{
	struct wait *w = bpf_task_storage_get(&waits, task, NULL, 0);
	struct proc *proc;
	u64 now, since;
	u32 pid;

	if (!w || !w->since_ns) /* so are most, which are none of the job's */
		return;
	pid = task_pid(task);
	proc = bpf_map_lookup_elem(&procs, &pid);
	if (!proc || (proc->window == WINDOW_DONE && visit != VISIT_CLOSE)) /* it is ended at the close */
		return;
	now = proc->window == WINDOW_DONE ? proc->window_end_ns : bpf_ktime_get_ns();
	/*
	 * A switch and a visit may come together: one of them has the wait, and a thread that has come to the CPU has
	 * none.
	 */
	since = visit == VISIT_CUT ? w->since_ns : __sync_lock_test_and_set(&w->since_ns, 0);
	if (!since || !is_counted(proc))
		return;
	if (visit == VISIT_CUT && __sync_val_compare_and_swap(&w->since_ns, since, now) != since)
		return;
	wait__ended(proc, pid, task, w, &(struct stretch){since, now});
}

/*
 * The current thread leaves the CPU, and we did not see it come: some kernels do not tell of switches from certain
 * tasks. It ran since for as long as its account says, less what a hypervisor took.
 */
static __always_inline void wait__unseen(const struct proc *proc, u32 pid, struct task_struct *task, struct wait *w,
					 u64 now)
{
	u64 since = w->since_ns, ran = task->se.sum_exec_runtime - w->ran_ns;

	if (!since || since >= now || !is_counted(proc))
		return;
	w->since_ns = 0;
	wait__ended(proc, pid, task, w, &(struct stretch){since, ran < now - since ? now - ran : since});
}

/*
 * The current thread leaves the CPU. The window may open while it waits, at a step or when user space comes to a fork;
 * one that is closed may stay so, and no stack is taken for it.
 */
static __always_inline void wait__begin(struct task_struct *task, u32 cause, u32 state)
{
	u32 pid = task_pid(task);
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct sample_room *room;
	struct wait *w;
	u64 start;

	if (!proc || proc->window == WINDOW_DONE)
		return;
	start = bpf_ktime_get_ns();
	w = bpf_task_storage_get(&waits, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w) {
		count(CNT_SAMPLES_LOST);
		return;
	}
	wait__unseen(proc, pid, task, w, start);
	wait__what(w, task, proc, cause, state);
	room = wait__wants_stack(w, proc) ? room__enter() : NULL;
	if (room) {
		w->stack = stack__current(room, proc, pid);
		w->walked = 1;
		w->file = wait__file(w, task);
		if (w->gil_by_chance)
			w->gil_stack = w->stack;
		room__leave(room);
	}
	w->since_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(&proc->paid.sampler_ns, w->since_ns - start);
}

/* The thread, or the window, ends: the waits for the GIL that wait for another still. */
static __always_inline void waits__flush(struct task_struct *task)
{
	u32 pid = task_pid(task);
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct wait *w = proc ? bpf_task_storage_get(&waits, task, NULL, 0) : NULL;
	u64 now;

	if (!w)
		return;
	now = proc->window == WINDOW_DONE ? proc->window_end_ns : bpf_ktime_get_ns();
	if (w->gil.ns && wait__emit(proc, pid, task, w, &w->gil, CAUSE_GIL, w->gil_stack, now))
		w->gil.ns = w->gil.cnt = 0;
	if (w->gil_queued.ns && wait__emit(proc, pid, task, w, &w->gil_queued, CAUSE_RUN_QUEUE, w->gil_stack, now))
		w->gil_queued.ns = w->gil_queued.cnt = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sample_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	bool runs_on = preempt || !prev_state;

	if (!runs_on && prev_state & TASK_DEAD)
		waits__flush(prev);
	else
		wait__begin(prev,
			    runs_on                                     ? CAUSE_RUN_QUEUE
			    : prev_state & (TASK_STOPPED | TASK_TRACED) ? CAUSE_UNKNOWN
									: CAUSE_NONE,
			    prev_state);
	wait__end(next, VISIT_OPEN);
	return 0;
}

/*
 * In the context of who wakes, which sched_wakeup need not be in. An interrupt may wake, too: then the current thread
 * is one that it met by chance, mostly none of the job's.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(sample_waking, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct wait *w = bpf_task_storage_get(&waits, task, NULL, 0);
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
 * Each thread of the target as it is when a window opens and when it closes: one that waits then waits from the one,
 * and until the other. Its memory is not at hand: user space reads what of Python it waits in at the first.
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
	if (thread_visit != VISIT_OPEN) {
		wait__end(task, thread_visit);
		if (thread_visit == VISIT_CLOSE)
			waits__flush(task);
		return 0;
	}
	pid = task_pid(task);
	proc = bpf_map_lookup_elem(&procs, &pid);
	if (!proc || proc->window != WINDOW_OPEN || task->on_cpu)
		return 0;
	w = bpf_task_storage_get(&waits, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (w && !w->since_ns) {
		wait__what(w, task, proc, CAUSE_NONE, task->__state);
		w->since_ns = bpf_ktime_get_ns();
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
