/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stack of open spans of a thread: finds the spans around a span and the span that an event
 * ends, and drops spans whose end was lost. span.h handles spans that end.
 */
#ifndef STEPFLAME_BPF_SPAN_STACK_H
#define STEPFLAME_BPF_SPAN_STACK_H

#include "bpf/op_rows.h"
#include "bpf/phase.h"

/* Does Lightning train, as far as is known? Then its actions say what a plain loop's landmarks are read for. */
static __always_inline bool lightning__trains(const struct proc *proc)
{
	return proc->landmarks.profile_code && !proc->landmarks.is_over;
}

/* A transparent span is never a parent: an operator, or an NVTX range without a name. */
static __always_inline bool is_transparent(const struct span *s)
{
	return is_operator(s->kind) || !s->name;
}

/* 1 + index of the innermost span below `depth` that is not transparent; 0: none. */
static __always_inline u32 span__outer(struct thread *t, u32 depth)
{
	const struct span *below;

	if (!depth)
		return 0;
	below = span__at(t, depth - 1);
	return is_transparent(below) ? below->outer : depth;
}

/*
 * The action that operators at `depth` count towards. A backward inside a Lightning action counts
 * towards that action.
 */
static __always_inline u64 span__action(struct thread *t, u32 depth)
{
	const struct span *below;

	if (!depth)
		return 0;
	below = span__at(t, depth - 1);
	if (below->kind == SPAN_ACTION || below->kind == SPAN_USER)
		return below->name;
	return below->kind == SPAN_BACKWARD && !below->action ? below->name : below->action;
}

/*
 * Is a span at `depth` directly inside the candidate forward interval (thread.gap_ns)? Operators
 * between do not matter.
 */
static __always_inline bool in_gap(const struct thread *t, u32 depth, u32 outer)
{
	return depth >= t->gap_depth && outer <= t->gap_depth;
}

/* Likewise, directly inside the candidate evaluation (thread.pass)? */
static __always_inline bool in_pass(const struct thread *t, u32 depth, u32 outer)
{
	return t->pass.loop && depth >= t->pass.depth && outer <= t->pass.depth;
}

/*
 * Drops the spans from `depth` on and counts them. Their end times are unknown; if the last
 * landmark was inside them, so is the start of forward. Their ended children become children of the
 * enclosing span.
 */
__weak __noinline int span__drop(struct thread *t, u32 depth, u32 counter)
{
	u64 child_ns = 0, cnt = 0;
	u32 outer;

	if (!t)
		return 0;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		u64 i = t->depth - 1 - n;
		struct span *s;

		if (depth + n >= t->depth)
			break;
		s = span__at(t, i);
		/*
		 * SPAN_NONE: the span has ended (span__outlived). A range without a name is in
		 * CNT_NVTX_UNNAMED already.
		 */
		cnt += MASK_IF(s->kind) & MASK_IF(s->name >> 1 | (s->name & 1)) & 1;
		child_ns += s->child_ns;
		t->framed -= MASK_IF(s->frame) & 1;
		op__lose(t, i);
	}
	outer = span__outer(t, depth);
	if (outer)
		span__at(t, outer - 1)->child_ns += child_ns;
	if (in_gap(t, depth, outer))
		t->gap_child_ns += child_ns;
	else if (depth < t->gap_depth)
		t->gap_ns = 0;
	if (in_pass(t, depth, outer))
		t->pass.child_ns += child_ns;
	t->depth = depth;
	phase__leave(t);
	count_many(counter, cnt);
	return 0;
}

/* A span that begins again has lost its end: drops it and everything inside. */
static __always_inline void span__drop_reused(struct thread *t, u32 i)
{
	span__drop(t, i + 1, CNT_DROPPED_INNER);
	span__drop(t, i, CNT_SPAN_REUSED);
}

/*
 * Closes spans that an exception or a longjmp left open: a native span is dead when the stack
 * pointer is above the slot of its return address, and so are all spans inside it. Their end times
 * are unknown, so they are not timed.
 */
__weak __noinline int span__repair(struct thread *t, u64 sp)
{
	u32 depth;

	if (!t)
		return 0;
	depth = t->depth;
	for (u32 i = 0; i < SPAN_DEPTH; i++) {
		if (i >= depth)
			break;
		if (span__at(t, i)->frame && span__at(t, i)->frame < sp) {
			span__drop(t, i, CNT_UNWOUND);
			break;
		}
	}
	return 0;
}

#define TOKEN_ANY (~0ULL)

/*
 * Index of the innermost open span with this kind and token (or TOKEN_ANY), and with this frame if
 * both frames are known; -1: none.
 */
__weak __noinline int span__find(struct thread *t, u32 kind, u64 token, u64 frame)
{
	u64 by_token = token == TOKEN_ANY ? 0 : ~0ULL, by_frame = MASK_IF(frame);
	u32 depth;

	if (!t)
		return -1;
	depth = t->depth;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		const struct span *s;

		if (n >= depth)
			break;
		s = span__at(t, depth - 1 - n);
		if (!((s->kind ^ kind) | ((s->token ^ token) & by_token) |
		      ((s->frame ^ frame) & by_frame & MASK_IF(s->frame))))
			return depth - 1 - n;
	}
	return -1;
}

/*
 * 1 + index of the innermost span with one of the kinds (bits) and this frame (0: any frame); 0:
 * none.
 */
__weak __noinline int span__innermost(struct thread *t, u64 kinds, u64 frame)
{
	u32 depth;

	if (!t)
		return 0;
	depth = t->depth;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		const struct span *s;

		if (n >= depth)
			break;
		s = span__at(t, depth - 1 - n);
		if ((kinds >> (s->kind & 63) & 1) > (((s->frame ^ frame) & MASK_IF(frame)) != 0))
			return depth - n;
	}
	return 0;
}

/* 1 + index of the outermost span from `depth` on that is not transparent; 0: none. */
__weak __noinline int span__first_inside(struct thread *t, u32 depth)
{
	if (!t)
		return 0;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		if (depth + n >= t->depth)
			break;
		if (!is_transparent(span__at(t, depth + n)))
			return depth + n + 1;
	}
	return 0;
}

/*
 * For the end of an operator that is not the innermost span: the spans inside have lost their ends,
 * so this drops and counts them. Returns 1 + index of the operator; 0: not found.
 */
static __always_inline u32 span__unwind_to(struct thread *t, u64 frame)
{
	u32 depth;

	span__repair(t, frame);
	depth = span__innermost(t, OPERATOR_KINDS, frame);
	if (depth && depth < t->depth)
		span__drop(t, depth, CNT_DROPPED_INNER);
	return depth;
}

/*
 * For an end whose frame is unknown: it ends the innermost operator above sp, since everything that
 * the operator called has ended. Returns 1 + index of the operator; 0: none with this token (or
 * TOKEN_ANY).
 */
static __always_inline u32 span__unwind_out(struct thread *t, u64 sp, u64 token)
{
	const struct span *s;
	u32 depth;

	span__repair(t, sp);
	depth = t->depth;
	s = span__at(t, depth - 1);
	return depth && is_operator(s->kind) && (token == TOKEN_ANY || s->token == token) ? depth : 0;
}

static __always_inline bool is_nvtx(const struct span *s)
{
	return s->kind == SPAN_LABEL && s->label == LABEL_NVTX;
}

/* Is it bound to no frame? Labels that a handle ends, as NVTX ranges, begin and end anywhere. */
static __always_inline bool is_free(const struct span *s)
{
	return s->kind == SPAN_LABEL && !s->frame;
}

#define FREE_MAX 8 /* more labels that stay open where one ends have lost their ends */

/* Are all spans from `depth` on labels, or with only_nvtx NVTX ranges, that need not nest? */
__weak __noinline int spans__are_free(struct thread *t, u32 depth, u32 only_nvtx)
{
	if (!t)
		return 0;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		const struct span *s = span__at(t, depth + n);

		if (depth + n >= t->depth)
			break;
		if (!is_nvtx(s) && (only_nvtx || !is_free(s) || n >= FREE_MAX))
			return 0;
	}
	return 1;
}

/* Span `i` was taken out: call n of span__move_down moves span i + n + 1 down by one. */
struct take_out {
	struct thread *t;
	u32 i, outer;
	u32 nvtx, pad;
};

static long span__move_down(u32 n, struct take_out *out)
{
	u32 at = out->i + n;
	struct span *to = span__at(out->t, at), *from = span__at(out->t, at + 1);

	if (!out->nvtx) /* ranges have no phase of their own */
		from->phase =
			phase__inside(at ? span__at(out->t, at - 1)->phase : PHASE_OTHER, phase__of_label(from->label));
	*to = *from;
	if (to->outer == out->i + 1)
		to->outer = out->outer;
	else if (to->outer > out->i + 1)
		to->outer--;
	return 0;
}

/* Removes span i from the stack; the spans above it stay open. */
__weak __noinline int span__take_out(struct thread *t, u32 i)
{
	struct take_out out = {.t = t, .i = i};
	u32 above;

	if (!t || i >= t->depth)
		return 0;
	above = t->depth - i - 1;
	out.outer = span__at(t, i)->outer;
	out.nvtx = is_nvtx(span__at(t, i));
	t->framed -= span__at(t, i)->frame != 0;
	bpf_loop(above < SPAN_DEPTH ? above : SPAN_DEPTH, span__move_down, &out, 0);
	t->depth--;
	t->gap_depth -= t->gap_depth > i;
	t->pass.depth -= t->pass.depth > i;
	t->evaluation -= t->evaluation > i + 1;
	return 0;
}

struct nvtx_search {
	struct thread *t;
	u32 depth, cnt, last;
	u32 pad;
};

/* From the innermost span outwards, so that the last range that it finds is the outermost. */
static long nvtx__look(u32 n, struct nvtx_search *search)
{
	u32 at = search->depth - 1 - n;

	if (is_nvtx(span__at(search->t, at))) {
		search->last = at;
		search->cnt++;
	}
	return 0;
}

/* Index of the outermost NVTX range, if more than `above` ranges are open; else -1. */
__weak __noinline int nvtx__outermost(struct thread *t, u32 above)
{
	struct nvtx_search search = {.t = t};

	if (!t)
		return -1;
	search.depth = t->depth < SPAN_DEPTH ? t->depth : SPAN_DEPTH;
	bpf_loop(search.depth, nvtx__look, &search, 0);
	return search.cnt > above ? (int)search.last : -1;
}

/*
 * Removes a range without timing it; its children move to the span around it. An unnamed range was
 * counted already.
 */
__weak __noinline int nvtx__give_up(struct thread *t, u32 i)
{
	u64 child_ns;
	u32 outer;

	if (!t || i >= t->depth)
		return 0;
	if (span__at(t, i)->name)
		count(CNT_NVTX_NOT_POPPED);
	outer = span__outer(t, i);
	child_ns = span__at(t, i)->child_ns;
	if (outer)
		span__at(t, outer - 1)->child_ns += child_ns;
	if (in_gap(t, i, outer))
		t->gap_child_ns += child_ns;
	if (in_pass(t, i, outer))
		t->pass.child_ns += child_ns;
	op__lose(t, i);
	span__take_out(t, i);
	return 0;
}

#define NVTX_OPEN_MAX 16 /* per thread, so that ranges without a pop cannot fill the stack */

/* Drops all ranges of the thread: their probes are detached, so their ends will not be seen. */
__weak __noinline int nvtx__forget(struct thread *t)
{
	if (!t)
		return 0;
	t->nvtx_epoch = nvtx_epoch;
	for (u32 n = 0; n < NVTX_OPEN_MAX; n++) {
		int i = nvtx__outermost(t, 0);

		if (i < 0)
			break;
		nvtx__give_up(t, i);
	}
	phase__leave(t);
	return 0;
}

#endif
