/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The operator table: adds a call of an operator, a node or a label to its row when the call ends.
 * While a window is open every operator call of the target runs this code; so it calls helpers only
 * for the timeline.
 */
#ifndef STEPFLAME_BPF_OP_ROWS_H
#define STEPFLAME_BPF_OP_ROWS_H

#include "bpf/maps.h"
#include "bpf/row.h"
#include "bpf/sequence.h"

#define OP_ROW_TRIES 8 /* rows tried before the table counts as full */

/* Kinds that only the operator report lists; in other reports they are never a parent. */
#define OPERATOR_KINDS (1ULL << SPAN_OP | 1ULL << SPAN_EVALUATE | 1ULL << SPAN_NODE)
#define OP_ROW_KINDS   (OPERATOR_KINDS | 1ULL << SPAN_LABEL)

static __always_inline bool is_operator(u32 kind)
{
	return kind == SPAN_OP || kind == SPAN_EVALUATE || kind == SPAN_NODE;
}

static __always_inline bool has_op_row(u32 kind)
{
	return kind == SPAN_LABEL || is_operator(kind);
}

static __always_inline u64 op_key__hash(const struct op_key *key)
{
	return row__hash(key->name ^ key->action * 0x9e3779b97f4a7c15ULL ^ key->group * 0xd6e8feb86659fd93ULL ^
			 ((u64)key->pid << 8 | key->kind) * 0xa0761d6478bd642fULL);
}

static __always_inline struct op_entry *op_row__at(u32 i)
{
	return bpf_map_lookup_elem(&op_rows, &i);
}

/*
 * Index of the row with this key, created if it does not exist; OP_ROWS (counted): the table is
 * full.
 */
static __always_inline u32 op_row__find(const struct op_key *key)
{
	u64 hash = op_key__hash(key);
	bool fresh;
	u32 i = ROW_CLAIM(&op_rows, OP_ROWS, OP_ROW_TRIES, hash, &fresh);
	struct op_entry *row = fresh ? op_row__at(i) : NULL;

	if (row) {
		row->key = *key;
		row__publish(&row->head);
	}
	if (i == OP_ROWS)
		count(CNT_OP_ROWS_FULL);
	return i;
}

/*
 * Takes a call out of its row again: it was the only child of a call of its own name, and counts as
 * one with it.
 */
static __always_inline void op_row__uncount(const struct op_ended *call, const s64 *total_bytes)
{
	struct op_entry *row = call->row ? op_row__at(call->row - 1) : NULL;

	if (!row)
		return;
	__sync_fetch_and_add(&row->val.calls, -1ULL);
	__sync_fetch_and_add(&row->val.total_ns, -call->total_ns);
	__sync_fetch_and_add(&row->val.self_ns, -call->self_ns);
	for (int m = 0; m < OP_MEMORY__COUNT; m++) {
		if (total_bytes[m])
			__sync_fetch_and_add(&row->val.total_bytes[m], -total_bytes[m]);
		if (call->self_bytes[m])
			__sync_fetch_and_add(&row->val.self_bytes[m], -call->self_bytes[m]);
	}
}

/* Adds a call to its row. Returns 1 + the row's index, 0 when it has none. */
static __always_inline u32 op_row__add(u32 pid, const struct span *s, u64 total_ns, u64 self_ns)
{
	struct op_key key = {.pid = pid, .kind = s->kind, .name = s->name, .action = s->action, .group = s->op.group};
	u32 i = op_row__find(&key);
	struct op_entry *row = op_row__at(i);

	if (!row)
		return 0;
	__sync_fetch_and_add(&row->val.calls, 1);
	__sync_fetch_and_add(&row->val.total_ns, total_ns);
	__sync_fetch_and_add(&row->val.self_ns, self_ns);
	for (int m = 0; m < OP_MEMORY__COUNT; m++) {
		if (s->op.self_bytes[m])
			__sync_fetch_and_add(&row->val.self_bytes[m], s->op.self_bytes[m]);
		if (s->op.self_bytes[m] | s->op.child_bytes[m])
			__sync_fetch_and_add(&row->val.total_bytes[m], s->op.self_bytes[m] + s->op.child_bytes[m]);
	}
	return i + 1;
}

/*
 * Emits one span of the timeline, with `depth` spans around it. Takes the fields one by one, since
 * a struct needs room on the programs' small stacks.
 */
static __always_inline void timeline__put(struct op_proc *p, u32 kind, u64 name, u64 group, s64 sequence, u64 start_ns,
					  u64 end_ns, u32 depth)
{
	struct rec_span *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_SPANS_CUT);
		__sync_fetch_and_add(&p->cut, 1);
		return;
	}
	rec->hdr.type = REC_SPAN;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->pid = p->pid;
	rec->tid = task_tid(bpf_get_current_task_btf());
	rec->start_ns = start_ns;
	rec->duration_ns = end_ns - start_ns;
	rec->name = name;
	rec->group = group;
	rec->sequence = sequence;
	rec->kind = kind;
	rec->depth = depth;
	rec->pad = 0;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

static __always_inline void timeline__add(struct op_proc *p, const struct span *s, u64 end_ns, u32 depth)
{
	timeline__put(p, s->kind, s->name, s->op.group, s->op.sequence, s->start_ns, end_ns, depth);
}

static __always_inline bool in_op_window(const struct op_proc *p, const struct span *s)
{
	return p->open && s->start_ns >= p->window_start_ns;
}

/*
 * An operator, node or label has ended, with `depth` spans around it. As in torch.profiler
 * (torch/autograd/profiler_util.py, _remove_dup_nodes), a call whose only child has its own name
 * counts as one call with that child.
 */
static __always_inline void op__account(struct thread *t, struct op_proc *p, struct span *s, u32 depth)
{
	u64 total = t->now_ns - s->start_ns;
	u64 self = total > s->op_child_ns ? total - s->op_child_ns : 0;
	bool counted = in_op_window(p, s);
	u32 row = 0;

	if (s->op.inside.cnt == 1 && s->op.inside.merged == s->op.merged) {
		if (counted)
			op_row__uncount(&s->op.inside, s->op.child_bytes);
		self += s->op.inside.self_ns;
		for (int m = 0; m < OP_MEMORY__COUNT; m++) {
			s->op.self_bytes[m] += s->op.inside.self_bytes[m];
			s->op.child_bytes[m] -= s->op.inside.self_bytes[m];
		}
	}
	if (counted) {
		row = op_row__add(p->pid, s, total, self);
		if (want_timeline) {
			sequence__confirm(t, p, s);
			timeline__add(p, s, t->now_ns, depth);
		}
	}
	if (depth) {
		struct span *parent = span__at(t, depth - 1);

		parent->op_child_ns += total;
		parent->op.inside.cnt++;
		parent->op.inside.merged = s->op.merged;
		parent->op.inside.total_ns = total;
		parent->op.inside.self_ns = self;
		parent->op.inside.row = row;
		for (int m = 0; m < OP_MEMORY__COUNT; m++) {
			parent->op.child_bytes[m] += s->op.self_bytes[m] + s->op.child_bytes[m];
			parent->op.inside.self_bytes[m] = s->op.self_bytes[m];
		}
	}
}

/* Nothing is inside the span yet. Without operators its cache lines stay untouched. */
static __always_inline void op_span__clear(struct span *s)
{
	if (!want_ops)
		return;
	__builtin_memset(&s->op, 0, sizeof(s->op));
	s->op.merged = s->name;
	s->op.sequence = -1;
}

/*
 * Hands what was inside `from`, a span that has no row or has lost its end, to the span around it.
 */
static __always_inline void op__move_children(struct span *to, const struct span *from)
{
	if (!want_ops)
		return;
	to->op_child_ns += from->op_child_ns;
	if (from->op.inside.cnt) {
		u32 before = to->op.inside.cnt;

		to->op.inside = from->op.inside;
		to->op.inside.cnt += before;
	}
	for (int m = 0; m < OP_MEMORY__COUNT; m++)
		to->op.child_bytes[m] += from->op.self_bytes[m] + from->op.child_bytes[m];
}

/* Span i has lost its end. It still was a call, so another call beside it is not an only child. */
__weak __noinline int op__lose(struct thread *t, u32 i)
{
	const struct span *lost;
	struct span *to;

	if (!t || !i || !want_ops)
		return 0;
	lost = span__at(t, i);
	to = span__at(t, i - 1);
	op__move_children(to, lost);
	if (!has_op_row(lost->kind))
		return 0;
	to->op.inside.cnt++;
	to->op.inside.merged = 0;
	return 0;
}

#endif
