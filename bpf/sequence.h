/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Autograd's sequence numbers, by which the timeline links a node to the operator that created it.
 * Each thread has its own counter (at::sequence_number, ATen/SequenceNumber.cpp); a new node takes
 * the next number.
 */
#ifndef STEPFLAME_BPF_SEQUENCE_H
#define STEPFLAME_BPF_SEQUENCE_H

#include "bpf/maps.h"

#define DTV_ENTRY 16 /* glibc: dtv[-1] is the number of entries; an entry is -1 until the thread uses that module */

/* The address of the current thread's next number; 0: not allocated yet. */
static __always_inline u64 sequence__at(struct thread *t, const struct op_proc *p)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 fsbase = task->thread.fsbase, block = fsbase, dtv;

	if (t->sequence_at)
		return t->sequence_at;
	if (p->sequence_module) {
		dtv = read_u64(fsbase + 8);
		if (read_u64(dtv - DTV_ENTRY) < p->sequence_module)
			return 0;
		block = read_u64(dtv + DTV_ENTRY * (u64)p->sequence_module);
		if (!block || block == ~0ULL)
			return 0;
	}
	return t->sequence_at = block + p->sequence_offset;
}

/* The number that the thread's next node will take; -1: unknown. */
static __always_inline s64 sequence__next(struct thread *t, const struct op_proc *p)
{
	u64 at;

	if (!p->open || !p->sequence_offset)
		return -1;
	at = sequence__at(t, p);
	return at ? (s64)read_u64(at) : 0;
}

static __always_inline s64 sequence__of_node(const struct op_proc *p, u64 node)
{
	return p->node_sequence ? (s64)read_u64(node + p->node_sequence) : -1;
}

/*
 * At the end of an operator: the operator keeps its initial number only if a node has taken that
 * number meanwhile. torch.profiler also reports the numbers of operators without a node, and no
 * numbers of operators whose dispatch bypasses autograd: the resulting links are the same.
 */
static __always_inline void sequence__confirm(struct thread *t, const struct op_proc *p, struct span *s)
{
	if (s->kind == SPAN_OP && s->op.sequence >= 0 && s->op.sequence == sequence__next(t, p))
		s->op.sequence = -1;
}

#endif
