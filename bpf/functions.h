/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Spans of native functions: backward (Engine::execute), collectives, waits for the GPU, and what the user names by
 * --action LIB:SYMBOL. Known by the frame they run in.
 */
#ifndef STEPFLAME_FUNCTIONS_H
#define STEPFLAME_FUNCTIONS_H

#include "span.h"

/* Nodes on the engine's own threads are done for what this one does. */
static __always_inline void backward__began(const struct proc *proc, const struct span *s)
{
	u32 slot = proc->op_slot - 1;
	struct op_proc *p = proc->op_slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;

	if (p && s)
		p->backward_action = s->action ?: s->name;
}

/*
 * Is a call of that function part of one that is open? A backward inside a backward (checkpointing) is, and so are a
 * collective that is made of others, and the driver's wait inside the runtime's. What the user names is counted at each
 * call.
 */
__weak __noinline int is_part(struct thread *t, u32 kind)
{
	u32 depth;

	if (!t || kind == SPAN_USER)
		return 0;
	depth = t->depth;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		if (n >= depth)
			break;
		if (span__at(t, n)->kind == kind)
			return 1;
	}
	return 0;
}

static __always_inline void on_fn(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid, u32 fn,
				  u64 frame)
{
	const struct probe_fn *f = bpf_map_lookup_elem(&fns, &fn);
	struct thread *t = thread__enter(task, entry_sp(ctx, frame));

	if (!t || !f || is_part(t, f->kind))
		return;
	if (f->kind == SPAN_BACKWARD) {
		gap__end(t, proc, pid);
		backward__began(proc, span__begin(t, f->kind, fn, f->name, frame));
	} else {
		span__begin(t, f->kind, fn, f->name, frame);
	}
}

static __always_inline void on_fn_exit(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
				       u32 fn, u64 frame)
{
	const struct probe_fn *f = bpf_map_lookup_elem(&fns, &fn);
	struct thread *t = thread__enter(task, ctx->sp);

	if (!t || !f)
		return;
	if (span__end(t, proc, pid, span__find(t, f->kind, fn, frame))) {
		if (f->kind == SPAN_BACKWARD)
			gap__begin(t);
	} else if (!is_part(t, f->kind) && span__find(t, f->kind, fn, 0) < 0) {
		count(CNT_OPEN_AT_START);
	}
}

#endif
