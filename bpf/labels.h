/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * torch's record_function labels: DataLoader, Optimizer.step, zero_grad, ProfilerStep# and the
 * users' own. torch makes the calls with or without a profiler.
 *
 * Its at::RecordFunction identifies a label, since labels need not end in the reverse order of
 * their starts: record_function_enter_new constructs the object and record_function_exit_new ends
 * it. The destructor calls RecordFunction::end once more, and other code calls it for objects that
 * are not labels.
 */
#ifndef STEPFLAME_BPF_LABELS_H
#define STEPFLAME_BPF_LABELS_H

#include "bpf/python.h"
#include "bpf/span.h"
#include "bpf/steps.h"

/*
 * Is the innermost action of this thread an optimizer_step hook? Then automatic optimization makes
 * the step, and BPF need not read frames. This has a loop of its own, since a loop that searches
 * with or without a token costs the verifier a third more.
 */
__weak __noinline int in_optimizer_hook(struct thread *t)
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
		if (s->kind == SPAN_ACTION)
			return s->label;
	}
	return 0;
}

struct manual_walk {
	u64 frame;
	u32 lightning;
	u32 pad;
};

#define MANUAL_GO_ON (-1)

/*
 * Looks at one frame for is_manual_step and moves outwards; separate for the reason of fetch__step.
 * Returns the answer, or MANUAL_GO_ON.
 */
__weak __noinline int manual__step(const struct py_layout *py, struct manual_walk *at)
{
	struct py_walk walk = {.py = py};
	u64 code, tail[2];

	if (!py || !at)
		return 0;
	walk.frame = at->frame;
	code = py__next_code(&walk);
	at->frame = walk.frame;
	if (!code || !py__tail(py, read_u64(code + py->code_filename), tail))
		return MANUAL_GO_ON;
	/* .../pytorch/core/optimizer.py; torch's own is .../optim/optimizer.py */
	if (TAIL_IS(tail, "ore/optimizer.py"))
		at->lightning = true;
	else if (TAIL_IS(tail, "zation/manual.py"))
		return at->lightning;
	else if (TAIL_IS(tail, "ion/automatic.py"))
		return 0;
	return MANUAL_GO_ON;
}

/*
 * Does LightningOptimizer.step make this optimizer step, under manual optimization? Then the step
 * is Lightning's action `optimizer_step`. Under automatic optimization that action is the hook
 * around the step.
 */
__weak __noinline int is_manual_step(const struct proc *proc, u64 tstate)
{
	struct manual_walk at = {};
	struct py_walk walk;

	if (!proc)
		return 0;
	py__walk(&walk, &proc->py.layout, tstate);
	at.frame = walk.frame;
	for (u32 i = 0; i < PY_FRAMES && at.frame; i++) {
		int answer = manual__step(&proc->py.layout, &at);

		if (answer != MANUAL_GO_ON)
			return answer;
	}
	return 0;
}

/* The address of a label's name, a std::string const &. */
static __always_inline u64 label__string(const struct pt_regs *ctx, u32 saved)
{
	switch (saved) {
	case SAVED_RBX:
		return LOAD_HERE(ctx->bx);
	case SAVED_RBP:
		return LOAD_HERE(ctx->bp);
	case SAVED_R12:
		return LOAD_HERE(ctx->r12);
	case SAVED_R13:
		return LOAD_HERE(ctx->r13);
	case SAVED_R14:
		return LOAD_HERE(ctx->r14);
	case SAVED_R15:
		return LOAD_HERE(ctx->r15);
	default:
		return LOAD_HERE(ctx->si);
	}
}

static __always_inline void on_label(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
				     u32 flags, u64 frame)
{
	struct thread *t = thread__enter(task, entry_sp(ctx, frame));
	u32 saved = COOKIE_NAME_SAVED(flags);
	u64 string[2] = {}, name;
	enum label label;
	struct span *s;

	if (!t)
		return;
	/*
	 * std::string: {char *data; size_t size; ...}; before the C++11 ABI a char * with the size
	 * 24 bytes before it.
	 */
	if (bpf_probe_read_user(string, sizeof(string), (const void *)label__string(ctx, saved)) ||
	    (flags & COOKIE_OLD_STRING &&
	     bpf_probe_read_user(&string[1], sizeof(string[1]), (const void *)(string[0] - 24)))) {
		count(CNT_NAME_LOST);
		return;
	}
	name = name__read(&t->names, string[0], string[1], NAME_UTF8);
	if (!name)
		return;
	label = label__classify((const u64 *)t->names.text);
	name = name__admit(&t->names, proc, name,
			   label == LABEL_USER || label == LABEL_PROFILER_STEP ? NAMES_LABELS : NAMES_LANDMARKS);
	if (label == LABEL_DATA)
		step__fetch(t, proc, pid);
	s = span__begin(t, SPAN_LABEL, saved ? ctx->di : 0, name, saved ? 0 : frame);
	if (!s)
		return;
	s->label = label;
	/* An optimizer that calls another one's step makes one step of Lightning's. */
	if (label == LABEL_OPTIMIZER && t->phase != PHASE_OPTIMIZER && proc->landmarks.profile_code &&
	    !in_optimizer_hook(t) && is_manual_step(proc, t->tstate))
		s->also = NAME_OPTIMIZER_STEP + 1;
	phase__enter(t, s, phase__of_label(label));
}

/* From here on its RecordFunction identifies the label, which is bound to no frame any more. */
static __always_inline void on_label_handle(struct pt_regs *ctx, struct task_struct *task, u64 frame)
{
	struct thread *t = thread__enter(task, ctx->sp);
	struct span *s;

	if (!t || !t->depth)
		return;
	s = span__at(t, t->depth - 1);
	if (s->kind != SPAN_LABEL || !frame || s->frame != frame)
		return;
	s->token = ctx->di;
	span__unbind(t, s);
}

static __always_inline void on_label_end(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid)
{
	struct thread *t = thread__enter(task, ctx->sp);
	struct span *s;

	if (!t)
		return;
	/*
	 * Without a span: the end of an operator, a label's second end, or the end of a label that
	 * began before the recording.
	 */
	s = span__end(t, proc, pid, span__find(t, SPAN_LABEL, ctx->di, 0));
	if (!s || s->label == LABEL_USER)
		return;
	if (s->label == LABEL_PROFILER_STEP) {
		step__boundary(t, proc, pid, STEP_PROFILER);
		return;
	}
	if (s->label == LABEL_DATA)
		pass__fetched(t, proc, pid);
	else if (s->label == LABEL_OPTIMIZER)
		pass__train(t);
	if (s->label == LABEL_ZERO_GRAD && t->phase == PHASE_OTHER)
		gap__set_apart(t, s->start_ns);
	else
		gap__begin(t);
	if (s->label == LABEL_DATA)
		step__fetched(t, proc);
	else if (s->label == LABEL_OPTIMIZER)
		step__optimizer(t, proc, pid, s->name);
}

#endif
