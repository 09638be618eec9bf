/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Spans of native functions: backward (Engine::execute), collectives, torch.save, and those that
 * the user names by --action LIB:SYMBOL. Its native frame identifies a span.
 */
#ifndef STEPFLAME_BPF_FUNCTIONS_H
#define STEPFLAME_BPF_FUNCTIONS_H

#include "bpf/span.h"
#include "bpf/steps.h"

/* Nodes on the engine's own threads work for this backward. */
static __always_inline void backward__began(struct proc *proc, const struct span *s)
{
	u32 slot = proc->ops.slot - 1;
	struct op_proc *p = proc->ops.slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;

	proc->steps.backward_action = s->action ?: s->name;
	if (p)
		p->backward_action = proc->steps.backward_action;
}

/*
 * Where checkpoints are re-entrant, the engine's thread calls Engine::execute inside of the backward
 * that it works for.
 */
static __always_inline bool fn__is_part(struct thread *t, struct task_struct *task, u32 kind)
{
	return is_part(t, kind) || (kind == SPAN_BACKWARD && task__is_engine(task));
}

static __always_inline void on_fn(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid, u32 fn,
				  u64 frame)
{
	const struct probe_fn *f = bpf_map_lookup_elem(&fns, &fn);
	struct thread *t = thread__enter(task, entry_sp(ctx, frame));
	struct span *s;

	if (!t || !f || fn__is_part(t, task, f->kind))
		return;
	if (f->kind == SPAN_BACKWARD) {
		gap__end(t, proc, pid);
		pass__train(t);
	}
	s = span__begin(t, f->kind, fn, f->name, frame);
	if (!s)
		return;
	phase__enter(t, s, phase__of_kind(f->kind));
	if (f->kind == SPAN_COMPILE)
		step__compiles(t);
	if (f->kind == SPAN_BACKWARD)
		backward__began(proc, s);
}

static __always_inline void on_fn_exit(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
				       u32 fn, u64 frame)
{
	const struct probe_fn *f = bpf_map_lookup_elem(&fns, &fn);
	struct thread *t = thread__enter(task, ctx->sp);

	if (!t || !f)
		return;
	if (span__end(t, proc, pid, span__find(t, f->kind, fn, frame))) {
		if (f->kind != SPAN_BACKWARD)
			return;
		gap__begin(t);
		t->backward = BACKWARD_EVER | BACKWARD_NEW;
		step__backward(t, proc, pid);
	} else if (!fn__is_part(t, task, f->kind) && span__find(t, f->kind, fn, 0) < 0) {
		count(CNT_OPEN_AT_START);
	}
}

/*
 * torch is about to open a file for writing, has opened it, or has completed it. While torch opens
 * the file the span is bound to the native frame, since an exception may leave that; from then on
 * Python code is part of the span too.
 */
static __always_inline void on_save(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid, u32 fn,
				    u32 flags, u64 frame)
{
	const struct probe_fn *f = bpf_map_lookup_elem(&fns, &fn);
	struct thread *t = thread__enter(task, flags & COOKIE_BEGINS ? entry_sp(ctx, frame) : ctx->sp);
	struct span *s;
	int open;

	if (!t || !f)
		return;
	open = span__find(t, SPAN_SAVE, 0, 0);
	if (flags & COOKIE_BEGINS) {
		if (open >= 0)
			span__drop_reused(t, open);
		s = span__begin(t, SPAN_SAVE, 0, f->name, frame);
		if (s)
			phase__enter(t, s, PHASE_CHECKPOINT);
	} else if (open < 0) {
		count(CNT_OPEN_AT_START);
	} else if (flags & COOKIE_LASTS) {
		span__unbind(t, span__at(t, open));
	} else {
		span__end(t, proc, pid, open);
	}
}

#endif
