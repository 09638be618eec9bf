/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Windows in which BPF counts operators: the schedule opens and closes them at step boundaries,
 * once user space has attached the probes.
 */
#ifndef STEPFLAME_BPF_OP_WINDOW_H
#define STEPFLAME_BPF_OP_WINDOW_H

#include "bpf/op_rows.h"
#include "bpf/schedule.h"

/* Emits a window; `step` is the first step after it. */
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

/* Adds the step that ends to the timeline. */
static __always_inline void op_window__step(struct op_proc *p, u64 step, u64 now)
{
	u64 start_ns = p->last_boundary_ns;

	if (p->open && start_ns >= p->window_start_ns)
		timeline__put(p, SPAN_STEP, 0, 0, step, start_ns, now, 0);
}

/* A step ends and the next one begins. Returns the number of the new step, from 0. */
static __always_inline u64 op_window__boundary(struct op_proc *p, u64 now)
{
	u64 step = p->boundaries;
	enum schedule_phase phase;
	bool first;

	p->boundaries = step + 1;
	if (!step)
		p->first_boundary_ns = now;
	else if (want_timeline)
		op_window__step(p, step - 1, now);
	p->last_boundary_ns = now;
	if (!op_schedule[OP_ACTIVE])
		return step;
	phase = schedule__phase(step, &first);
	if (p->open && (phase != SCHEDULE_RECORDS || first)) {
		p->open = 0;
		p->window_end_ns = now;
		if (op_schedule[OP_REPEAT] == 1) /* the only window is over, and so is the recording */
			p->counting = 0;
		op_window__send(p, step);
	}
	if (phase == SCHEDULE_RECORDS && !p->open && p->armed)
		op_window__begin(p, step, now);
	return step;
}

#endif
