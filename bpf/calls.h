/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls of the Python functions that --action names, probed where they enter and leave the
 * interpreter's loop (CPython 3.8 to 3.10). BPF identifies a function by the names in its code
 * object, since Python may define it at any time and reuse its address.
 */
#ifndef STEPFLAME_BPF_CALLS_H
#define STEPFLAME_BPF_CALLS_H

#include "bpf/python.h"
#include "bpf/span.h"

/*
 * The frame that the current thread runs; at the entry and at the end of the interpreter's loop
 * this is the caller's frame.
 */
static __always_inline u64 py__current(const struct proc *proc)
{
	struct py_walk walk;

	py__walk(&walk, &proc->py.layout, py__tstate(&proc->py));
	return walk.frame;
}

/* Is `path` the file of `call`, or does it end with that file behind a separator? */
static __always_inline bool py_call__in_file(struct thread *t, const struct py_layout *py, u64 path,
					     const struct py_call *call)
{
	struct py_text text;
	u64 bytes, start;
	u32 before = 0;

	if (py__text(py, path, &text))
		return false;
	bytes = (u64)call->file_chars * text.encoding;
	if (bytes > text.bytes || bytes > REC_NAME_MAX)
		return false;
	start = text.address + text.bytes - bytes;
	if (bytes < text.bytes &&
	    (bpf_probe_read_user(&before, text.encoding & 7, (const void *)(start - text.encoding)) || before != '/'))
		return false;
	return name__read(&t->names, start, bytes, text.encoding) == call->file[text.encoding >> 1 & 3];
}

/*
 * Index of the probe_fn of the function with this code object; 0: not a function that --action
 * names.
 */
__weak __noinline u32 py_call__find(struct thread *t, const struct proc *proc, u64 code)
{
	const struct py_layout *py;
	struct py_text text;
	u64 hash;

	if (!t || !proc)
		return 0;
	py = &proc->py.layout;
	if (py__text(py, read_u64(code + py->code_name), &text) || text.encoding != NAME_LATIN1 ||
	    text.bytes > REC_NAME_MAX)
		return 0;
	hash = name__read(&t->names, text.address, text.bytes, text.encoding);
	for (u32 i = 0; i < FN_MAX && i < py_call_cnt; i++) {
		u32 key = i; /* the verifier forgets the value of a variable that is passed by address */
		struct py_call *call = bpf_map_lookup_elem(&py_calls, &key);

		if (!call || hash != call->name || !py_call__in_file(t, py, read_u64(code + py->code_filename), call))
			continue;
		__sync_fetch_and_add(&call->seen, 1);
		return call->fn;
	}
	return 0;
}

/*
 * The calling frame is the span's token, since on several stacks (greenlets) calls may lie at the
 * same address.
 */
static __always_inline void on_py_call(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u64 frame)
{
	const struct py_layout *py = &proc->py.layout;
	u64 first = ctx->di, py_frame = ctx->si, code, name;
	const struct probe_fn *f;
	struct thread *t;
	u32 fn;

	/* The verifier refuses a computed offset into the registers. */
	asm volatile("" : "+r"(first), "+r"(py_frame));
	if (py->minor == 8)
		py_frame = first; /* (frame, throwflag); later (tstate, frame, throwflag) */
	code = read_u64(py_frame + py->frame_code);
	name = read_u64(code + py->code_name);
	/* The length of the name alone rules out most frames. */
	if (!(py_call_lengths >> (read_u64(name + py->str_length) & 63) & 1))
		return;
	t = thread__enter(task, entry_sp(ctx, frame));
	if (!t)
		return;
	fn = py_call__find(t, proc, code);
	f = bpf_map_lookup_elem(&fns, &fn);
	if (fn && f)
		span__begin(t, SPAN_USER, py__current(proc), f->name, frame);
}

static __always_inline void on_py_call_exit(struct task_struct *task, struct proc *proc, u32 pid, u64 frame)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);
	u64 caller;

	if (!t || !t->depth)
		return;
	caller = py__current(proc);
	if (span__find(t, SPAN_USER, caller, frame) < 0)
		return; /* most frames have no span */
	t = thread__enter(task, frame);
	if (t)
		span__end(t, proc, pid, span__find(t, SPAN_USER, caller, frame));
}

#endif
