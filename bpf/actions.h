/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lightning's actions, from two functions of the interpreter.
 *
 * `with profiler.profile(name)` is a generator: the first next() on it starts the action, the second, or a throw(), ends it. That holds
 * with no profiler configured too. What Lightning starts and stops by direct calls does not pass there: the batch fetches are taken from
 * CombinedLoader.__next__, which those calls bracket, and the manual optimizer_step from torch's own label (labels.h).
 */
#ifndef STEPFLAME_ACTIONS_H
#define STEPFLAME_ACTIONS_H

#include "event.h"
#include "python.h"
#include "span.h"
#include "steps.h"

#define LOCAL_ACTION_NAME 1 /* Profiler.profile(self, action_name) */

/* Is that the code object of Lightning's Profiler.profile? (lightning/pytorch/profilers/profiler.py; before 1.8 profiler/profiler.py, before 1.6 base.py) */
static __always_inline bool is_profile(struct proc *proc, u32 pid, u64 code)
{
	const struct py_layout *py = &proc->py.layout;
	u64 head[2], tail[2];

	if (!code)
		return false;
	if (code == proc->profile_code)
		return true;
	if (!py__head(py, read_u64(code + py->code_name), head) || !HEAD_IS(head, "profile\0\0\0\0\0\0\0\0\0"))
		return false;
	if (!py__tail(py, read_u64(code + py->code_filename), tail) ||
	    !(TAIL_IS(tail, "lers/profiler.py") || TAIL_IS(tail, "iler/profiler.py") ||
	      TAIL_IS(tail, "profiler/base.py")))
		return false;
	/* Remembered only once it is told: what is not will be tried again. */
	if (proc->profile_code || event__send(PROC_LIGHTNING, pid, 0, 0, bpf_get_current_task_btf()))
		proc->profile_code = code;
	return true;
}

/* A generator's frame when it runs Profiler.profile, else 0. */
static __always_inline u64 profile_frame(struct proc *proc, u32 pid, u64 gen)
{
	const struct py_layout *py = &proc->py.layout;
	u64 frame;

	if (read_u64(gen + 8) != proc->py.gen_type) /* ob_type */
		return 0;
	frame = gen + py->gen_frame;
	if (!py->gen_embedded)
		frame = read_u64(frame);
	if (!frame || !is_profile(proc, pid, read_u64(frame + py->frame_code) & ~(u64)py->ref_mask))
		return 0;
	return frame;
}

static __always_inline bool not_started(const struct py_layout *py, u64 gen, u64 frame)
{
	u64 at = (py->state_in_gen ? gen : frame) + py->state_off;
	s32 state = 0;

	if (py->state_bytes == 1) {
		signed char byte = 0;

		bpf_probe_read_user(&byte, sizeof(byte), (const void *)at);
		state = byte;
	} else {
		bpf_probe_read_user(&state, sizeof(state), (const void *)at);
	}
	return state == py->state_created;
}

static __always_inline void action__end(struct thread *t, struct proc *proc, u32 pid, u64 gen)
{
	struct span *s = span__end(t, proc, pid, span__find(t, SPAN_ACTION, gen, 0));

	if (!s)
		count(CNT_OPEN_AT_START);
	else if (s->name == fixed_names[NAME_RUN_TRAINING_BATCH])
		step__boundary(proc, STEP_LIGHTNING, t->now_ns);
}

/* Does the name just read end in ".optimizer_step": the hook around an optimizer step of automatic optimization? */
static __always_inline bool is_optimizer_hook(const struct thread *t)
{
	u64 bytes = t->name.bytes;

	return bytes >= 15 && *(u64 *)(t->name_text + BOUND_INDEX(bytes - 15, REC_NAME_MAX)) == WORD8(".optimiz") &&
	       *(u64 *)(t->name_text + BOUND_INDEX(bytes - 8, REC_NAME_MAX)) == WORD8("zer_step");
}

static __always_inline void action__begin(struct thread *t, struct proc *proc, u64 gen, u64 frame)
{
	const struct py_layout *py = &proc->py.layout;
	struct py_text text;
	struct span *s;
	int stale;
	bool hook;
	u64 name;

	if (py__text(py, read_u64(frame + py->frame_locals + 8 * LOCAL_ACTION_NAME) & ~(u64)py->ref_mask, &text)) {
		count(CNT_NAME_LOST);
		return;
	}
	name = name__intern(t, text.address, text.bytes, text.encoding);
	if (!name)
		return;
	if (!t->tstate)
		t->tstate = py__tstate(&proc->py);
	/* A generator that was dropped without an end, and whose memory is used again. */
	stale = span__find(t, SPAN_ACTION, gen, 0);
	if (stale >= 0) {
		count(CNT_SPAN_REUSED);
		count_many(CNT_DROPPED_INNER, t->depth - stale - 1);
		span__drop(t, stale);
	}
	hook = is_optimizer_hook(t);
	s = span__begin(t, SPAN_ACTION, gen, name, 0);
	if (s)
		s->label = hook;
}

static __always_inline void on_py_next(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid)
{
	u64 gen = read_u64(ctx->si), frame = profile_frame(proc, pid, gen);
	struct thread *t;

	if (!frame) {
		__sync_fetch_and_add(&proc->idle_hits, 1);
		return;
	}
	t = thread__enter(task, ctx->sp);
	if (!t)
		return;
	if (not_started(&proc->py.layout, gen, frame))
		action__begin(t, proc, gen, frame);
	else
		action__end(t, proc, pid, gen);
}

static __always_inline void on_py_throw(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid)
{
	struct thread *t;

	if (!profile_frame(proc, pid, ctx->di))
		return;
	t = thread__enter(task, ctx->sp);
	if (t)
		action__end(t, proc, pid, ctx->di);
}

/*
 * Which fetch of Lightning's is this? Read from the frames outside: the first of Lightning's loops decides; an evaluation loop says only that it
 * evaluates, and what called it says what for. Fetches that fill a prefetching iterator before the loop has set its hooks are not
 * Lightning's actions (_PrefetchDataFetcher.__iter__, for loaders without a length).
 * Returns enum fixed_name, or -1: none.
 */
__weak __noinline int fetch_name(const struct proc *proc, u64 tstate)
{
	struct py_walk walk;
	u64 head[2], tail[2];
	bool filling = false, evaluating = false;

	if (!proc)
		return -1;
	py__walk(&walk, &proc->py.layout, tstate);
	for (u32 i = 0; i < PY_FRAMES && walk.frame; i++) {
		u64 code = py__next_code(&walk);

		if (!code || !py__tail(walk.py, read_u64(code + walk.py->code_filename), tail))
			continue;
		if (TAIL_IS(tail, "oops/fetchers.py")) {
			py__head(walk.py, read_u64(code + walk.py->code_name), head);
			filling = filling || HEAD_IS(head, "__iter__\0\0\0\0\0\0\0\0");
		} else if (TAIL_IS(tail, "ng_epoch_loop.py")) {
			return evaluating ? NAME_VAL_NEXT : NAME_TRAIN_NEXT;
		} else if (TAIL_IS(tail, "oops/fit_loop.py")) {
			return evaluating ? NAME_VAL_NEXT : -1;
		} else if (TAIL_IS(tail, "ediction_loop.py")) {
			return filling ? -1 : NAME_PREDICT_NEXT;
		} else if (TAIL_IS(tail, "aluation_loop.py")) {
			if (filling)
				return -1;
			evaluating = true;
		} else if (evaluating && TAIL_IS(tail, "ainer/trainer.py")) {
			py__head(walk.py, read_u64(code + walk.py->code_name), head);
			if (HEAD_IS(head, "_test_impl\0\0\0\0\0\0"))
				return NAME_TEST_NEXT;
			if (HEAD_IS(head, "_validate_impl\0\0") || HEAD_IS(head, "_run_sanity_chec"))
				return NAME_VAL_NEXT;
		}
	}
	count(CNT_FRAME_LOST);
	return -1;
}

static __always_inline bool is_combined_loader(const struct proc *proc, u64 object)
{
	u64 name[2] = {};

	bpf_probe_read_user(name, 15, (const void *)read_u64(read_u64(object + 8) + proc->py.layout.type_name));
	return name[0] == WORD8("Combined") && name[1] == WORD8("Loader\0\0");
}

static __always_inline void on_py_iter(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u64 frame)
{
	struct thread *t;
	struct span *s;
	int name;

	if (!is_combined_loader(proc, ctx->di)) {
		__sync_fetch_and_add(&proc->idle_hits, 1);
		return;
	}
	t = thread__enter(task, entry_sp(ctx, frame));
	if (!t)
		return;
	t->tstate = py__tstate(&proc->py);
	name = fetch_name(proc, t->tstate);
	if (name < 0)
		return;
	s = span__begin(t, SPAN_ACTION, frame, fixed_name(name), frame);
	/* Lightning's start() came before the trap: the walk over the frames is inside of its interval. */
	if (s)
		s->start_ns = t->now_ns;
}

/* Most __next__ are not CombinedLoader's: no span, nothing lost. */
static __always_inline void on_py_iter_exit(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
					    u64 frame)
{
	struct thread *t = thread__enter(task, ctx->sp);

	if (t)
		span__end(t, proc, pid, span__find(t, SPAN_ACTION, frame, frame));
}

#endif
