/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * JAX: calls of jitted functions, and jax.profiler's annotations, whose functions run with or
 * without a profiler.
 *
 * PjitFunction_tp_vectorcall(callable, ...): its objects are {PyObject head; ...; vectorcallfunc;
 * std::string name; ...}, and the type's tp_vectorcall_offset says where the function pointer is
 * (jaxlib/pjit.cc, 0.4.30 to 0.11). JAX only traces a call nested in another one and does not run
 * it, so a nested call is not a span.
 */
#ifndef STEPFLAME_BPF_JAX_H
#define STEPFLAME_BPF_JAX_H

#include "bpf/python.h"
#include "bpf/span.h"
#include "bpf/steps.h"

/* Of PyTypeObject in CPython 3.8 to 3.15: tp_name and tp_vectorcall_offset, without py_layout__longer. */
#define TYPE_NAME              24
#define TYPE_VECTORCALL_OFFSET 56
#define VECTORCALL_OFFSET_MAX  256

/* Name id of a jitted function; that of `f` if the name is unreadable (counted). */
static __always_inline u64 jit__name(struct thread *t, struct proc *proc, const struct probe_fn *f, u64 callable)
{
	u32 longer = py_layout__longer(&proc->py.layout);
	u64 type = read_u64(callable + OBJECT_TYPE + longer), string[2] = {}, name = 0;
	u64 offset = read_u64(type + TYPE_VECTORCALL_OFFSET + longer);

	if (offset >= 16 && offset < VECTORCALL_OFFSET_MAX &&
	    !bpf_probe_read_user(string, sizeof(string), (const void *)(callable + offset + 8)) && string[1] &&
	    string[1] < REC_NAME_MAX)
		name = name__read_jit(&t->names, string[0], string[1]);
	else
		count(CNT_NAME_LOST);
	return name ? name__admit(&t->names, proc, name, NAMES_JIT) : f->name;
}

static __always_inline void on_jit(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 fn, u64 frame)
{
	const struct probe_fn *f = bpf_map_lookup_elem(&fns, &fn);
	struct thread *t = thread__enter(task, entry_sp(ctx, frame));
	struct span *s;

	if (!t || !f || is_part(t, SPAN_JIT))
		return;
	s = span__begin(t, SPAN_JIT, fn, jit__name(t, proc, f, ctx->di), frame);
	if (s)
		phase__enter(t, s, PHASE_JIT);
}

static __always_inline void on_jit_exit(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
					u32 fn, u64 frame)
{
	struct thread *t = thread__enter(task, ctx->sp);
	struct span *s;

	if (!t)
		return;
	s = span__end(t, proc, pid, span__find(t, SPAN_JIT, fn, frame));
	if (s)
		step__jit(t, proc, pid, s->name, s->label ? 0 : t->now_ns - s->start_ns);
	else if (!is_part(t, SPAN_JIT))
		count(CNT_OPEN_AT_START);
}

/* Is this an object of the class jax.profiler.StepTraceAnnotation? */
static __always_inline bool is_step_annotation(u32 longer, u64 object)
{
	u64 head[2] = {}, type = read_u64(object + OBJECT_TYPE + longer);

	bpf_probe_read_user(head, sizeof(head), (const void *)read_u64(type + TYPE_NAME + longer));
	return head[0] == WORD8("StepTrac") && head[1] == WORD8("eAnnotat");
}

static __always_inline void on_annotation(struct pt_regs *ctx, struct task_struct *task, struct proc *proc)
{
	struct thread *t = thread__enter(task, ctx->sp);
	struct py_text text;
	u64 args[2] = {}, name;
	struct span *s;
	int stale;

	if (!t)
		return;
	if (bpf_probe_read_user(args, sizeof(args), (const void *)LOAD_HERE(ctx->si)) ||
	    py__text(&proc->py.layout, args[1], &text)) {
		count(CNT_NAME_LOST);
		return;
	}
	name = name__admit(&t->names, proc, name__read(&t->names, text.address, text.bytes, text.encoding),
			   NAMES_LABELS);
	if (!name)
		return;
	/*
	 * An open label with this token is stale: its object was dropped without an end, and its
	 * memory is in use again.
	 */
	stale = span__find(t, SPAN_LABEL, args[0], 0);
	if (stale >= 0)
		span__drop_reused(t, stale);
	s = span__begin(t, SPAN_LABEL, args[0], name, 0);
	if (s)
		s->label = is_step_annotation(py_layout__longer(&proc->py.layout), args[0]) ? LABEL_PROFILER_STEP
											    : LABEL_USER;
}

static __always_inline void on_annotation_end(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid)
{
	struct thread *t = thread__enter(task, ctx->sp);
	struct span *s;

	if (!t)
		return;
	s = span__end(t, proc, pid, span__find(t, SPAN_LABEL, read_u64(LOAD_HERE(ctx->si)), 0));
	if (!s)
		count(CNT_OPEN_AT_START);
	else if (s->label == LABEL_PROFILER_STEP)
		step__boundary(t, proc, pid, STEP_ANNOTATION);
}

#endif
