/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Windows in which operators count, opened and closed at step boundaries by the schedule, when user space has the
 * probes there.
 */
#ifndef STEPFLAME_OP_WINDOW_H
#define STEPFLAME_OP_WINDOW_H

#include "op_rows.h"

/* `step` is the first one behind it. */
static __always_inline void op_window__send(const struct op_proc *p, u64 step)
{
	struct rec_op_window *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_RING_FULL);
		return;
	}
	rec->hdr.type = REC_OP_WINDOW;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->pid = p->pid;
	rec->index = p->index - 1;
	rec->first_step = p->first_step;
	rec->steps = step - p->first_step;
	rec->start_ns = p->window_start_ns;
	rec->end_ns = p->window_end_ns;
	rec->cut = p->cut;
	bpf_ringbuf_submit(rec, 0);
}

static __always_inline void op_window__begin(struct op_proc *p, u64 step, u64 now)
{
	p->index++;
	p->first_step = step;
	p->window_start_ns = now;
	p->window_end_ns = 0;
	p->cut = 0;
	p->counting = 1;
	p->open = 1;
}

/* The timeline gets the step that ends. */
static __always_inline void op_window__step(struct op_proc *p, u64 step, u64 now)
{
	u64 start_ns = p->last_boundary_ns;

	if (p->open && start_ns >= p->window_start_ns)
		timeline__put(p, SPAN_STEP, 0, 0, step, start_ns, now, 0);
}

/* A step ends and the next begins, numbered from 0. torch.profiler.schedule says whether that one is recorded. */
static __always_inline void op_window__boundary(const struct proc *proc, u64 now)
{
	u64 cycle = op_schedule[OP_WAIT] + op_schedule[OP_WARMUP] + op_schedule[OP_ACTIVE], step, in_cycle;
	u32 slot = proc->op_slot - 1;
	struct op_proc *p = proc->op_slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;
	bool active = false, first = false;

	if (!p)
		return;
	step = p->boundaries++;
	if (!step)
		p->first_boundary_ns = now;
	else if (want_timeline)
		op_window__step(p, step - 1, now);
	p->last_boundary_ns = now;
	if (!op_schedule[OP_ACTIVE])
		return;
	if (step >= op_schedule[OP_SKIP_FIRST] &&
	    (!op_schedule[OP_REPEAT] || (step - op_schedule[OP_SKIP_FIRST]) / cycle < op_schedule[OP_REPEAT])) {
		in_cycle = (step - op_schedule[OP_SKIP_FIRST]) % cycle;
		active = in_cycle >= op_schedule[OP_WAIT] + op_schedule[OP_WARMUP];
		first = in_cycle == op_schedule[OP_WAIT] + op_schedule[OP_WARMUP];
	}
	if (p->open && (!active || first)) {
		p->open = 0;
		p->window_end_ns = now;
		if (op_schedule[OP_REPEAT] == 1) /* the recording is over but for the news of it */
			p->counting = 0;
		op_window__send(p, step);
	}
	if (active && !p->open && p->armed)
		op_window__begin(p, step, now);
}

#endif
