// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The program of `record --exact`, separate from the landmarks since it runs at every call of a
 * Python function. In: a uprobe whose cookie says what a hit means. Out: rows in the map call_rows;
 * functions and paths in the ring buffer.
 */
#include "bpf/exact.h"
#include "bpf/hit.h"

static __always_inline void exact__dispatch(struct pt_regs *ctx, u64 cookie, struct task_struct *task,
					    struct proc *proc, u32 pid)
{
	u64 first = ctx->di, second = ctx->si, frame = ctx->sp + (short)COOKIE_DEPTH(cookie);

	/* The verifier refuses a computed offset into the registers. */
	asm volatile("" : "+r"(first), "+r"(second));
	switch (COOKIE_EVENT(cookie)) {
	case PROBE_EXACT_CALL:
		on_call(task, proc, pid, frame, COOKIE_FLAGS(cookie) & COOKIE_FRAME_SECOND ? second : first);
		break;
	case PROBE_EXACT_RETURN:
		on_return(task, proc, pid, frame);
		break;
	case PROBE_EXACT_CLEAR:
		on_clear(task, proc, pid, ctx->sp, COOKIE_FLAGS(cookie) & COOKIE_FRAME_SECOND ? second : first);
		break;
	}
}

SEC("uprobe.multi")
int exact(struct pt_regs *ctx)
{
	struct hit h;

	if (!hit__begin(ctx, &h))
		return 0;
	if (hit__counts(&h) && h.proc->py.layout.minor)
		exact__dispatch(ctx, h.cookie, h.task, h.proc, h.pid);
	hit__end(&h);
	return 0;
}

/* A thread ends, or runs another program: another thread may use its stack of calls. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(exact_exit, struct task_struct *task)
{
	exact__leave(task);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exact_exec, struct task_struct *task)
{
	exact__leave(task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
