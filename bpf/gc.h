/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Garbage collections, and code objects that end.
 *
 * CPython 3.8 to 3.15 calls invoke_gc_callback(..., phase, generation, ...) for gc.callbacks before
 * each collection with the phase "start" and after it with "stop", whether there are callbacks or
 * not. Collections never nest.
 */
#ifndef STEPFLAME_BPF_GC_H
#define STEPFLAME_BPF_GC_H

#include "bpf/span.h"

#define GC_GENERATIONS 3
#define GC_PAGE_MASK   0xfff

static __always_inline void on_gc(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid, u32 flags,
				  u32 start)
{
	u64 first = ctx->di, second = ctx->si, third = ctx->dx, phase;
	struct thread *t = thread__enter(task, ctx->sp);
	struct span *collection;
	u32 generation;
	int open;

	/*
	 * Otherwise clang selects an address first, and the verifier refuses a context pointer that
	 * was added to.
	 */
	asm volatile("" : "+r"(first), "+r"(second), "+r"(third));
	phase = flags & COOKIE_PHASE_FIRST ? first : second;
	generation = flags & COOKIE_PHASE_FIRST ? second : third;
	if (!t)
		return;
	open = span__find(t, SPAN_GC, 0, 0);
	/*
	 * The text's offset in its page shows whether it is "start", since a load address does not
	 * change that offset. BPF does not read the text: the read may fail in a page that the
	 * process has not used.
	 */
	if ((phase ^ start) & GC_PAGE_MASK) {
		collection = span__end(t, proc, pid, open);
		if (!collection)
			count(CNT_OPEN_AT_START);
		else if (sample_period_ns && in_window(proc, collection->start_ns))
			interval__send(SPAN_GC, collection->name, collection->start_ns, t->now_ns,
				       DEPTH_AND_STEP(open, proc->steps.cnt));
		return;
	}
	if (open >= 0) /* its end was missed while the probes were detached */
		span__drop_reused(t, open);
	if (generation < GC_GENERATIONS)
		span__begin(t, SPAN_GC, 0, fixed_name(NAME_GC_0 + generation), 0);
}

/* code_dealloc(code): a code object ends, and another one may take its address. */
static __always_inline void on_code_end(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid)
{
	struct thread *t = proc->codes.told_since_ns ? thread__of(task) : NULL;

	if (!t || !code__forget(&t->names, proc, pid, ctx->di))
		proc->codes.told_since_ns = 0;
	__sync_fetch_and_add(&proc->codes.ended, 1);
}

#endif
