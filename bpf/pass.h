/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Evaluations in plain loops. Their only landmarks are the fetches of a DataLoader: an evaluation
 * is a pass over a loader without training.
 *
 * A pass is two or more fetches of one loop with no backward and no optimizer step between them. It
 * lasts from the start of the first fetch to the end of the fetch that finds no batch, or to
 * another loop's fetch. The thread must train, but not with batches of that loop: a training loop
 * may skip batches, or fetch several before it uses one.
 *
 * The Python frames around a fetch, and the instruction of each, identify a loop: so zipped loaders
 * are one loop, and a function called both to train and to evaluate has two. A loop that alternates
 * between both trains until its loader is empty.
 */
#ifndef STEPFLAME_BPF_PASS_H
#define STEPFLAME_BPF_PASS_H

#include "bpf/pyframe.h"
#include "bpf/span.h"

#define PASS_FETCHES 2
#define PASS_LOOKS   64 /* batches of a thread that may not train: for these its loops are told apart */

struct loop_walk {
	u64 frame, hash;
};

/* Hashes one frame and moves outwards to the next; false: unreadable. */
__weak __noinline int loop__step(struct thread *t, const struct proc *proc, struct loop_walk *at)
{
	struct py_frame frame = {};

	if (!t || !proc || !at || !py_frame__read(&t->names, &proc->py.layout, at->frame, &frame))
		return false;
	at->frame = frame.previous;
	if (frame.code)
		at->hash = name_hash__add(name_hash__add(at->hash, frame.code), frame.offset);
	return true;
}

/* The loop of the current thread's fetch; 0: unknown. */
__weak __noinline u64 loop__of(struct thread *t, const struct proc *proc)
{
	struct loop_walk at = {.hash = name_hash__seed(0, 0)};

	if (!t || !proc || !proc->py.layout.minor || !py__own_frame(&proc->py, &at.frame) || !at.frame)
		return 0;
	for (u32 i = 0; i < PY_FRAMES && at.frame; i++)
		if (!loop__step(t, proc, &at))
			return 0;
	return name_hash__end(at.hash);
}

struct exit_walk {
	u64 frame;
	u32 raised;
	u32 pad;
};

/* Checks one frame for fetch__raised and moves outwards; false: found __exit__, or unreadable. */
__weak __noinline int exit__step(struct thread *t, const struct proc *proc, struct exit_walk *at)
{
	const struct py_layout *py;
	u64 own, head[2], tail[2], exception[2] = {};
	struct py_frame frame = {};

	if (!t || !proc || !at)
		return false;
	py = &proc->py.layout;
	own = at->frame;
	if (!py_frame__read(&t->names, py, own, &frame))
		return false;
	at->frame = frame.previous;
	if (!frame.code || !py__head(py, read_u64(frame.code + py->code_name), head) ||
	    !HEAD_IS(head, "__exit__\0\0\0\0\0\0\0\0") ||
	    !py__tail(py, read_u64(frame.code + py->code_filename), tail) || !TAIL_IS(tail, "grad/profiler.py"))
		return true;
	bpf_probe_read_user(exception, sizeof(exception), (const void *)(own + py->frame_locals + 8));
	at->raised = ((exception[0] ^ exception[1]) & ~(u64)py->ref_mask) != 0;
	return false;
}

#define EXIT_FRAMES 6 /* __exit__ may be some frames out: it calls torch's operator, where the probe is */

/*
 * Does an exception end this fetch, as StopIteration does after the last batch? Then the arguments
 * of record_function.__exit__(self, type, value, traceback) are not all None.
 */
__weak __noinline int fetch__raised(struct thread *t, const struct proc *proc)
{
	struct exit_walk at = {};

	if (!t || !proc || !proc->py.layout.minor || !py__own_frame(&proc->py, &at.frame))
		return false;
	for (u32 i = 0; i < EXIT_FRAMES && at.frame; i++)
		if (!exit__step(t, proc, &at))
			break;
	return at.raised;
}

static __always_inline bool pass__is_evaluation(const struct pass *pass)
{
	return pass->trains && pass->loop && pass->fetches >= PASS_FETCHES;
}

/* A step ends: its part of the pass is validation. */
static __always_inline void pass__cut(struct thread *t)
{
	if (pass__is_evaluation(&t->pass))
		phase__validate(t, t->pass.before_ns);
}

/* The batches of a pass are for no optimizer, whether or not it is known yet that the thread trains. */
static __always_inline void pass__leave(struct thread *t)
{
	if (t->pass.loop && t->pass.fetches >= PASS_FETCHES) {
		t->data_seen = t->pass.data_seen;
		t->in_hand = t->pass.in_hand;
	}
}

/* Emits the pass so far as a SPAN_VALIDATION, if it has enough fetches. */
static __always_inline void pass__emit(struct thread *t, const struct proc *proc, u32 pid)
{
	struct pass *pass = &t->pass;
	struct span *derived;

	if (!pass__is_evaluation(pass))
		return;
	if (pass->depth > t->depth) /* a span around the pass has ended */
		pass->depth = t->depth;
	phase__validate(t, pass->before_ns);
	derived = span__derived(t, SPAN_VALIDATION, NAME_VALIDATION, pass->start_ns, pass->child_ns);
	span__derive(t, proc, pid, pass->depth);
	if (sample_period_ns)
		interval__send(SPAN_VALIDATION, derived->name, derived->start_ns, t->now_ns,
			       DEPTH_AND_STEP(pass->depth, proc->steps.cnt));
	/* No forward began in the pass. */
	t->gap_ns = 0;
	phase__mark(t);
}

/* A fetch begins: it extends the current pass, or ends it and begins another one. */
static __always_inline void pass__fetch(struct thread *t, const struct proc *proc, u32 pid)
{
	struct pass *pass = &t->pass;

	if (lightning__trains(proc) || (!pass->trains && t->fetched >= PASS_LOOKS))
		return;
	pass->fetching = loop__of(t, proc);
	if (pass->loop && pass->fetching == pass->loop) {
		pass->fetches++;
		return;
	}
	pass__leave(t);
	pass__emit(t, proc, pid);
	pass->loop = pass->fetching == pass->trained ? 0 : pass->fetching;
	pass->fetches = 1;
	pass->start_ns = t->now_ns;
	pass->child_ns = 0;
	pass->depth = t->depth;
	pass->data_seen = t->data_seen;
	pass->in_hand = t->in_hand;
	phase__keep(t, pass->before_ns);
}

/* The fetch has ended, with a batch or without. */
static __always_inline void pass__fetched(struct thread *t, const struct proc *proc, u32 pid)
{
	struct pass *pass = &t->pass;

	pass->empty = pass->ended = 0;
	if (t->phase != PHASE_OTHER || lightning__trains(proc))
		return;
	pass->empty = fetch__raised(t, proc);
	if (!pass->empty)
		return;
	if (pass->fetching == pass->loop) {
		pass__leave(t);
		pass__emit(t, proc, pid);
		pass->loop = 0;
	}
	if (pass->fetching && pass->fetching == pass->trained) {
		pass->trained = 0;
		pass->ended = 1;
	}
	pass->fetching = 0;
}

/* A backward or an optimizer step: the last fetch was for training. */
static __always_inline void pass__train(struct thread *t)
{
	struct pass *pass = &t->pass;

	pass->trains = true;
	pass->loop = 0;
	if (pass->fetching)
		pass->trained = pass->fetching;
}

#endif
