/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The span stack of a thread, and the row that a span becomes when it ends. Every source begins and ends its spans
 * here.
 *
 *   span__begin -> thread.spans[] -> span__end -> aggs
 */
#ifndef STEPFLAME_SPAN_H
#define STEPFLAME_SPAN_H

#include "interval.h"
#include "op_rows.h"
#include "phase.h"

/* 0 when the interval is not wholly inside the window of its process. */
static __always_inline bool in_window(const struct proc *proc, u64 start_ns)
{
	return proc->window == WINDOW_OPEN && start_ns >= proc->window_start_ns;
}

static __always_inline u32 log2_bucket(u64 ns)
{
	u32 bucket = 0;

	/* Six compares: the verifier need not follow a loop. */
	if (ns >> 32) {
		bucket += 32;
		ns >>= 32;
	}
	if (ns >> 16) {
		bucket += 16;
		ns >>= 16;
	}
	if (ns >> 8) {
		bucket += 8;
		ns >>= 8;
	}
	if (ns >> 4) {
		bucket += 4;
		ns >>= 4;
	}
	if (ns >> 2) {
		bucket += 2;
		ns >>= 2;
	}
	if (ns >> 1)
		bucket++;
	return bucket < AGG_BUCKETS ? bucket : AGG_BUCKETS - 1;
}

__weak __noinline int agg__add(const struct agg_key *key, u64 start_ns, u64 total_ns, u64 self_ns)
{
	static const struct agg_val zero = {.min_ns = ~0ULL, .first_ns = ~0ULL};
	struct agg_val *val;
	struct agg_key k;
	u64 old;

	if (!key)
		return 0;
	k = *key;
	val = bpf_map_lookup_elem(&aggs, &k);
	if (!val) {
		bpf_map_update_elem(&aggs, &k, &zero, BPF_NOEXIST);
		val = bpf_map_lookup_elem(&aggs, &k);
		if (!val) {
			count(CNT_MAP_FULL);
			return 0;
		}
	}
	__sync_fetch_and_add(&val->calls, 1);
	__sync_fetch_and_add(&val->total_ns, total_ns);
	__sync_fetch_and_add(&val->self_ns, self_ns);
	__sync_fetch_and_add(&val->hist[log2_bucket(total_ns)], 1);
	/*
	 * Another thread may win a race for the same minimum; one retry is enough in practice, and a miss costs one
	 * extreme.
	 */
	old = val->min_ns;
	if (total_ns < old && __sync_val_compare_and_swap(&val->min_ns, old, total_ns) != old && total_ns < val->min_ns)
		val->min_ns = total_ns;
	old = val->max_ns;
	if (total_ns > old && __sync_val_compare_and_swap(&val->max_ns, old, total_ns) != old && total_ns > val->max_ns)
		val->max_ns = total_ns;
	if (start_ns < val->first_ns)
		val->first_ns = start_ns;
	return 0;
}

/* Nobody's parent: an operator, or an NVTX range without a name. */
static __always_inline bool is_transparent(const struct span *s)
{
	return is_operator(s->kind) || !s->name;
}

/* 1 + index of the innermost span below that depth that is somebody's parent; 0: none. */
static __always_inline u32 span__outer(struct thread *t, u32 depth)
{
	const struct span *below;

	if (!depth)
		return 0;
	below = span__at(t, depth - 1);
	return is_transparent(below) ? below->outer : depth;
}

/* What operators at that depth are done for. A backward inside of one of Lightning's actions is done for that. */
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

/* Is a span at that depth directly inside of what may be forward? Operators between do not count. */
static __always_inline bool in_gap(const struct thread *t, u32 depth, u32 outer)
{
	return depth >= t->gap_depth && outer <= t->gap_depth;
}

/* Likewise inside of what may be an evaluation? */
static __always_inline bool in_pass(const struct thread *t, u32 depth, u32 outer)
{
	return t->pass.loop && depth >= t->pass.depth && outer <= t->pass.depth;
}

/*
 * Drops the spans from that depth on, counted. When they ended is not known, nor, if the last landmark was inside, when
 * forward began. The spans in them that had ended become the enclosing span's.
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
		cnt += MASK_IF(s->kind) & 1; /* SPAN_NONE: that one has ended, span__outlived */
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

/* A span that begins again has lost its end. */
static __always_inline void span__drop_reused(struct thread *t, u32 i)
{
	span__drop(t, i + 1, CNT_DROPPED_INNER);
	span__drop(t, i, CNT_SPAN_REUSED);
}

/*
 * Closes what an exception or a longjmp left open: a native span is dead when the stack pointer is above the slot of
 * its return address, and so is all that was begun inside it. When it ended is not known, so it is not timed.
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
 * Index of the innermost open span with that kind and token (or TOKEN_ANY) whose frame, when both are known, is
 * `frame`; or -1.
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

/* 1 + index of the innermost span that has a row in the operator table, 0 when there is none. */
__weak __noinline int span__row_at(struct thread *t)
{
	u32 depth;

	if (!t)
		return 0;
	depth = t->depth;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		if (n >= depth)
			break;
		if (has_op_row(span__at(t, depth - 1 - n)->kind))
			return depth - n;
	}
	return 0;
}

/* 1 + index of the outermost span from that depth on that is not transparent, 0 when there is none. */
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

/* 1 + index of the operator that runs in that very frame, 0 when there is none. */
__weak __noinline int span__operator_at(struct thread *t, u64 frame)
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
		if (s->frame == frame && is_operator(s->kind))
			return depth - n;
	}
	return 0;
}

/*
 * For the end of an operator that is not the innermost span: what is inside of it has lost its end and is dropped,
 * counted. Returns 1 + its index, 0 when it is not there.
 */
static __always_inline u32 span__unwind_to(struct thread *t, u64 frame)
{
	u32 depth;

	span__repair(t, frame);
	depth = span__operator_at(t, frame);
	if (depth && depth < t->depth)
		span__drop(t, depth, CNT_DROPPED_INNER);
	return depth;
}

/*
 * For an end whose frame is not known: it is that of the innermost operator, which lies above sp, since what was called
 * from there has ended. Returns 1 + its index, 0 when there is none with that token (or TOKEN_ANY).
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

/* The time is taken last: what the program did before is not in the span. NULL when the stack is full. */
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
	__builtin_memset(&s->op, 0, sizeof(s->op));
	s->op.merged = name;
	s->op.sequence = -1;
	t->depth = depth + 1;
	t->framed += frame != 0;
	s->start_ns = bpf_ktime_get_ns();
	return s;
}

/*
 * What a span that is no operator's means to the operator table: a label has a row there, the others are transparent.
 */
static __always_inline void span__account_op(struct thread *t, const struct proc *proc, struct span *s, u32 depth)
{
	u32 slot = proc->op_slot - 1;
	struct op_proc *p = proc->op_slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;

	if (!p)
		return;
	if (s->kind == SPAN_LABEL) {
		op__account(t, p, s, depth);
		return;
	}
	if (depth)
		op__hand_out(span__at(t, depth - 1), s);
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
	agg__add(&key, s->start_ns, total, self);
	if (s->also) {
		key.kind = SPAN_ACTION;
		key.name = fixed_name(s->also - 1);
		agg__add(&key, s->start_ns, total, self);
	}
	return 0;
}

/* Forward may begin, but no earlier than now. */
static __always_inline void gap__restart(struct thread *t)
{
	t->gap_ns = t->now_ns;
	t->gap_depth = t->depth;
	t->gap_child_ns = 0;
	t->gap_sampled = 0;
}

static __always_inline bool is_nvtx(const struct span *s)
{
	return s->kind == SPAN_LABEL && s->label == LABEL_NVTX;
}

/* Are all spans from that depth on NVTX ranges? */
__weak __noinline int spans__are_nvtx(struct thread *t, u32 depth)
{
	if (!t)
		return 0;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		if (depth + n >= t->depth)
			break;
		if (!is_nvtx(span__at(t, depth + n)))
			return 0;
	}
	return 1;
}

/* Takes span i out from under those above it, which go on. */
__weak __noinline int span__take_out(struct thread *t, u32 i)
{
	u32 outer, depth;
	bool nvtx;

	if (!t || i >= t->depth)
		return 0;
	depth = t->depth;
	outer = span__at(t, i)->outer;
	nvtx = is_nvtx(span__at(t, i));
	t->framed -= span__at(t, i)->frame != 0;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		struct span *to = span__at(t, i + n), *from = span__at(t, i + n + 1);

		if (i + n + 1 >= depth)
			break;
		if (!nvtx) /* they have none of their own */
			from->phase = i ? span__at(t, i - 1)->phase : PHASE_OTHER;
		*to = *from;
		if (to->outer == i + 1)
			to->outer = outer;
		else if (to->outer > i + 1)
			to->outer--;
	}
	t->depth = depth - 1;
	t->gap_depth -= t->gap_depth > i;
	t->pass.depth -= t->pass.depth > i;
	t->evaluation -= t->evaluation > i + 1;
	return 0;
}

/*
 * Span i ends, and those above it go on: NVTX ranges begin and end where they like, and what is around one need not be
 * around its end. The part of them that was inside is its child, and not again that of what is around both. It is then in
 * the first free slot.
 */
__weak __noinline int span__slip(struct thread *t, const struct proc *proc, u32 pid, u32 i)
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

/* From here on the span is bound to no frame. */
static __always_inline void span__unbind(struct thread *t, struct span *s)
{
	t->framed -= s->frame != 0;
	s->frame = 0;
}

/* A landmark ended, after which forward may begin. */
static __always_inline void gap__begin(struct thread *t)
{
	gap__restart(t);
	phase__mark(t);
}

/*
 * Lightning's profiler for torch labels each action, and ends the label in the very next() that ends the action: an
 * instant after us. Such a label goes on, over a span without a kind, which goes with it.
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
		op__hand_out(span__at(t, depth - 2), span__at(t, depth - 1));
}

/* Does --step-at name it? */
static __always_inline bool span__ends_step(const struct span *s)
{
	return step_at[0] &&
	       (s->name == step_at[0] || s->name == step_at[1] || (s->also && fixed_name(s->also - 1) == step_at[0]));
}

/*
 * Ends span i (from span__find). What is open above it has lost its end and is dropped, counted. Returns the span,
 * whose slot stays readable until the next span__begin; NULL when i is -1.
 */
static __always_inline struct span *span__end(struct thread *t, const struct proc *proc, u32 pid, int i)
{
	bool landmark;
	struct span *s;

	if (i < 0)
		return NULL;
	landmark = t->gap_ns && (u32)i < t->gap_depth;
	s = span__at(t, i);
	if ((u32)i + 1 < t->depth && (is_nvtx(s) || spans__are_nvtx(t, i + 1))) {
		span__slip(t, proc, pid, i);
		s = span__at(t, t->depth);
	} else if (span__outlived(t, i)) {
		span__account(t, proc, s, pid, i);
		s->kind = SPAN_NONE;
		s->phase = span__at(t, i + 1)->phase = i ? span__at(t, i - 1)->phase : PHASE_OTHER;
		s->op_child_ns = 0;
		__builtin_memset(&s->op, 0, sizeof(s->op));
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
	if (landmark) /* the last one was inside */
		gap__restart(t);
	return s;
}

/* A span that is known only now that it ends; span__derive adds it. */
static __always_inline struct span *span__derived(struct thread *t, u32 kind, u32 name, u64 start_ns, u64 child_ns)
{
	struct span *derived = &t->derived;

	__builtin_memset(derived, 0, sizeof(*derived));
	derived->start_ns = start_ns;
	derived->child_ns = child_ns;
	derived->name = fixed_names[name];
	derived->kind = kind;
	derived->op.sequence = -1;
	return derived;
}

__weak __noinline int span__derive(struct thread *t, const struct proc *proc, u32 pid, u32 depth)
{
	struct span *derived;
	u32 outer, inner;

	if (!t || !proc || depth > SPAN_DEPTH)
		return 0;
	derived = &t->derived;
	/* A span that began in it and goes on: that part is its own, too, and in the self time of one of them only. */
	inner = span__first_inside(t, depth);
	if (inner)
		derived->child_ns += t->now_ns - span__at(t, inner - 1)->start_ns;
	/* The spans inside were, or will be, the enclosing span's children; they become its own. */
	outer = span__outer(t, depth);
	if (outer)
		span__at(t, outer - 1)->child_ns -= derived->child_ns;
	span__account(t, proc, derived, pid, depth);
	if (span__ends_step(derived))
		t->step_ended = 1;
	return 0;
}

/* Backward begins: what lies between the last landmark and now was forward. */
static __always_inline void gap__end(struct thread *t, const struct proc *proc, u32 pid)
{
	struct span *forward;
	u32 depth = t->gap_depth;

	if (!t->gap_ns || t->depth < depth || depth > SPAN_DEPTH)
		return;
	forward = span__derived(t, SPAN_FORWARD, NAME_FORWARD, t->gap_ns, t->gap_child_ns);
	t->gap_ns = 0;
	if (!proc->profile_code) /* Lightning's training_step says better where it is */
		phase__forward(t);
	span__derive(t, proc, pid, depth);
	if (sample_period_ns && t->gap_sampled)
		interval__send(SPAN_FORWARD, forward->name, forward->start_ns, t->now_ns,
			       DEPTH_AND_STEP(depth, proc->steps));
}

/*
 * Is a call of a function with that kind of span part of one that is open? A backward inside a backward (checkpointing) is, and so are a
 * collective that is made of others, and the driver's wait inside the runtime's. What the user names is counted at each
 * call.
 */
__weak __noinline int is_part(struct thread *t, u32 kind)
{
	u32 depth;

	if (!t || kind == SPAN_USER)
		return 0;
	depth = t->depth;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		if (n >= depth)
			break;
		if (span__at(t, n)->kind == kind)
			return 1;
	}
	return 0;
}

/* Index of the outermost NVTX range, and how many there are of them above it: -1 when there are not that many. */
__weak __noinline int nvtx__outermost(struct thread *t, u32 above)
{
	u32 cnt = 0;
	int first = -1;

	if (!t)
		return -1;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		if (n >= t->depth)
			break;
		if (!is_nvtx(span__at(t, n)))
			continue;
		if (first < 0)
			first = n;
		cnt++;
	}
	return cnt > above ? first : -1;
}

/* What was inside of a range that is given up is inside of what was around it. */
__weak __noinline int nvtx__give_up(struct thread *t, u32 i)
{
	u32 outer;

	if (!t || i >= t->depth)
		return 0;
	outer = span__outer(t, i);
	if (outer)
		span__at(t, outer - 1)->child_ns += span__at(t, i)->child_ns;
	op__lose(t, i);
	span__take_out(t, i);
	return 0;
}

#define NVTX_OPEN_MAX 16 /* on a thread: ranges that are never popped may not take all room */

/* Their probes are gone, and will not tell of their ends. */
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
		count(CNT_NVTX_NOT_POPPED);
	}
	phase__leave(t);
	return 0;
}

/* What to repair for at the entry of a function: a span in the very same frame is dead too. */
static __always_inline u64 entry_sp(const struct pt_regs *ctx, u64 frame)
{
	return frame ? frame + 1 : ctx->sp;
}

/* NULL (counted): no memory for it. */
static __always_inline struct thread *thread__of(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t) /* the first allocation may meet an empty per-CPU cache, which that refills */
		t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		count(CNT_NO_STORAGE);
	return t;
}

/* The current thread at an event: its time taken, its stack repaired for the stack pointer sp. NULL as thread__of. */
static __always_inline struct thread *thread__enter(struct task_struct *task, u64 sp)
{
	u64 now = bpf_ktime_get_ns();
	struct thread *t = thread__of(task);

	if (!t)
		return NULL;
	t->now_ns = now;
	if (t->nvtx_epoch != nvtx_epoch)
		nvtx__forget(t);
	if (t->framed)
		span__repair(t, sp);
	return t;
}

#endif
