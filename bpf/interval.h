/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Emits the intervals that give samples their context, as they end: forwards, garbage collections,
 * evaluations.
 */
#ifndef STEPFLAME_BPF_INTERVAL_H
#define STEPFLAME_BPF_INTERVAL_H

#include "bpf/maps.h"

#define DEPTH_AND_STEP(depth, step) ((u64)(depth) << 32 | (u32)(step))
#define KIND_BY_RULE(kind, rule)    ((u32)(kind) | (u32)(rule) << 16) /* struct rec_interval's rule, if it has one */

/*
 * An interval of the current thread from start_ns to now, with `depth` spans around it and `step`
 * boundaries before its end.
 */
__weak __noinline int interval__send(u32 kind, u64 name, u64 start_ns, u64 now, u64 depth_and_step)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rec_interval *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_SAMPLES_LOST);
		return 0;
	}
	rec->hdr.type = REC_INTERVAL;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->pid = task_pid(task);
	rec->tid = task_tid(task);
	rec->start_ns = start_ns;
	rec->duration_ns = now - start_ns;
	rec->name = name;
	rec->kind = kind & 0xffff;
	rec->depth = depth_and_step >> 32;
	rec->step = depth_and_step;
	rec->rule = kind >> 16;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
