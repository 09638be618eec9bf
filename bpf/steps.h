/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Step boundaries, by the first of these rules that a process shows: Lightning's run_training_batch; a DataLoader batch
 * and then an optimizer step (several optimizers, or several batches, make one step); an optimizer step alone, of the
 * first optimizer seen; ProfilerStep#; JAX's StepTraceAnnotation; backward alone, of several since a batch came the
 * first; calls of one of JAX's jitted functions; the DataLoader's next alone. A better rule replaces a worse one when it
 * is first seen. What --step-at names is the only rule.
 */
#ifndef STEPFLAME_STEPS_H
#define STEPFLAME_STEPS_H

#include "gpu_window.h"
#include "op_window.h"
#include "pass.h"
#include "phase.h"

/* struct proc.data_seen */
#define DATA_FOR_OPTIMIZER 1 /* no optimizer has stepped since a DataLoader batch came */
#define DATA_USED          2 /* a backward has, and none came */
#define DATA_EVER          4

static __always_inline void step__send(const struct thread *t, const struct proc *proc, u32 pid)
{
	struct rec_step *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_RING_FULL);
		return;
	}
	rec->hdr.type = REC_STEP;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->time_ns = t->now_ns;
	rec->index = proc->steps;
	rec->pid = pid;
	rec->rule = proc->step_rule;
	rec->tid = task_tid(bpf_get_current_task_btf());
	rec->pad = 0;
	/* The step began at another thread's boundary, or with the recording: what this one did since is not all of it. */
	if (proc->boundary_ns && proc->boundary_ns == t->phases_from_ns)
		__builtin_memcpy(rec->phase_ns, t->phase_ns, sizeof(rec->phase_ns));
	else
		__builtin_memset(rec->phase_ns, 0, sizeof(rec->phase_ns));
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

/* Calls of CUDA since the last boundary. What other threads add meanwhile is in the next step. */
static __always_inline void step__send_gpu(const struct thread *t, struct proc *proc, u32 pid)
{
	struct gpu_sums now = proc->gpu, before = proc->gpu_before;
	struct rec_gpu_step *rec;

	proc->gpu_before = now;
	if (!proc->boundary_ns || !(now.launches | now.copies | now.api_ns | now.sync_ns))
		return; /* no step ends here; or the process has no CUDA */
	rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);
	if (!rec) {
		count(CNT_RING_FULL);
		return;
	}
	rec->hdr.type = REC_GPU_STEP;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->time_ns = t->now_ns;
	rec->index = proc->steps;
	rec->pid = pid;
	rec->pad = 0;
	rec->launches = now.launches - before.launches;
	rec->copies = now.copies - before.copies;
	rec->copied_bytes = now.copied_bytes - before.copied_bytes;
	rec->api_ns = now.api_ns - before.api_ns;
	rec->sync_ns = now.sync_ns - before.sync_ns;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

static __always_inline void step__end(struct thread *t, struct proc *proc, u32 pid)
{
	phase__set(t, t->phase);
	pass__cut(t);
	if (want_step_times)
		step__send(t, proc, pid);
	if (want_gpu)
		step__send_gpu(t, proc, pid);
	phase__restart(t);
	phase__keep(t, t->pass.before_ns);
	proc->boundary_ns = t->now_ns;
}

/*
 * What the last two rules see is there too before a better one is first seen: the backwards of gradient accumulation, the
 * batches of a validation. So they hold only when so many have passed with no better one.
 */
#define STEP_PATIENCE 32

static __always_inline bool step__holds(struct proc *proc, u32 rule)
{
	if (rule == STEP_BACKWARD)
		return proc->backwards >= STEP_PATIENCE || ++proc->backwards == STEP_PATIENCE;
	if (rule == STEP_LOADER)
		return proc->batches >= STEP_PATIENCE || ++proc->batches == STEP_PATIENCE;
	return true;
}

/* Windows of operators count from when these were found. */
static __always_inline void step__schedule(struct proc *proc, u32 pid, u64 now)
{
	u32 slot = proc->op_slot - 1;
	struct op_proc *p = proc->op_slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;
	u64 step = proc->boundaries++;

	if (p)
		step = op_window__boundary(p, now);
	if (want_gpu_windows)
		gpu_window__boundary(proc, pid, step, now);
}

/* A step ends and the next begins, at t->now_ns. */
__weak __noinline int step__boundary(struct thread *t, struct proc *proc, u32 pid, u32 rule)
{
	if (!t || !proc || (step_at[0] && rule != STEP_USER))
		return 0;
	if ((proc->step_rule && proc->step_rule < rule) || !step__holds(proc, rule))
		return 0;
	if (proc->step_rule != rule) {
		proc->step_rule = rule;
		proc->steps = 0;
		proc->boundary_ns = 0;
		if (proc->window == WINDOW_WAITING)
			return 0; /* opens when the rule has held for a step: the first boundary may be of a worse one */
	}
	step__schedule(proc, pid, t->now_ns);
	if (proc->window == WINDOW_WAITING) {
		proc->window_start_ns = t->now_ns;
		proc->steps = 0;
		proc->window = WINDOW_OPEN;
		proc->boundary_ns = 0;
	} else if (proc->window != WINDOW_OPEN) {
		return 0;
	} else if (++proc->steps == step_limit) {
		proc->window_end_ns = t->now_ns;
		proc->window = WINDOW_DONE;
	}
	step__end(t, proc, pid);
	return 0;
}

static __always_inline void step__optimizer(struct thread *t, struct proc *proc, u32 pid, u64 name)
{
	if (!proc->optimizer)
		proc->optimizer = name;
	if (proc->data_seen & DATA_FOR_OPTIMIZER) {
		proc->data_seen &= ~DATA_FOR_OPTIMIZER;
		step__boundary(t, proc, pid, STEP_LOADER_OPTIMIZER);
	} else if (proc->step_rule != STEP_LOADER_OPTIMIZER && name == proc->optimizer) {
		step__boundary(t, proc, pid, STEP_OPTIMIZER);
	}
}

/* In plain loops: not inside of Lightning's actions, nor of an optimizer's closure. */
static __always_inline void step__backward(struct thread *t, struct proc *proc, u32 pid)
{
	if (t->phase != PHASE_OTHER || proc->data_seen & DATA_USED)
		return;
	if (proc->data_seen)
		proc->data_seen |= DATA_USED;
	proc->batches = 0; /* it trains */
	step__boundary(t, proc, pid, STEP_BACKWARD);
}

/* A batch is about to be fetched, and what was done with the one before is done. */
static __always_inline void step__fetch(struct thread *t, struct proc *proc, u32 pid)
{
	if (t->phase != PHASE_OTHER)
		return;
	if (proc->step_rule == STEP_LOADER && !t->pass.trains &&
	    !t->pass.empty) /* an inference: a forward has no backward */
		gap__end(t, proc, pid);
	pass__fetch(t, proc, pid);
	step__boundary(t, proc, pid, STEP_LOADER);
}

/* XLA compiles. */
static __always_inline void step__compiles(struct thread *t)
{
	int i = span__find(t, SPAN_JIT, TOKEN_ANY, 0);

	if (i >= 0)
		span__at(t, i)->label = 1;
}

/*
 * Which jitted function is the one that is called once a step? The one that takes most of the time of all their calls
 * but those in which XLA compiles; where none takes half of it, in the end one that takes some.
 */
#define JIT_CALLS 4   /* of a function, before it is chosen */
#define JIT_AWAY  256 /* calls of others, after which the function chosen is no more */

static __always_inline bool jit__is_step(const struct proc *proc, const struct jit_val *val)
{
	u32 share = proc->jit_calls < 64 ? 2 : proc->jit_calls < 256 ? 4 : 16;

	return val->calls >= JIT_CALLS && val->ns * share >= proc->jit_ns;
}

/* A call of a jitted function has ended, and took so long; 0: XLA compiled in it. */
__weak __noinline int step__jit(struct thread *t, struct proc *proc, u32 pid, u64 name, u64 ns)
{
	struct jit_key key = {.name = name, .pid = pid};
	struct jit_val *val, zero = {};

	if (!t || !proc || (proc->step_rule && proc->step_rule < STEP_JIT))
		return 0;
	val = bpf_map_lookup_elem(&jits, &key);
	if (!val) {
		bpf_map_update_elem(&jits, &key, &zero, BPF_NOEXIST);
		val = bpf_map_lookup_elem(&jits, &key);
	}
	if (val && ns) {
		__sync_fetch_and_add(&val->calls, 1);
		__sync_fetch_and_add(&val->ns, ns);
		__sync_fetch_and_add(&proc->jit_ns, ns);
		proc->jit_calls++;
	}
	if (proc->step_jit != name) {
		if (!val || (proc->step_jit && ++proc->jit_others < JIT_AWAY) || !jit__is_step(proc, val))
			return 0;
		proc->step_jit = name;
		if (proc->step_rule == STEP_JIT)
			proc->step_rule = STEP_NONE; /* counts anew */
	}
	proc->jit_others = 0;
	step__boundary(t, proc, pid, STEP_JIT);
	return 0;
}

/* The event at hand may have ended a span of --step-at. */
static __always_inline void step__user(struct task_struct *task, struct proc *proc, u32 pid)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);

	if (!t || !t->step_ended)
		return;
	t->step_ended = 0;
	step__boundary(t, proc, pid, STEP_USER);
}

#endif
