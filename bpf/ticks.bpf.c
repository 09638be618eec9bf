// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The one probe that a process keeps in the rests of --budget: at each backward. In: a uprobe. Out:
 * a REC_STEP of STEP_TICK each, with nothing but its time; REC_RESTED if the process rests.
 */
#include "bpf/hit.h"

SEC("uprobe.multi")
int tick(struct pt_regs *ctx)
{
	struct rec_step *rec;
	struct hit h;

	if (!hit__begin(ctx, &h))
		return 0;
	__sync_fetch_and_add(&h.proc->cost.ticks, 1);
	if (h.proc->window != WINDOW_OPEN && h.proc->window != WINDOW_RESTING)
		return 0;
	rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);
	if (!rec) {
		count(CNT_RING_FULL);
		return 0;
	}
	__builtin_memset(rec, 0, sizeof(*rec));
	rec->hdr.type = REC_STEP;
	rec->hdr.flags = h.proc->window == WINDOW_RESTING ? REC_RESTED : 0;
	rec->hdr.size = sizeof(*rec);
	rec->time_ns = bpf_ktime_get_ns();
	rec->pid = h.pid;
	rec->rule = STEP_TICK;
	rec->tid = task_tid(h.task);
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
