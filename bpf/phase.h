/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Divides a thread's time since its last step boundary into phases: each instant belongs to the
 * phase of the innermost open span that has one (include/phases.h). A change of phase adds the
 * elapsed time to the old phase.
 *
 * Lightning's evaluation loop is not an action: it lasts from its first action to the strategy's
 * last one. Between them, all time at the loop's own depth is validation.
 */
#ifndef STEPFLAME_BPF_PHASE_H
#define STEPFLAME_BPF_PHASE_H

#include "bpf/maps.h"
#include "include/phases.h"

/* The thread is in `phase` from t->now_ns on. */
static __always_inline void phase__set(struct thread *t, u32 phase)
{
	t->phase_ns[BOUND_INDEX(t->phase, PHASE_ROOM)] += t->now_ns - t->phase_since_ns;
	t->phase_since_ns = t->now_ns;
	t->phase = phase;
}

/* The innermost span has just begun, with a phase of its own. */
static __always_inline void phase__enter(struct thread *t, struct span *s, u32 own)
{
	u32 phase = phase__inside(t->phase, own);

	if (phase == t->phase)
		return;
	s->phase = phase;
	phase__set(t, phase);
}

/* Spans have ended or were dropped: their phases last until now, when BPF learns of it. */
static __always_inline void phase__leave(struct thread *t)
{
	u32 depth = t->depth, phase = depth ? span__at(t, depth - 1)->phase : PHASE_OTHER;

	if (t->evaluation == depth + 1)
		phase = PHASE_VALIDATION;
	else if (t->evaluation > depth)
		t->evaluation = 0; /* the span around the loop has ended */
	if (phase != t->phase)
		phase__set(t, phase);
}

/* The innermost span, an action of Lightning's evaluation loop, has begun. */
static __always_inline void evaluation__begin(struct thread *t, bool last)
{
	if (last)
		t->evaluation = 0;
	else if (!t->evaluation)
		t->evaluation = t->depth;
}

/* Training continues: an exception may have left the loop. */
static __always_inline void evaluation__end(struct thread *t)
{
	if (!t->evaluation)
		return;
	t->evaluation = 0;
	phase__leave(t);
}

/* Marks the start of a candidate forward interval, in the current phase. */
static __always_inline void phase__mark(struct thread *t)
{
	phase__set(t, t->phase);
	t->gap_phase = t->phase;
	t->gap_phase_ns = t->phase_ns[BOUND_INDEX(t->phase, PHASE_ROOM)];
}

/* The candidate was a forward: the time in its phase since phase__mark becomes PHASE_FORWARD. */
static __always_inline void phase__forward(struct thread *t)
{
	u64 *before = &t->phase_ns[BOUND_INDEX(t->gap_phase, PHASE_ROOM)], spent;

	phase__set(t, t->phase);
	spent = *before - t->gap_phase_ns;
	*before -= spent;
	t->phase_ns[PHASE_FORWARD] += spent;
}

/* Saves the thread's time so far in the phases that an evaluation of a plain loop can have. */
static __always_inline void phase__keep(struct thread *t, u64 before_ns[2])
{
	phase__set(t, t->phase);
	before_ns[0] = t->phase_ns[PHASE_OTHER];
	before_ns[1] = t->phase_ns[PHASE_DATA];
}

/*
 * The fetches were an evaluation: the time in those phases since phase__keep becomes
 * PHASE_VALIDATION.
 */
static __always_inline void phase__validate(struct thread *t, const u64 before_ns[2])
{
	u64 now_ns[2];

	phase__keep(t, now_ns);
	t->phase_ns[PHASE_OTHER] = before_ns[0];
	t->phase_ns[PHASE_DATA] = before_ns[1];
	t->phase_ns[PHASE_VALIDATION] += now_ns[0] - before_ns[0] + now_ns[1] - before_ns[1];
}

/* A step ends, and the next one begins with empty phases. */
static __always_inline void phase__restart(struct thread *t)
{
	__builtin_memset(t->phase_ns, 0, sizeof(t->phase_ns));
	t->phases_from_ns = t->phase_since_ns = t->now_ns;
	t->gap_phase_ns = 0;
}

#endif
