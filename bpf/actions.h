/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lightning's actions, from two functions of the interpreter.
 *
 * `with profiler.profile(name)` is a generator: the first next() on it starts the action, the
 * second, or a throw(), ends it. That holds with no profiler configured too. Actions that Lightning
 * starts and stops by direct calls do not go through the generator: BPF derives batch fetches from
 * next() on a CombinedLoader, which those calls bracket, and the manual optimizer_step from torch's
 * own label (labels.h).
 */
#ifndef STEPFLAME_BPF_ACTIONS_H
#define STEPFLAME_BPF_ACTIONS_H

#include "bpf/event.h"
#include "bpf/python.h"
#include "bpf/span.h"
#include "bpf/steps.h"

/*
 * Is this the code object of Lightning's Profiler.profile?
 * (lightning/pytorch/profilers/profiler.py; before 1.8 profiler/profiler.py, before 1.6 base.py)
 */
static __always_inline bool is_profile(struct proc *proc, u32 pid, u64 code)
{
	const struct py_layout *py = &proc->py.layout;
	u64 head[2], tail[2];

	if (!code)
		return false;
	if (code == proc->landmarks.profile_code)
		return true;
	if (!py__head(py, read_u64(code + py->code_name), head) || !HEAD_IS(head, "profile\0\0\0\0\0\0\0\0\0"))
		return false;
	if (!py__tail(py, read_u64(code + py->code_filename), tail) ||
	    !(TAIL_IS(tail, "lers/profiler.py") || TAIL_IS(tail, "iler/profiler.py") ||
	      TAIL_IS(tail, "profiler/base.py")))
		return false;
	/* Remembered only if the event was emitted; otherwise the next hit tries again. */
	if (proc->landmarks.profile_code || event__send(PROC_LIGHTNING, pid, 0, 0, bpf_get_current_task_btf()))
		proc->landmarks.profile_code = code;
	return true;
}

/*
 * The type of an object; 0: unreadable. Leaves the object's bytes in the name buffer, for
 * py__generator.
 */
static __always_inline u64 object__type(struct thread *t, const struct py_layout *py, u64 object)
{
	/*
	 * An object that is not a generator may be shorter, and may lie at the end of mapped
	 * memory.
	 */
	if (py__image(t, object, py__object_bytes(py)) && py__image(t, object, py->object_type + 8))
		return 0;
	return py__image_word(t, py->object_type);
}

static __always_inline void action__end(struct thread *t, struct proc *proc, u32 pid, u64 gen)
{
	struct span *s = span__end(t, proc, pid, span__find(t, SPAN_ACTION, gen, 0));

	if (!s) {
		count(CNT_OPEN_AT_START);
	} else if (s->name == fixed_names[NAME_RUN_TRAINING_BATCH]) {
		proc->landmarks.outside = proc->landmarks.is_over = 0;
		step__boundary(t, proc, pid, STEP_LIGHTNING);
	}
}

/*
 * The last 16 bytes of the name just read; zeros in front of a shorter one, all zeros for less than
 * 8 bytes.
 */
static __always_inline void action__tail(const struct thread *t, u64 tail[2])
{
	const u64 *head = (const u64 *)t->names.text;
	u64 bytes = t->names.name.bytes;

	tail[0] = tail[1] = 0;
	if (bytes < 8)
		return;
	tail[1] = *(u64 *)(t->names.text + BOUND_INDEX(bytes - 8, REC_NAME_MAX));
	if (bytes >= 16)
		tail[0] = *(u64 *)(t->names.text + BOUND_INDEX(bytes - 16, REC_NAME_MAX));
	else if (bytes > 8)
		tail[0] = *head << (16 - bytes) * 8;
}

/* Classifies the action that has just begun, the innermost span, by the name just read. */
static __always_inline void action__classify(struct thread *t, struct span *s)
{
	const u64 *head = (const u64 *)t->names.text;
	u64 tail[2];
	u32 own;

	action__tail(t, tail);
	/* 1 for the hook around an optimizer step of automatic optimization. */
	s->label = tail[0] >> 8 == WORD8(".optimi\0") && tail[1] == WORD8("zer_step");
	own = phase__of_action(head, tail);
	if (own == PHASE_VALIDATION)
		evaluation__begin(t, phase__ends_evaluation(head, tail));
	phase__enter(t, s, own);
}

/*
 * Does Lightning itself set the action whose name is in the buffer? It says so in brackets, as in
 * "[Strategy]...", except in a few names.
 */
static __always_inline u32 action__name_kind(const struct name_buffer *b)
{
	u64 head = *(const u64 *)b->text;

	return (char)head == '[' || head == WORD8("run_trai") || head == WORD8("optimize") ? NAMES_LANDMARKS
											   : NAMES_ACTIONS;
}

static __always_inline void action__begin(struct thread *t, struct proc *proc, u64 gen, u64 name_object)
{
	const struct py_layout *py = &proc->py.layout;
	struct py_text text;
	struct span *s;
	int stale;
	u64 name;

	if (py__text(py, name_object, &text)) {
		count(CNT_NAME_LOST);
		return;
	}
	name = name__read(&t->names, text.address, text.bytes, text.encoding);
	if (!name)
		return;
	name = name__admit(&t->names, proc, name, action__name_kind(&t->names));
	if (!t->tstate)
		t->tstate = py__tstate(&proc->py);
	/*
	 * An open action with this token is stale: its generator was dropped without an end, and
	 * its memory is in use again.
	 */
	stale = span__find(t, SPAN_ACTION, gen, 0);
	if (stale >= 0)
		span__drop_reused(t, stale);
	s = span__begin(t, SPAN_ACTION, gen, name, 0);
	if (s)
		action__classify(t, s);
}

struct fetch_walk {
	u64 frame;
	u32 filling, evaluating;
};

#define FETCH_GO_ON (-2)

/*
 * Looks at one frame for fetch_name and moves outwards. A separate function: inside a loop the
 * verifier would follow each combination of what earlier frames have shown. Returns an enum
 * fixed_name; -1: none; FETCH_GO_ON.
 */
__weak __noinline int fetch__step(const struct py_layout *py, struct fetch_walk *at)
{
	struct py_walk walk = {.py = py};
	u64 code, head[2], tail[2];

	if (!py || !at)
		return -1;
	walk.frame = at->frame;
	code = py__next_code(&walk);
	at->frame = walk.frame;
	if (!code || !py__tail(py, read_u64(code + py->code_filename), tail))
		return FETCH_GO_ON;
	if (TAIL_IS(tail, "oops/fetchers.py")) {
		py__head(py, read_u64(code + py->code_name), head);
		at->filling = at->filling || HEAD_IS(head, "__iter__\0\0\0\0\0\0\0\0");
	} else if (TAIL_IS(tail, "ng_epoch_loop.py")) {
		return at->evaluating ? NAME_VAL_NEXT : NAME_TRAIN_NEXT;
	} else if (TAIL_IS(tail, "oops/fit_loop.py")) {
		return at->evaluating ? NAME_VAL_NEXT : -1;
	} else if (TAIL_IS(tail, "ediction_loop.py")) {
		return at->filling ? -1 : NAME_PREDICT_NEXT;
	} else if (TAIL_IS(tail, "aluation_loop.py")) {
		if (at->filling)
			return -1;
		at->evaluating = true;
	} else if (at->evaluating && TAIL_IS(tail, "ainer/trainer.py")) {
		py__head(py, read_u64(code + py->code_name), head);
		if (HEAD_IS(head, "_test_impl\0\0\0\0\0\0"))
			return NAME_TEST_NEXT;
		if (HEAD_IS(head, "_validate_impl\0\0") || HEAD_IS(head, "_run_sanity_chec"))
			return NAME_VAL_NEXT;
	}
	return FETCH_GO_ON;
}

/*
 * Which of Lightning's fetches is this? The frames tell, from the innermost outwards: the first
 * frame of one of Lightning's loops decides. An evaluation loop says only that it evaluates; its
 * caller says what for. Fetches that fill a prefetching iterator before the loop has set its hooks
 * are not Lightning's actions (_PrefetchDataFetcher.__iter__, for loaders without a length).
 * Returns an enum fixed_name; -1: none.
 */
__weak __noinline int fetch_name(const struct proc *proc, u64 tstate)
{
	struct fetch_walk at = {};
	struct py_walk walk;

	if (!proc)
		return -1;
	py__walk(&walk, &proc->py.layout, tstate);
	at.frame = walk.frame;
	for (u32 i = 0; i < PY_FRAMES && at.frame; i++) {
		int name = fetch__step(&proc->py.layout, &at);

		if (name != FETCH_GO_ON)
			return name;
	}
	count(CNT_FRAME_LOST);
	return -1;
}

static __always_inline bool is_combined_loader(struct proc *proc, u64 type)
{
	u64 name[2] = {};

	if (type == proc->landmarks.loader_type)
		return true;
	bpf_probe_read_user(name, 15, (const void *)read_u64(type + proc->py.layout.type_name));
	if (name[0] != WORD8("Combined") || name[1] != WORD8("Loader\0\0"))
		return false;
	proc->landmarks.loader_type = type;
	return true;
}

/*
 * Begins a fetch. `frame`, that of the function that next() calls, identifies the fetch, which ends
 * with that function.
 */
static __always_inline void fetch__begin(struct thread *t, struct proc *proc, u64 frame)
{
	struct span *s;
	int name;

	t->tstate = py__tstate(&proc->py);
	name = fetch_name(proc, t->tstate);
	if (name < 0)
		return;
	if (name == NAME_TRAIN_NEXT)
		evaluation__end(t);
	s = span__begin(t, SPAN_ACTION, frame, fixed_name(name), frame);
	if (!s)
		return;
	/*
	 * Lightning's start() ran before the trap, so Lightning's own interval includes the walk
	 * over the frames.
	 */
	s->start_ns = t->now_ns;
	if (name != NAME_TRAIN_NEXT)
		evaluation__begin(t, false);
	phase__enter(t, s, name == NAME_TRAIN_NEXT ? PHASE_DATA : PHASE_VALIDATION);
}

/*
 * The target calls next(object). callee_frame: where the type's function for it will have its
 * frame; 0: unknown. False: the call is not a landmark.
 */
__weak __noinline int next__object(struct thread *t, struct proc *proc, u32 pid, u64 object, u64 callee_frame)
{
	struct py_generator generator;
	u64 type;

	if (!t || !proc)
		return false;
	type = object__type(t, &proc->py.layout, object);
	if (type == proc->py.gen_type) {
		if (!py__generator(&proc->py.layout, t, &generator) || !is_profile(proc, pid, generator.code))
			return false;
		if (generator.created)
			action__begin(t, proc, object, generator.argument);
		else
			action__end(t, proc, pid, object);
		return true;
	}
	if (!proc->landmarks.profile_code || !callee_frame || !is_combined_loader(proc, type))
		return false;
	fetch__begin(t, proc, callee_frame);
	return true;
}

static __always_inline void on_py_next(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
				       u64 callee_frame)
{
	struct thread *t = thread__enter(task, ctx->sp);

	if (t && !next__object(t, proc, pid, read_u64(ctx->si), callee_frame))
		__sync_fetch_and_add(&proc->landmarks.idle_hits, 1);
}

static __always_inline void on_py_throw(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid)
{
	struct thread *t = thread__enter(task, ctx->sp);
	struct py_generator generator;

	if (t && object__type(t, &proc->py.layout, ctx->di) == proc->py.gen_type &&
	    py__generator(&proc->py.layout, t, &generator) && is_profile(proc, pid, generator.code))
		action__end(t, proc, pid, ctx->di);
}

/* Most calls of __next__ are not CombinedLoader's: they have no span, and nothing is lost. */
static __always_inline void on_py_iter_exit(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
					    u64 frame)
{
	struct thread *t = thread__enter(task, ctx->sp);

	if (t && !span__end(t, proc, pid, span__find(t, SPAN_ACTION, frame, frame)))
		__sync_fetch_and_add(&proc->landmarks.idle_hits, 1);
}

#endif
