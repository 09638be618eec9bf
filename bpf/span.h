/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Begins and ends the spans of all sources: pushes a span to the thread's span stack, and adds it
 * to its row when it ends.
 *
 *   span__begin -> thread.spans[] -> span__end -> aggs
 */
#ifndef STEPFLAME_BPF_SPAN_H
#define STEPFLAME_BPF_SPAN_H

#include "bpf/around.h"
#include "bpf/interval.h"
#include "bpf/span_stack.h"

/* Does a span from start_ns to now lie wholly inside the window of its process? */
static __always_inline bool in_window(const struct proc *proc, u64 start_ns)
{
	return proc->window == WINDOW_OPEN && start_ns >= proc->window_start_ns;
}

/* Without a branch: the verifier would follow each combination of them. */
static __always_inline u32 log2_bucket(u64 ns)
{
	u64 bucket = MASK_IF(ns >> 32) & 32, more;

	ns >>= bucket;
	for (u32 bits = 16; bits; bits /= 2) {
		more = MASK_IF(ns >> bits) & bits;
		bucket += more;
		ns >>= more;
	}
	return bucket < AGG_BUCKETS ? bucket : AGG_BUCKETS - 1;
}

#define AGG_ROWS_SHARED (AGG_ROWS - 4096) /* the rest is for rows without a parent */
#define AGG_ROWS_OWN    2048              /* of a process, with parents */

__weak __u64 agg_row_cnt = 0; /* elements of aggs; user space subtracts those that it deletes */

static __always_inline struct agg_val *agg__new(const struct agg_key *key, struct proc *proc)
{
	static const struct agg_val zero = {.min_ns = ~0ULL, .first_ns = ~0ULL};

	if (!bpf_map_update_elem(&aggs, key, &zero, BPF_NOEXIST)) {
		__sync_fetch_and_add(&agg_row_cnt, 1);
		__sync_fetch_and_add(&proc->room.rows, 1);
	}
	return bpf_map_lookup_elem(&aggs, key);
}

/*
 * A row for a key that has none. Each of many names may be around many others: when the process has
 * filled its part of the table, its spans of one name share a row, whatever is around them. NULL
 * (counted): no room.
 */
static __attribute__((noinline)) struct agg_val *agg__more(struct agg_key *key)
{
	u32 pid = key->pid;
	struct agg_val *val;
	struct proc *proc;

	proc = bpf_map_lookup_elem(&procs, &pid);
	if (!proc)
		return NULL;
	if (key->parent && (proc->room.rows >= AGG_ROWS_OWN || agg_row_cnt >= AGG_ROWS_SHARED)) {
		count(CNT_ROWS_FOLDED);
		key->parent = fixed_names[NAME_OTHER];
		val = bpf_map_lookup_elem(&aggs, key);
		if (val)
			return val;
	}
	val = agg__new(key, proc);
	if (!val)
		count(CNT_MAP_FULL);
	return val;
}

/* Returns whether the key has a row. */
__weak __noinline int agg__add(const struct agg_key *key, u64 start_ns, u64 total_ns, u64 self_ns)
{
	struct agg_val *val;
	struct agg_key k;
	u64 old;

	if (!key)
		return 0;
	k = *key;
	val = bpf_map_lookup_elem(&aggs, &k);
	if (!val)
		return 0;
	__sync_fetch_and_add(&val->calls, 1);
	__sync_fetch_and_add(&val->total_ns, total_ns);
	__sync_fetch_and_add(&val->self_ns, self_ns);
	__sync_fetch_and_add(&val->hist[log2_bucket(total_ns)], 1);
	/*
	 * Another thread may win a race for the same minimum; one retry is enough in practice, and
	 * a miss costs one extreme.
	 */
	old = val->min_ns;
	if (total_ns < old && __sync_val_compare_and_swap(&val->min_ns, old, total_ns) != old && total_ns < val->min_ns)
		val->min_ns = total_ns;
	old = val->max_ns;
	if (total_ns > old && __sync_val_compare_and_swap(&val->max_ns, old, total_ns) != old && total_ns > val->max_ns)
		val->max_ns = total_ns;
	if (start_ns < val->first_ns)
		val->first_ns = start_ns;
	return 1;
}

/* Not in agg__add: before 6.10 or so the frames of the calls there would be 32 bytes too many. */
static __always_inline void agg__count(struct agg_key *key, u64 start_ns, u64 total_ns, u64 self_ns)
{
	if (!agg__add(key, start_ns, total_ns, self_ns) && agg__more(key))
		agg__add(key, start_ns, total_ns, self_ns);
}

/*
 * Begins a span. Reads the clock last, so that the span does not contain this program's work. NULL
 * (counted): the stack is full.
 */
static __always_inline struct span *span__begin(struct thread *t, u32 kind, u64 token, u64 name, u64 frame)
{
	u32 depth = t->depth;
	struct span *s;

	if (depth >= SPAN_DEPTH) {
		count(CNT_STACK_FULL);
		return NULL;
	}
	s = span__at(t, depth);
	s->child_ns = 0;
	s->frame = frame;
	s->token = token;
	s->name = name;
	s->action = span__action(t, depth);
	s->op_child_ns = 0;
	s->kind = kind;
	s->label = 0;
	s->phase = t->phase;
	s->outer = span__outer(t, depth);
	s->also = 0;
	op_span__clear(s);
	t->depth = depth + 1;
	t->sampled &= ~(1u << (depth & (SPAN_DEPTH - 1)));
	t->framed += frame != 0;
	s->start_ns = bpf_ktime_get_ns();
	return s;
}

/*
 * Adds a span that is not an operator to the operator table: a label has a row there, other kinds
 * are transparent.
 */
static __always_inline void span__account_op(struct thread *t, const struct proc *proc, struct span *s, u32 depth)
{
	u32 slot = proc->ops.slot - 1;
	struct op_proc *p = want_ops && proc->ops.slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;

	if (!p)
		return;
	if (s->kind == SPAN_LABEL) {
		op__account(t, p, s, depth);
		return;
	}
	if (depth)
		op__move_children(span__at(t, depth - 1), s);
	if (want_timeline && in_op_window(p, s))
		timeline__add(p, s, t->now_ns, depth);
}

/* Adds the row of a span that ends now; `depth` is the number of spans that enclose it. */
__weak __noinline int span__account(struct thread *t, const struct proc *proc, struct span *s, u32 pid, u32 depth)
{
	u64 total, self;
	struct agg_key key = {};
	u32 outer;

	if (!t || !proc || !s)
		return 0;
	total = t->now_ns - s->start_ns;
	if (s->kind == SPAN_FORWARD)
		total -= t->gap_apart_ns;
	self = total > s->child_ns ? total - s->child_ns : 0;
	key.pid = pid;
	key.kind = s->kind;
	key.name = s->name;
	outer = span__outer(t, depth);
	if (outer && outer <= SPAN_DEPTH) {
		struct span *parent = span__at(t, outer - 1);

		key.parent = parent->name;
		parent->child_ns += total;
	}
	span__account_op(t, proc, s, depth);
	if (in_gap(t, depth, outer))
		t->gap_child_ns += total;
	if (in_pass(t, depth, outer))
		t->pass.child_ns += total;
	if (!in_window(proc, s->start_ns))
		return 0;
	agg__count(&key, s->start_ns, total, self);
	if (s->also) {
		key.kind = SPAN_ACTION;
		key.name = fixed_name(s->also - 1);
		agg__count(&key, s->start_ns, total, self);
	}
	return 0;
}

/* A landmark has ended: forward may begin, but no earlier than now. */
static __always_inline void gap__begin(struct thread *t)
{
	t->gap_ns = t->now_ns;
	t->gap_depth = t->depth;
	t->gap_child_ns = 0;
	t->gap_apart_ns = 0;
	t->gap_sampled = 0;
	phase__mark(t);
}

/*
 * A zero_grad has ended. Programs call it between forward and backward as often as before both, and
 * it is part of neither.
 */
static __always_inline void gap__set_apart(struct thread *t, u64 start_ns)
{
	u64 ns = t->now_ns - start_ns;

	if (t->gap_ns <= start_ns && t->gap_ns) {
		t->gap_apart_ns += ns;
		t->gap_child_ns -= ns;
	} else if (!t->gap_ns) {
		gap__begin(t);
	}
}

/*
 * Span i ends and the spans above it stay open: NVTX ranges begin and end anywhere, and so do labels
 * of generators and coroutines, so spans need not nest. What the inner spans have taken so far is
 * child time of span i, and must not count again as child time of the span around both. Afterwards
 * span i is in the first free slot.
 */
__weak __noinline int span__end_below(struct thread *t, const struct proc *proc, u32 pid, u32 i)
{
	u64 inside = 0;
	u32 inner;

	if (!t || !proc || i >= SPAN_DEPTH || i >= t->depth)
		return 0;
	t->derived = *span__at(t, i);
	inner = span__first_inside(t, i + 1);
	if (inner)
		inside = t->now_ns - span__at(t, inner - 1)->start_ns;
	span__take_out(t, i);
	t->derived.child_ns += inside;
	span__account(t, proc, &t->derived, pid, i);
	inner = span__outer(t, i);
	if (inner)
		span__at(t, inner - 1)->child_ns -= inside;
	if (in_gap(t, i, inner))
		t->gap_child_ns -= inside;
	if (in_pass(t, i, inner))
		t->pass.child_ns -= inside;
	*span__at(t, t->depth) = t->derived;
	return 0;
}

/* From here on the span is bound to no native frame. */
static __always_inline void span__unbind(struct thread *t, struct span *s)
{
	t->framed -= s->frame != 0;
	s->frame = 0;
}

/*
 * Is span i an action that ends before the label inside it? Lightning's PyTorchProfiler labels each
 * action, and ends the label in the same next() that ends the action, an instant after our probe.
 * Such a label stays open above a span of kind SPAN_NONE, which leaves the stack with the label.
 */
static __always_inline bool span__outlived(struct thread *t, u32 i)
{
	const struct span *s = span__at(t, i), *above = span__at(t, i + 1);

	return t->depth == i + 2 && s->kind == SPAN_ACTION && !s->frame && above->kind == SPAN_LABEL && !above->frame;
}

static __always_inline void span__drop_outlived(struct thread *t)
{
	u32 depth = t->depth;

	if (!depth || span__at(t, depth - 1)->kind != SPAN_NONE)
		return;
	t->depth = depth - 1;
	if (t->gap_depth > t->depth)
		t->gap_depth = t->depth;
	if (t->depth)
		op__move_children(span__at(t, depth - 2), span__at(t, depth - 1));
}

/* Does --step-at name this span? */
static __always_inline bool span__ends_step(const struct span *s)
{
	return step_at[0] &&
	       (s->name == step_at[0] || s->name == step_at[1] || (s->also && fixed_name(s->also - 1) == step_at[0]));
}

/*
 * Ends span i (from span__find). Spans that are open above it have lost their ends: drops and
 * counts them. Returns the span, whose slot stays readable until the next span__begin; NULL: i is
 * -1.
 */
static __always_inline struct span *span__end(struct thread *t, const struct proc *proc, u32 pid, int i)
{
	bool landmark;
	struct span *s;

	if (i < 0)
		return NULL;
	landmark = t->gap_ns && (u32)i < t->gap_depth;
	if (t->sampled >> (i & (SPAN_DEPTH - 1)) & 1)
		around__note(t, i);
	s = span__at(t, i);
	if ((u32)i + 1 < t->depth && (is_nvtx(s) || spans__are_free(t, i + 1, !is_free(s)))) {
		span__end_below(t, proc, pid, i);
		s = span__at(t, t->depth);
	} else if (span__outlived(t, i)) {
		span__account(t, proc, s, pid, i);
		s->kind = SPAN_NONE;
		s->phase = span__at(t, i + 1)->phase = i ? span__at(t, i - 1)->phase : PHASE_OTHER;
		s->op_child_ns = 0;
		op_span__clear(s);
	} else {
		if ((u32)i + 1 < t->depth)
			span__drop(t, i + 1, CNT_DROPPED_INNER);
		t->depth = i;
		t->framed -= s->frame != 0;
		span__account(t, proc, s, pid, i);
		span__drop_outlived(t);
	}
	phase__leave(t);
	if (span__ends_step(s))
		t->step_ended = 1;
	if (landmark) /* the last landmark was inside this span */
		gap__begin(t);
	return s;
}

/* Prepares a span that BPF knows of only now that it ends; span__derive then adds it. */
static __always_inline struct span *span__derived(struct thread *t, u32 kind, u32 name, u64 start_ns, u64 child_ns)
{
	struct span *derived = &t->derived;

	__builtin_memset(derived, 0, offsetof(struct span, op));
	derived->start_ns = start_ns;
	derived->child_ns = child_ns;
	derived->name = fixed_names[name];
	derived->kind = kind;
	op_span__clear(derived);
	return derived;
}

__weak __noinline int span__derive(struct thread *t, const struct proc *proc, u32 pid, u32 depth)
{
	struct span *derived;
	u32 outer, inner;

	if (!t || !proc || depth > SPAN_DEPTH)
		return 0;
	derived = &t->derived;
	/*
	 * A span that began inside and is still open: its time so far is child time of the derived
	 * span, so that only one of the two has it as self time.
	 */
	inner = span__first_inside(t, depth);
	if (inner)
		derived->child_ns += t->now_ns - span__at(t, inner - 1)->start_ns;
	/*
	 * The spans inside were, or will be, children of the enclosing span; they become children
	 * of the derived span.
	 */
	outer = span__outer(t, depth);
	if (outer)
		span__at(t, outer - 1)->child_ns -= derived->child_ns;
	span__account(t, proc, derived, pid, depth);
	if (span__ends_step(derived))
		t->step_ended = 1;
	return 0;
}

/* Backward begins: the time since the last landmark was forward. */
static __always_inline void gap__end(struct thread *t, const struct proc *proc, u32 pid)
{
	struct span *forward;
	u32 depth = t->gap_depth;

	if (!t->gap_ns || t->depth < depth || depth > SPAN_DEPTH)
		return;
	forward = span__derived(t, SPAN_FORWARD, NAME_FORWARD, t->gap_ns, t->gap_child_ns);
	t->gap_ns = 0;
	if (!lightning__trains(proc)) /* Lightning's training_step shows more exactly where forward is */
		phase__forward(t);
	span__derive(t, proc, pid, depth);
	if (sample_period_ns && t->gap_sampled)
		interval__send(SPAN_FORWARD, forward->name, forward->start_ns, t->now_ns,
			       DEPTH_AND_STEP(depth, proc->steps.cnt));
}

/*
 * Is a call of a function of this kind part of an open span? A backward inside a backward
 * (checkpointing) is, and so are the collectives that make up another one, and the driver's wait
 * inside the runtime's. A function that the user names counts at each call.
 */
static __always_inline bool is_part(struct thread *t, u32 kind)
{
	return kind != SPAN_USER && span__innermost(t, 1ULL << (kind & 63), 0);
}

/*
 * The stack pointer for span__repair at the entry of a function: a span in the very same frame is
 * dead too.
 */
static __always_inline u64 entry_sp(const struct pt_regs *ctx, u64 frame)
{
	return frame ? frame + 1 : ctx->sp;
}

/* Is what is known of the thread's spans from before a rest of its process? */
static __always_inline bool thread__is_stale(const struct thread *t, const struct proc *proc)
{
	return t->rests != proc->rests;
}

/* The state of a thread, created at its first use. NULL (counted): no memory. */
static __always_inline struct thread *thread__of(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t) /* the first attempt may find an empty per-CPU cache, which it refills */
		t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		count(CNT_NO_STORAGE);
	return t;
}

/*
 * The current thread at an event: sets its now_ns, and repairs its span stack for the stack pointer
 * sp. NULL: as for thread__of.
 */
static __always_inline struct thread *thread__enter(struct task_struct *task, u64 sp)
{
	u64 now = bpf_ktime_get_ns();
	struct thread *t = thread__of(task);

	if (!t)
		return NULL;
	t->before_ns = t->now_ns;
	t->now_ns = now;
	if (t->nvtx_epoch != nvtx_epoch)
		nvtx__forget(t);
	if (t->framed)
		span__repair(t, sp);
	return t;
}

#endif
