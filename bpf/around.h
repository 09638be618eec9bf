/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python frames around a span: the part of a sample's stack that existed before the span began.
 * BPF walks the stack at the end of a span that has samples, so that other spans cost nothing.
 *
 *   sample of a path -> thread.sampled -> end of a span -> REC_AROUND, when its stack is a new one
 */
#ifndef STEPFLAME_BPF_AROUND_H
#define STEPFLAME_BPF_AROUND_H

#include "bpf/op_rows.h"
#include "bpf/path.h"
#include "bpf/pystack.h"

#define AROUND_MAX      8192
#define AROUND_REQUESTS 8 /* spans that one path asks for: calls of a path may come from different places */

/* Records already emitted, by a hash of their content. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, AROUND_MAX);
	__type(key, u64);
	__type(value, u8);
} arounds __weak SEC(".maps");

/* Separate from sample_scratch, which a timer's sample uses at any moment. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_scratch);
} around_scratch __weak SEC(".maps");

/* The thread has a sample inside its open spans: marks these for REC_AROUND. */
static __always_inline void around__request(struct thread *t, u64 path)
{
	u32 depth = t->depth, open = depth < SPAN_DEPTH ? (1u << depth) - 1 : ~0u;
	u8 *requests = path ? bpf_map_lookup_elem(&paths, &path) : NULL;

	if (!requests || !depth || *requests > AROUND_REQUESTS || (t->sampled & open) == open)
		return;
	if (is_operator(span__at(t, depth - 1)->kind)) /* each operator has a path of its own */
		return;
	++*requests;
	t->sampled |= open;
}

/*
 * Span i ends: notes it, and around__emit emits the record at the end of the program, since the
 * verifier allows no stack walk from deeper inside. The program for CUDA functions emits none: no
 * Python runs inside them.
 */
__weak __noinline int around__note(struct thread *t, u32 i)
{
	const struct span *s;
	u32 nested = 0;

	if (!t || i >= SPAN_DEPTH)
		return 0;
	s = span__at(t, i);
	if (!s->name || !s->kind || s->kind == SPAN_SYNC || is_operator(s->kind))
		return 0;
	for (u32 n = 0; n < SPAN_DEPTH; n++) {
		if (n >= i)
			break;
		nested += span__at(t, n)->kind == s->kind && span__at(t, n)->name == s->name;
	}
	if (!t->around)
		__sync_fetch_and_add(&around_cnt, 1);
	t->around = s->name;
	t->around_kind = s->kind;
	t->around_nested = nested;
	return 0;
}

static __always_inline struct thread *around__thread(void)
{
	struct thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);

	return t && t->around ? t : NULL;
}

__weak __noinline int around__send(u64 stack)
{
	struct thread *t = around__thread();
	struct rec_around *rec;
	u8 one = 1;
	u64 key;

	if (!t || !stack)
		return 0;
	key = name_hash__seed(t->around_kind, t->around_nested);
	key = name_hash__end(name_hash__add(name_hash__add(key, t->around), stack));
	if (bpf_map_lookup_elem(&arounds, &key))
		return 0;
	rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);
	if (!rec) {
		count(CNT_RING_FULL);
		return 0;
	}
	rec->hdr.type = REC_AROUND;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->name = t->around;
	rec->stack = stack;
	rec->kind = t->around_kind;
	rec->nested = t->around_nested;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&arounds, &key, &one, BPF_ANY);
	return 0;
}

/*
 * A separate function with hardly any locals: BPF programs have 512 bytes of stack, and a walk
 * needs most of them.
 */
__weak __noinline u64 around__walk(struct stack_scratch *scratch, const struct proc *proc, u32 pid)
{
	return scratch && proc ? stack__of(scratch, proc, pid) : 0;
}

/* Emits REC_AROUND for the current thread's span that has just ended, if around__note noted one. */
static __always_inline void around__emit(const struct proc *proc, u32 pid)
{
	static const u32 zero = 0;
	struct thread *t = around__thread();
	struct stack_scratch *scratch = bpf_map_lookup_elem(&around_scratch, &zero);
	u64 stack;

	if (!t)
		return;
	__sync_fetch_and_sub(&around_cnt, 1);
	/*
	 * If this thread has preempted one that is using the scratch memory of this CPU, the span
	 * has to wait until the next time.
	 */
	if (scratch && proc->window == WINDOW_OPEN && !__sync_lock_test_and_set(&scratch->busy, 1)) {
		stack = around__walk(scratch, proc, pid);
		__sync_lock_test_and_set(&scratch->busy, 0);
		around__send(stack);
	}
	t->around = 0;
}

#endif
