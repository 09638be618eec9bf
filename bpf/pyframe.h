/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python frames of the current thread, the innermost first. The program runs on that thread, so
 * the frames cannot change meanwhile.
 */
#ifndef STEPFLAME_BPF_PYFRAME_H
#define STEPFLAME_BPF_PYFRAME_H

#include "bpf/name.h"
#include "bpf/python.h"

#define PF_EXITING 0x4 /* include/linux/sched.h */

static __always_inline u64 buffer_word(const struct name_buffer *b, u32 offset)
{
	return *(const u64 *)(b->text + BOUND_INDEX(offset, REC_NAME_MAX));
}

/* What BPF reads from a frame. */
struct py_frame {
	u64 code;     /* code object; 0: not the frame of a Python function */
	u64 previous; /* the frame outside; 0: none */
	u32 offset;   /* of the current instruction, in bytes of code */
};

/*
 * False: unreadable, or not a frame. Reads all at once, since a read costs more than its bytes do.
 */
__weak __noinline int py_frame__read(struct name_buffer *b, const struct py_layout *py, u64 frame, struct py_frame *out)
{
	u32 bytes;
	s64 at;

	if (!b || !py || !out)
		return false;
	/*
	 * From 3.11 on the locals follow the fields; in older versions the index of the instruction
	 * is the last field of these.
	 */
	bytes = py->code_instructions ? py->frame_locals : py->frame_instr + 8;
	if (bpf_probe_read_user(b->text, bytes & (REC_NAME_MAX - 1), (const void *)frame))
		return false;
	out->previous = buffer_word(b, py->frame_previous) & ~(u64)py->ref_mask;
	out->code = buffer_word(b, py->frame_code) & ~(u64)py->ref_mask;
	if (py->frame_owner_c >= 0 && (u8)buffer_word(b, py->frame_owner) >= py->frame_owner_c)
		out->code = 0;
	else if (!out->code)
		return false;
	if (py->code_instructions)
		at = buffer_word(b, py->frame_instr) - (out->code + py->code_instructions);
	else
		at = (s64)(s32)buffer_word(b, py->frame_instr) * py->instr_bytes;
	out->offset = at > 0 ? at : 0; /* before the first instruction: the line of the function itself */
	return true;
}

/*
 * *tstate: the PyThreadState of the current thread, whether it holds the GIL or not; 0: it has
 * none, or that is unknown. False: unreadable.
 */
static __always_inline bool py__own_tstate(const struct py_process *py, struct task_struct *task, u64 *tstate)
{
	u64 fsbase = task->thread.fsbase;

	if (py->tss_offset)
		return !bpf_probe_read_user(tstate, sizeof(*tstate), (const void *)(fsbase + py->tss_offset));
	/* The global word names the thread that holds the GIL, which may be another thread. */
	*tstate = py->tstate_where == PY_TSTATE_GLOBAL ? 0 : py__tstate(py);
	return true;
}

/* *frame: the innermost frame of the current thread; 0: it is in none. False: unreadable. */
static __always_inline bool py__own_frame(const struct py_process *py, u64 *frame)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct py_layout *layout = &py->layout;
	u64 tstate = 0;

	*frame = 0;
	if (task->flags & PF_EXITING) /* its memory is gone already */
		return true;
	if (!py__own_tstate(py, task, &tstate))
		return false;
	if (!tstate)
		return true;
	if (bpf_probe_read_user(frame, sizeof(*frame), (const void *)(tstate + layout->tstate_frame)))
		return false;
	return !layout->tstate_cframe || !*frame ||
	       !bpf_probe_read_user(frame, sizeof(*frame), (const void *)(*frame + layout->cframe_current));
}

#endif
