// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Probes on functions of CUDA and NCCL. In: uprobes whose cookie says which function
 * (include/gpu.h). Out: rows in gpu_rows, spans of waits, sums for step boundaries, names of
 * kernels.
 */
#include "bpf/gpu.h"
#include "bpf/hit.h"

static __always_inline u64 gpu__frame(const struct pt_regs *ctx, u64 cookie)
{
	return COOKIE_DEPTH(cookie) != COOKIE_DEPTH_UNKNOWN ? ctx->sp + COOKIE_DEPTH(cookie) : 0;
}

SEC("uprobe.multi")
int gpu_enter(struct pt_regs *ctx)
{
	struct hit h;

	if (!hit__begin(ctx, &h))
		return 0;
	if (COOKIE_EVENT(h.cookie) == PROBE_GPU_HANDLE)
		gpu__request_handle(ctx, h.task, h.pid, COOKIE_FN(h.cookie));
	else if (hit__counts(&h))
		gpu__enter(ctx, h.task, h.proc, h.pid, COOKIE_FN(h.cookie), gpu__frame(ctx, h.cookie),
			   COOKIE_FLAGS(h.cookie));
	hit__end(&h);
	hit__note_away(&h);
	return 0;
}

SEC("uprobe.multi")
int gpu_exit(struct pt_regs *ctx)
{
	struct hit h;

	if (!hit__begin(ctx, &h))
		return 0;
	if (COOKIE_EVENT(h.cookie) == PROBE_GPU_HANDLE_RETURN) {
		gpu__store_handle(h.task, h.pid);
	} else if (hit__counts(&h)) {
		gpu__leave(ctx, h.task, h.proc, h.pid, COOKIE_FN(h.cookie), gpu__frame(ctx, h.cookie));
		if (step_at[0])
			step__user(h.task, h.proc, h.pid);
	}
	hit__end(&h);
	hit__note_away(&h);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
