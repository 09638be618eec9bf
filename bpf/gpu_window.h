/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Announces the boundaries of the schedule to user space, which opens and closes CUPTI windows. */
#ifndef STEPFLAME_BPF_GPU_WINDOW_H
#define STEPFLAME_BPF_GPU_WINDOW_H

#include "bpf/schedule.h"
#include "include/gpu_records.h"

static __always_inline void gpu_window__send(const struct proc *proc, u32 pid, u64 end_ns)
{
	struct rec_gpu_window *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_RING_FULL);
		return;
	}
	rec->hdr.type = REC_GPU_WINDOW;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->pid = pid;
	rec->index = proc->gpu_window;
	rec->start_ns = proc->gpu.window_ns;
	rec->end_ns = end_ns;
	rec->end = rec->error = 0;
	/* Steps may be short, and without a wake-up user space may read the record too late. */
	bpf_ringbuf_submit(rec, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void gpu_window__boundary(struct proc *proc, u32 pid, u64 step, u64 now)
{
	bool first;
	enum schedule_phase phase = schedule__phase(step, &first);

	if (proc->gpu.window_ns && (phase != SCHEDULE_RECORDS || first)) {
		gpu_window__send(proc, pid, now);
		proc->gpu.window_ns = 0;
		proc->gpu.warm = 0;
		proc->gpu_window++;
	}
	if (first) {
		proc->gpu.window_ns = now;
		gpu_window__send(proc, pid, 0);
	} else if (phase == SCHEDULE_WARMS_UP && !proc->gpu.warm) {
		proc->gpu.warm = 1;
		gpu_window__send(proc, pid, 0);
	}
}

#endif
