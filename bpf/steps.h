/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Step boundaries, by the first of these rules that a process shows: Lightning's run_training_batch; a DataLoader batch
 * and then an optimizer step (several optimizers, or several batches, make one step); an optimizer step alone, of the
 * first optimizer seen; ProfilerStep#. A better rule replaces a worse one when it is first seen.
 */
#ifndef STEPFLAME_STEPS_H
#define STEPFLAME_STEPS_H

#include "op_window.h"

static __always_inline void step__send(const struct proc *proc, u32 pid, u64 now)
{
	struct rec_step *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_RING_FULL);
		return;
	}
	rec->hdr.type = REC_STEP;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->time_ns = now;
	rec->index = proc->steps;
	rec->pid = pid;
	rec->rule = proc->step_rule;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

static __always_inline void step__boundary(struct proc *proc, u32 pid, u32 rule, u64 now)
{
	if (proc->step_rule != rule) {
		if (proc->step_rule && proc->step_rule < rule)
			return;
		proc->step_rule = rule;
		proc->steps = 0;
		if (proc->window == WINDOW_WAITING)
			return; /* opens when the rule has held for a step: the first boundary may be of a worse one */
	}
	op_window__boundary(proc, now);
	if (proc->window == WINDOW_WAITING) {
		proc->window_start_ns = now;
		proc->steps = 0;
		proc->window = WINDOW_OPEN;
		if (want_step_times)
			step__send(proc, pid, now);
		return;
	}
	if (proc->window != WINDOW_OPEN)
		return;
	if (++proc->steps == step_limit) {
		proc->window_end_ns = now;
		proc->window = WINDOW_DONE;
	}
	if (want_step_times)
		step__send(proc, pid, now);
}

static __always_inline void step__optimizer(struct proc *proc, u32 pid, u64 name, u64 now)
{
	if (!proc->optimizer)
		proc->optimizer = name;
	if (proc->data_seen) {
		proc->data_seen = 0;
		step__boundary(proc, pid, STEP_LOADER_OPTIMIZER, now);
	} else if (proc->step_rule != STEP_LOADER_OPTIMIZER && name == proc->optimizer) {
		step__boundary(proc, pid, STEP_OPTIMIZER, now);
	}
}

#endif
