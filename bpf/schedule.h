/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The phase of a step in torch.profiler.schedule. */
#ifndef STEPFLAME_BPF_SCHEDULE_H
#define STEPFLAME_BPF_SCHEDULE_H

#include "bpf/maps.h"

enum schedule_phase { SCHEDULE_WAITS, SCHEDULE_WARMS_UP, SCHEDULE_RECORDS };

/*
 * The phase of the step that begins, numbered from 0. *first: it is the first step of its window.
 */
static __always_inline enum schedule_phase schedule__phase(u64 step, bool *first)
{
	u64 lead = op_schedule[OP_WAIT] + op_schedule[OP_WARMUP], cycle = lead + op_schedule[OP_ACTIVE];

	*first = false;
	if (!cycle || step < op_schedule[OP_SKIP_FIRST])
		return SCHEDULE_WAITS;
	step -= op_schedule[OP_SKIP_FIRST];
	if (op_schedule[OP_REPEAT] && step / cycle >= op_schedule[OP_REPEAT])
		return SCHEDULE_WAITS;
	step %= cycle;
	*first = step == lead;
	if (step >= lead)
		return SCHEDULE_RECORDS;
	return step >= op_schedule[OP_WAIT] ? SCHEDULE_WARMS_UP : SCHEDULE_WAITS;
}

#endif
