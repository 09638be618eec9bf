/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The phases of a thread's time since the last step boundary that it made: each instant is in that of the innermost
 * open span that has one (include/phases.h). What a thread was in is added up when that changes.
 *
 * Lightning's evaluation loop is no action: it lasts from the first of its actions to the strategy's last one, and in
 * between all is validation that is no deeper.
 */
#ifndef STEPFLAME_BPF_PHASE_H
#define STEPFLAME_BPF_PHASE_H

#include "bpf/maps.h"
#include "include/phases.h"

/* From t->now_ns on the thread is in that phase. */
static __always_inline void phase__set(struct thread *t, u32 phase)
{
	t->phase_ns[BOUND_INDEX(t->phase, PHASE_ROOM)] += t->now_ns - t->phase_since_ns;
	t->phase_since_ns = t->now_ns;
	t->phase = phase;
}

/* The innermost span, which has just begun, has a phase of its own. */
static __always_inline void phase__enter(struct thread *t, struct span *s, u32 own)
{
	u32 phase = phase__inside(t->phase, own);

	if (phase == t->phase)
		return;
	s->phase = phase;
	phase__set(t, phase);
}

/* Spans have ended, or were dropped: their phases last until now, which is when we know. */
static __always_inline void phase__leave(struct thread *t)
{
	u32 depth = t->depth, phase = depth ? span__at(t, depth - 1)->phase : PHASE_OTHER;

	if (t->evaluation == depth + 1)
		phase = PHASE_VALIDATION;
	else if (t->evaluation > depth)
		t->evaluation = 0; /* what the loop was in has ended */
	if (phase != t->phase)
		phase__set(t, phase);
}

/* An action of Lightning's evaluation loop, the innermost span, has begun. */
static __always_inline void evaluation__begin(struct thread *t, bool last)
{
	if (last)
		t->evaluation = 0;
	else if (!t->evaluation)
		t->evaluation = t->depth;
}

/* Training goes on: an exception may have left the loop. */
static __always_inline void evaluation__end(struct thread *t)
{
	if (!t->evaluation)
		return;
	t->evaluation = 0;
	phase__leave(t);
}

/* Forward may begin now, in the phase at hand. */
static __always_inline void phase__mark(struct thread *t)
{
	phase__set(t, t->phase);
	t->gap_phase = t->phase;
	t->gap_phase_ns = t->phase_ns[BOUND_INDEX(t->phase, PHASE_ROOM)];
}

/* It did: what was spent in that phase since was forward. */
static __always_inline void phase__forward(struct thread *t)
{
	u64 *before = &t->phase_ns[BOUND_INDEX(t->gap_phase, PHASE_ROOM)], spent;

	phase__set(t, t->phase);
	spent = *before - t->gap_phase_ns;
	*before -= spent;
	t->phase_ns[PHASE_FORWARD] += spent;
}

/* What the thread did so far in the phases that an evaluation of a plain loop has. */
static __always_inline void phase__keep(struct thread *t, u64 before_ns[2])
{
	phase__set(t, t->phase);
	before_ns[0] = t->phase_ns[PHASE_OTHER];
	before_ns[1] = t->phase_ns[PHASE_DATA];
}

/* It was one: what was spent in them since was validation. */
static __always_inline void phase__validate(struct thread *t, const u64 before_ns[2])
{
	u64 now_ns[2];

	phase__keep(t, now_ns);
	t->phase_ns[PHASE_OTHER] = before_ns[0];
	t->phase_ns[PHASE_DATA] = before_ns[1];
	t->phase_ns[PHASE_VALIDATION] += now_ns[0] - before_ns[0] + now_ns[1] - before_ns[1];
}

/* A step ends, and the next begins with nothing in it. */
static __always_inline void phase__restart(struct thread *t)
{
	__builtin_memset(t->phase_ns, 0, sizeof(t->phase_ns));
	t->phases_from_ns = t->phase_since_ns = t->now_ns;
	t->gap_phase_ns = 0;
}

#endif
