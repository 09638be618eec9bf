// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Probes on functions of CUDA and NCCL. In: uprobes whose cookie says which function (include/gpu.h). Out: rows in
 * gpu_rows, spans of waits, sums for step boundaries, names of kernels.
 */
#include "gpu.h"
#include "hit.h"

static __always_inline u64 gpu__frame(const struct pt_regs *ctx, u64 cookie)
{
	return COOKIE_DEPTH(cookie) != COOKIE_DEPTH_UNKNOWN ? ctx->sp + COOKIE_DEPTH(cookie) : 0;
}

static __always_inline bool gpu__is_watched(const struct proc *proc)
{
	return proc->window != WINDOW_CLOSED && proc->window != WINDOW_DONE;
}

SEC("uprobe.multi")
int gpu_enter(struct pt_regs *ctx)
{
	u64 cookie = probe__cookie(ctx), start;
	struct task_struct *task = bpf_get_current_task_btf();
	u32 pid = task_pid(task);
	struct proc *proc;

	if (cookie == COOKIE_NONE) {
		REFUSE_PRIVATE_STACK(ctx);
		return 0;
	}
	proc = proc__enter(pid, &start);
	if (!proc)
		return 0;
	if (COOKIE_EVENT(cookie) == PROBE_GPU_HANDLE)
		gpu__ask_handle(ctx, task, pid, COOKIE_FN(cookie));
	else if (gpu__is_watched(proc))
		gpu__enter(ctx, task, proc, pid, COOKIE_FN(cookie), gpu__frame(ctx, cookie), COOKIE_FLAGS(cookie));
	proc__leave(proc, start);
	return 0;
}

SEC("uprobe.multi")
int gpu_exit(struct pt_regs *ctx)
{
	u64 cookie = probe__cookie(ctx), start;
	struct task_struct *task = bpf_get_current_task_btf();
	u32 pid = task_pid(task);
	struct proc *proc;

	if (cookie == COOKIE_NONE) {
		REFUSE_PRIVATE_STACK(ctx);
		return 0;
	}
	proc = proc__enter(pid, &start);
	if (!proc)
		return 0;
	if (COOKIE_EVENT(cookie) == PROBE_GPU_HANDLE_RETURN) {
		gpu__know_handle(task, pid);
	} else if (gpu__is_watched(proc)) {
		gpu__leave(ctx, task, proc, pid, COOKIE_FN(cookie), gpu__frame(ctx, cookie));
		if (step_at[0])
			step__user(task, proc, pid);
	}
	proc__leave(proc, start);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
