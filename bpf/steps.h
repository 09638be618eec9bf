/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Step boundaries, by the first of these rules that a process shows: Lightning's
 * run_training_batch; a DataLoader batch and then an optimizer step (several optimizers, or several
 * batches, make one step); an optimizer step alone, of the first optimizer seen until others alone
 * step; ProfilerStep#; JAX's StepTraceAnnotation; backward alone, the first of several after a batch;
 * calls of one JAX jitted function; the DataLoader's next alone. A better rule replaces a worse one
 * when it first matches. --step-at replaces all rules. The choice here is provisional: in the end
 * user/model/boundaries.c chooses the rule of a thread's steps.
 */
#ifndef STEPFLAME_BPF_STEPS_H
#define STEPFLAME_BPF_STEPS_H

#include "bpf/gpu_window.h"
#include "bpf/op_window.h"
#include "bpf/pass.h"
#include "bpf/phase.h"

/* data_seen of struct thread, of the thread's own batches; struct proc has DATA_EVER, and counts the batches */
#define DATA_FOR_OPTIMIZER 1 /* no optimizer has stepped since a DataLoader batch came */
#define DATA_FOR_BACKWARD  2 /* no backward has used the last batch */
#define DATA_EVER          4

static __always_inline void step__send(const struct thread *t, u32 pid, u32 rule, u64 index)
{
	struct rec_step *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_RING_FULL);
		return;
	}
	rec->hdr.type = REC_STEP;
	rec->hdr.flags = t->rests && !t->phases_from_ns ? REC_RESTED : 0;
	rec->hdr.size = sizeof(*rec);
	rec->time_ns = t->now_ns;
	rec->index = index;
	rec->pid = pid;
	rec->rule = rule;
	rec->tid = task_tid(bpf_get_current_task_btf());
	rec->serial = t->step_serial;
	rec->forward_ns = t->forward_ns;
	if (t->phases_from_ns)
		__builtin_memcpy(rec->phase_ns, t->phase_ns, sizeof(rec->phase_ns));
	else
		__builtin_memset(rec->phase_ns, 0, sizeof(rec->phase_ns));
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

/*
 * Emits the sums of CUDA calls since the last boundary. Calls that other threads add meanwhile
 * count in the next step.
 */
static __always_inline void step__send_gpu(const struct thread *t, struct proc *proc, u32 pid)
{
	struct gpu_sums now = proc->gpu.sums, before = proc->gpu.before;
	u64 from_ns = proc->gpu.from_ns;
	struct rec_gpu_step *rec;

	/* The first boundary ends no step; and the process may not use CUDA. */
	if (from_ns && now.launches | now.copies | now.api_ns | now.sync_ns) {
		rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);
		if (!rec) {
			count(CNT_RING_FULL);
			return; /* the next record covers both steps */
		}
		rec->hdr.type = REC_GPU_STEP;
		rec->hdr.flags = 0;
		rec->hdr.size = sizeof(*rec);
		rec->time_ns = t->now_ns;
		rec->from_ns = from_ns;
		rec->pid = pid;
		rec->pad = 0;
		rec->launches = now.launches - before.launches;
		rec->copies = now.copies - before.copies;
		rec->copied_bytes = now.copied_bytes - before.copied_bytes;
		rec->api_ns = now.api_ns - before.api_ns;
		rec->sync_ns = now.sync_ns - before.sync_ns;
		bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	}
	proc->gpu.before = now;
	proc->gpu.from_ns = t->now_ns;
}

/*
 * Counts the thread's boundaries by a rule in this window; with --steps the first boundary ends no
 * step and counts 0.
 */
static __always_inline u64 step__count(struct thread *t, const struct proc *proc, u32 rule)
{
	if (t->step_epoch != proc->step_epoch) {
		t->step_epoch = proc->step_epoch;
		t->phases_from_ns = 0;
		__builtin_memset(t->rule_steps, 0, sizeof(t->rule_steps));
	}
	t->step_serial++;
	return ++t->rule_steps[BOUND_INDEX(rule, RULE_ROOM)] - (step_limit != 0);
}

/* A slow step counts as two at most. */
static __always_inline void step__learn_length(const struct thread *t, struct proc *proc)
{
	u64 ns = t->now_ns - t->phases_from_ns, usual = proc->steps.usual_ns;

	if (!t->phases_from_ns)
		return;
	if (!usual)
		usual = ns;
	proc->steps.usual_ns = usual - usual / 8 + (ns < 2 * usual ? ns : 2 * usual) / 8;
}

static __always_inline void step__end(struct thread *t, struct proc *proc, u32 pid, u32 rule, u64 index)
{
	step__learn_length(t, proc);
	phase__set(t, t->phase);
	pass__cut(t);
	if (want_step_times)
		step__send(t, pid, rule, index);
	if (want_gpu)
		step__send_gpu(t, proc, pid);
	phase__restart(t);
	phase__keep(t, t->pass.before_ns);
}

/*
 * STEP_BACKWARD and STEP_LOADER also match before a better rule first does: backwards of gradient
 * accumulation, batches of a validation. So windows follow these two rules only after this many
 * matches without a better rule. BPF still emits all of their boundaries: a reader sees which rules
 * came later.
 */
#define STEP_PATIENCE 32

static __always_inline bool step__holds(struct proc *proc, u32 rule)
{
	if (rule == STEP_BACKWARD)
		return proc->steps.backwards >= STEP_PATIENCE || ++proc->steps.backwards == STEP_PATIENCE;
	if (rule == STEP_LOADER)
		return proc->steps.batches >= STEP_PATIENCE || ++proc->steps.batches == STEP_PATIENCE;
	return true;
}

/*
 * Advances the schedule by one step. Windows of operators count steps since their process got a
 * slot.
 */
static __always_inline void step__schedule(struct proc *proc, u32 pid, u64 now)
{
	u32 slot = proc->ops.slot - 1;
	struct op_proc *p = proc->ops.slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;
	u64 step = proc->steps.boundaries++;

	if (p)
		step = op_window__boundary(p, now);
	if (want_gpu_windows)
		gpu_window__boundary(proc, pid, step, now);
}

/*
 * May this rule define the steps, as far as is known? A waiting window opens only after a rule has
 * held for a step, since the first boundary may come from a worse rule.
 */
static __always_inline bool step__is_by(struct proc *proc, u32 rule, bool holds)
{
	bool counted = proc->steps.rule;

	if (!holds && proc->steps.seen_rule && proc->steps.seen_rule < rule)
		return false;
	if (!proc->steps.seen_rule || proc->steps.seen_rule > rule) {
		proc->steps.seen_rule = rule;
		if (!counted)
			proc->steps.cnt = 0;
	}
	if (!holds)
		return proc->window == WINDOW_OPEN;
	if (proc->steps.rule == rule)
		return true;
	proc->steps.rule = rule;
	proc->steps.cnt = 0;
	return proc->window != WINDOW_WAITING;
}

/* Do steps end by a better rule, as far as is known? */
static __always_inline bool step__has_better(const struct proc *proc, u32 rule)
{
	return (step_at[0] && rule != STEP_USER) || (proc->steps.rule && proc->steps.rule < rule);
}

/* A step ends and the next begins, at t->now_ns. */
__weak __noinline int step__boundary(struct thread *t, struct proc *proc, u32 pid, u32 rule)
{
	u64 index;
	bool holds;

	if (!t || !proc || step__has_better(proc, rule))
		return 0;
	holds = step__holds(proc, rule);
	if (!step__is_by(proc, rule, holds))
		return 0;
	if (holds)
		step__schedule(proc, pid, t->now_ns);
	if (proc->window == WINDOW_WAITING) {
		proc->window_start_ns = t->now_ns;
		proc->window = WINDOW_OPEN;
		proc->step_epoch++;
		proc->steps.cnt = proc->gpu.from_ns = 0;
	} else if (proc->window != WINDOW_OPEN) {
		return 0;
	}
	index = step__count(t, proc, rule);
	if (rule == (proc->steps.rule ?: proc->steps.seen_rule) && index > proc->steps.cnt)
		proc->steps.cnt = index;
	if (holds && step_limit && index == step_limit) {
		proc->window_end_ns = t->now_ns;
		proc->window = WINDOW_DONE;
	}
	step__end(t, proc, pid, rule, index);
	return 0;
}

/* ---- the rules ---- */

/*
 * The DataLoader whose batches the thread trains with is empty. Many loops fetch a batch ahead (those
 * of accelerate, of transformers' Trainer, of timm): they train with the last one only now.
 */
static __always_inline void step__is_empty(struct thread *t)
{
	t->left = t->in_hand ?: !t->was_empty;
	t->was_empty = true;
	t->in_hand = 0;
}

static __always_inline void step__uses_left(struct thread *t)
{
	if (!t->left)
		return;
	t->left--;
	t->data_seen |= DATA_FOR_OPTIMIZER | DATA_FOR_BACKWARD;
}

/*
 * A thread has fetched a batch. A thread that trains uses its own batches; a batch of any other
 * thread may be for all threads that train, and several may come before the first is used.
 */
static __always_inline void step__fetched(struct thread *t, struct proc *proc)
{
	if (t->pass.ended)
		step__is_empty(t);
	if (t->pass.empty)
		return;
	t->data_seen = DATA_EVER | DATA_FOR_OPTIMIZER | DATA_FOR_BACKWARD;
	t->in_hand++;
	t->left = 0;
	if (t->pass.trains)
		return;
	t->fetched++;
	proc->steps.data_seen = DATA_EVER;
	__sync_fetch_and_add(&proc->steps.fetched, 1);
	__sync_fetch_and_add(&proc->steps.for_optimizer, 1);
	__sync_fetch_and_add(&proc->steps.for_backward, 1);
}

#define TAKE_OFF_TRIES 4 /* each fails if another thread changes the count meanwhile */

/* Takes so many off a count that other threads change, too. false: it has less. */
static __always_inline bool step__take_off(u32 *cnt, u32 less)
{
	for (u32 i = 0; i < TAKE_OFF_TRIES; i++) {
		u32 before = *(volatile u32 *)cnt;

		if (before < less)
			return false;
		if (__sync_val_compare_and_swap(cnt, before, before - less) == before)
			return true;
	}
	return false;
}

/* The thread trains: batches that it fetched before that was known are for no other thread. */
static __always_inline void step__keeps_own(struct thread *t, struct proc *proc)
{
	if (!t->fetched)
		return;
	step__take_off(&proc->steps.fetched, t->fetched);
	step__take_off(&proc->steps.for_optimizer, t->fetched);
	step__take_off(&proc->steps.for_backward, t->fetched);
	if (!proc->steps.fetched)
		proc->steps.data_seen = 0;
	t->fetched = 0;
}

/*
 * Is there a batch that no optimizer, or no backward (own: the bit), has used? Uses it. ahead:
 * batches of other threads for the same.
 */
static __always_inline bool step__takes_batch(struct thread *t, u32 own, u32 *ahead)
{
	if (t->data_seen & own) {
		t->data_seen &= ~own;
		*ahead = 0; /* the thread gets its batches itself */
		return true;
	}
	return step__take_off(ahead, 1);
}

#define FETCHED_ENOUGH 16 /* batches, to say how many optimizers step for each */

/*
 * Is this the first step of an optimizer for a batch? Of batches that other threads fetch ahead, all
 * that is known is how many steps there are for each.
 */
static __always_inline bool step__is_first_update(struct thread *t, struct proc *proc)
{
	u32 fetched, each = 1, updates;

	step__keeps_own(t, proc);
	fetched = proc->steps.fetched;
	t->updates++;
	if (fetched) {
		updates = __sync_fetch_and_add(&proc->steps.updates, 1) + 1;
		if (fetched >= FETCHED_ENOUGH)
			each = (updates + fetched / 2) / fetched;
	}
	if (!(t->data_seen & DATA_FOR_OPTIMIZER) && t->updates < each)
		return false;
	if (!step__takes_batch(t, DATA_FOR_OPTIMIZER, &proc->steps.for_optimizer))
		return false;
	t->updates = 0;
	t->in_hand -= t->in_hand != 0;
	return true;
}

/* struct thread.backward */
#define BACKWARD_EVER     1
#define BACKWARD_NEW      2 /* since the last optimizer step that ended a step */
#define BACKWARD_OTHER    4 /* another optimizer has stepped since then */

#define UPDATE_LOOKS      64 /* steps at one place, behind which no other is looked for */
#define UPDATES_ELSEWHERE 6  /* since the last at that place */

/*
 * A loop with several optimizers of one class (an actor and its critics, a generator) steps with each in turn, at lines of
 * their own: only the first of them ends a step. Where steps elsewhere go on and on, they are no turn: then each ends one.
 */
static __always_inline bool update__ends_step(struct thread *t, const struct proc *proc)
{
	u64 place;

	if (t->update_looks >= UPDATE_LOOKS)
		return true;
	place = loop__of(t, proc);
	if (!place)
		return true;
	if (!t->update_place)
		t->update_place = place;
	if (place == t->update_place) {
		t->update_looks++;
		t->updates_elsewhere = 0;
		return true;
	}
	t->update_looks = 0;
	if (++t->updates_elsewhere <= UPDATES_ELSEWHERE)
		return false;
	t->update_looks = UPDATE_LOOKS;
	return true;
}

/*
 * A thread that steps so often after a batch trains with what it has: all of the data, or one batch again and again. Batches that
 * it fetches so seldom are for a look at what it has learned, and end no step.
 */
#define UPDATES_OF_BATCH 64

/*
 * Is it the optimizer whose steps end steps? That is the first one seen, until others alone step: a
 * program may train with one, and go on with another one.
 */
static __always_inline bool optimizer__is_chosen(struct thread *t, struct proc *proc, u64 name)
{
	if (proc->steps.optimizer && proc->steps.optimizer != name) {
		if (!(t->backward & BACKWARD_OTHER))
			proc->steps.others++;
		if (t->backward)
			t->backward |= BACKWARD_OTHER;
		if (proc->steps.others <= UPDATES_ELSEWHERE)
			return false;
		t->update_place = t->update_looks = t->updates_elsewhere = 0;
	}
	proc->steps.optimizer = name;
	proc->steps.others = 0;
	return true;
}

#define OUTSIDE_LIGHTNING 32

/*
 * A program may train with Lightning, and then by a loop of its own, as notebooks do: its optimizers
 * step outside of Lightning's actions.
 */
static __always_inline void step__outside(struct thread *t, struct proc *proc)
{
	if (proc->steps.rule != STEP_LIGHTNING || span__innermost(t, 1ULL << SPAN_ACTION, 0) ||
	    ++proc->landmarks.outside < OUTSIDE_LIGHTNING)
		return;
	proc->landmarks.is_over = true;
	proc->steps.rule = proc->steps.seen_rule = 0;
}

/*
 * Some libraries have one optimizer per parameter, all of one class: their steps after one backward
 * make one step. Where they step inside of backward, which is on a GPU on a thread of autograd's
 * engine, backward is the step.
 */
static __always_inline void step__optimizer(struct thread *t, struct proc *proc, u32 pid, u64 name)
{
	bool many = t->updates >= UPDATES_OF_BATCH, is_first;

	if (t->phase == PHASE_BACKWARD || task__is_engine(bpf_get_current_task_btf()))
		return;
	step__outside(t, proc);
	is_first = step__is_first_update(t, proc);
	if (many)
		t->repeats = true;
	else if (is_first)
		t->repeats = false;
	if (t->repeats && proc->steps.rule == STEP_LOADER_OPTIMIZER)
		proc->steps.rule = 0;
	if (is_first && !t->repeats) {
		step__boundary(t, proc, pid, STEP_LOADER_OPTIMIZER);
	} else if (!step__has_better(proc, STEP_OPTIMIZER) && optimizer__is_chosen(t, proc, name) &&
		   (!t->backward || t->backward & BACKWARD_NEW)) {
		t->backward &= BACKWARD_EVER;
		if (update__ends_step(t, proc))
			step__boundary(t, proc, pid, STEP_OPTIMIZER);
	}
}

/* For plain loops: ignores a backward inside a Lightning action or an optimizer's closure. */
static __always_inline void step__backward(struct thread *t, struct proc *proc, u32 pid)
{
	step__keeps_own(t, proc);
	step__uses_left(t);
	if (t->phase != PHASE_OTHER || (!step__takes_batch(t, DATA_FOR_BACKWARD, &proc->steps.for_backward) &&
					t->data_seen | proc->steps.data_seen))
		return;
	proc->steps.batches = 0; /* the process trains */
	step__boundary(t, proc, pid, STEP_BACKWARD);
}

/*
 * In a process that only infers, a forward ends here. Whether the process trains shows only later,
 * so this forward is provisional.
 */
static __always_inline void step__perhaps_forward(struct thread *t, const struct proc *proc)
{
	if (lightning__trains(proc) || !t->gap_ns || t->depth < t->gap_depth || t->gap_phase != PHASE_OTHER)
		return;
	phase__set(t, PHASE_OTHER);
	t->forward_ns = t->phase_ns[PHASE_OTHER] - t->gap_phase_ns;
	if (sample_period_ns && t->gap_sampled)
		interval__send(KIND_BY_RULE(SPAN_FORWARD, STEP_LOADER), fixed_names[NAME_FORWARD], t->gap_ns, t->now_ns,
			       DEPTH_AND_STEP(t->gap_depth, proc->steps.cnt));
}

/* A fetch begins: the work on the previous batch is over. */
static __always_inline void step__fetch(struct thread *t, struct proc *proc, u32 pid)
{
	if (t->phase != PHASE_OTHER)
		return;
	t->forward_ns = 0;
	if (!t->pass.trains && !t->pass.empty) { /* an inference: no backward ends a forward */
		if (proc->steps.rule == STEP_LOADER)
			gap__end(t, proc, pid);
		else if (!proc->steps.seen_rule || proc->steps.seen_rule == STEP_LOADER)
			step__perhaps_forward(t, proc);
	}
	pass__fetch(t, proc, pid);
	step__boundary(t, proc, pid, STEP_LOADER);
	t->forward_ns = 0;
}

/* XLA compiles: marks the innermost jitted call, whose time then does not count. */
static __always_inline void step__compiles(struct thread *t)
{
	int i = span__find(t, SPAN_JIT, TOKEN_ANY, 0);

	if (i >= 0)
		span__at(t, i)->label = 1;
}

/*
 * Which jitted function runs once per step? The one with at least half of the time in all jitted
 * calls, without calls in which XLA compiles; if no function has half, a smaller share suffices
 * after more calls.
 */
#define JIT_CALLS 4   /* calls of a function before it can be chosen */
#define JIT_AWAY  256 /* calls of other functions after which the chosen one can be replaced */

static __always_inline bool jit__is_step(const struct proc *proc, const struct jit_val *val)
{
	u32 share = proc->jit.calls < 64 ? 2 : proc->jit.calls < 256 ? 4 : 16;

	return val->calls >= JIT_CALLS && val->ns * share >= proc->jit.ns;
}

/* A call of a jitted function has ended. ns: its duration, 0: XLA compiled in it. */
__weak __noinline int step__jit(struct thread *t, struct proc *proc, u32 pid, u64 name, u64 ns)
{
	struct jit_key key = {.name = name, .pid = pid};
	struct jit_val *val, zero = {};

	if (!t || !proc || (proc->steps.rule && proc->steps.rule < STEP_JIT))
		return 0;
	val = bpf_map_lookup_elem(&jits, &key);
	if (!val) {
		bpf_map_update_elem(&jits, &key, &zero, BPF_NOEXIST);
		val = bpf_map_lookup_elem(&jits, &key);
	}
	if (val && ns) {
		__sync_fetch_and_add(&val->calls, 1);
		__sync_fetch_and_add(&val->ns, ns);
		__sync_fetch_and_add(&proc->jit.ns, ns);
		proc->jit.calls++;
	}
	if (proc->jit.name != name) {
		if (!val || (proc->jit.name && ++proc->jit.others < JIT_AWAY) || !jit__is_step(proc, val))
			return 0;
		proc->jit.name = name;
		if (proc->steps.rule == STEP_JIT) { /* restart the count with the new function */
			proc->steps.rule = STEP_NONE;
			proc->step_epoch++;
		}
	}
	proc->jit.others = 0;
	step__boundary(t, proc, pid, STEP_JIT);
	return 0;
}

/* The current event may have ended a span of --step-at. */
static __always_inline void step__user(struct task_struct *task, struct proc *proc, u32 pid)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);

	if (!t || !t->step_ended)
		return;
	t->step_ended = 0;
	step__boundary(t, proc, pid, STEP_USER);
}

/*
 * The ends of what was open on the thread may have come in a rest: forgets it, and what it did for
 * the step in which the rest began.
 */
__weak __noinline int thread__forget(struct thread *t)
{
	if (!t)
		return 0;
	if (t->around)
		__sync_fetch_and_sub(&around_cnt, 1);
	t->depth = t->framed = t->gap_depth = t->gap_sampled = t->sampled = t->updates = 0;
	t->around = t->gap_ns = t->gap_child_ns = t->gap_apart_ns = t->gap_phase_ns = t->forward_ns = 0;
	t->phase = t->gap_phase = t->evaluation = t->step_ended = 0;
	t->phase_since_ns = t->phases_from_ns = 0;
	t->backward &= BACKWARD_EVER;
	t->data_seen &= DATA_EVER;
	t->in_hand = t->left = t->was_empty = 0;
	t->pass.loop = t->pass.fetching = t->pass.start_ns = t->pass.child_ns = 0;
	t->pass.fetches = t->pass.depth = t->pass.empty = t->pass.ended = 0;
	return 0;
}

#endif
