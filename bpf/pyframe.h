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
 * Bytes of a frame that have its fields. From 3.11 on the locals follow the fields; in older
 * versions the index of the instruction is the last field of these.
 */
static __always_inline u32 py_frame__bytes(const struct py_layout *py)
{
	return py->code_instructions ? py->frame_locals : py->frame_instr + 8;
}

/* Where a thread's copy of the bytecode begins (free-threaded builds); 0: unreadable. */
__weak __noinline u64 py_frame__bytecode(const struct py_layout *py, u64 code, u32 copy)
{
	u64 copies;

	if (!py)
		return 0;
	copies = read_u64(code + py->code_tlbc);
	return copy < read_u64(copies) ? read_u64(copies + 8 + 8 * (u64)copy) : 0;
}

#define FRAME_PAGE      4096
#define FRAME_BYTES_MAX 128 /* that have the fields, in every version; a power of two */

/* Bytes of the target around the frames that were read last. */
struct frame_page {
	u64 from;
	u64 bytes; /* 0: none */
	char data[FRAME_PAGE + FRAME_BYTES_MAX + 8];
};

static __always_inline u64 frame__word(const char *frame, u32 offset)
{
	return *(const u64 *)(frame + BOUND_INDEX(offset, FRAME_BYTES_MAX));
}

/* Takes the fields from a copy of the frame. False: not a frame. */
static __always_inline bool py_frame__parse(const char *frame, const struct py_layout *py, struct py_frame *out)
{
	u64 bytecode;
	u32 copy;
	s64 at;

	out->previous = frame__word(frame, py->frame_previous) & ~(u64)py->ref_mask;
	out->code = frame__word(frame, py->frame_code) & ~(u64)py->ref_mask;
	if (py->frame_owner_c >= 0 && (u8)frame__word(frame, py->frame_owner) >= py->frame_owner_c)
		out->code = 0;
	else if (!out->code)
		return false;
	copy = py->code_tlbc && out->code ? (u32)frame__word(frame, py->frame_tlbc) : 0;
	bytecode = copy ? py_frame__bytecode(py, out->code, copy) : out->code + py->code_instructions;
	if (copy && !bytecode)
		return false;
	if (py->code_instructions)
		at = frame__word(frame, py->frame_instr) - bytecode;
	else
		at = (s64)(s32)frame__word(frame, py->frame_instr) * py->instr_bytes;
	out->offset = at > 0 ? at : 0; /* before the first instruction: the line of the function itself */
	return true;
}

/*
 * False: unreadable, or not a frame. Reads all at once, since a read costs more than its bytes do.
 */
__weak __noinline int py_frame__read(struct name_buffer *b, const struct py_layout *py, u64 frame, struct py_frame *out)
{
	if (!b || !py || !out)
		return false;
	if (bpf_probe_read_user(b->text, BOUND_INDEX(py_frame__bytes(py), REC_NAME_MAX), (const void *)frame))
		return false;
	return py_frame__parse(b->text, py, out);
}

/*
 * Like py_frame__read, for a walk: from 3.11 on the frames of a thread lie one behind another, the
 * outer ones below, so that one read brings those in the same page.
 */
__weak __noinline int py_frame__read_paged(struct frame_page *page, const struct py_layout *py, u64 frame,
					   struct py_frame *out)
{
	u64 from, size, bytes;

	if (!page || !py || !out)
		return false;
	bytes = py_frame__bytes(py);
	if (frame < page->from || frame + bytes > page->from + page->bytes) {
		from = py->code_instructions ? frame & ~(u64)(FRAME_PAGE - 1) : frame;
		size = frame + bytes - from;
		page->from = from;
		page->bytes = 0;
		if (size <= FRAME_PAGE + FRAME_BYTES_MAX && !bpf_probe_read_user(page->data, size, (const void *)from))
			page->bytes = size;
	}
	if (!page->bytes) { /* what lies before it in its page may be no memory */
		page->from = frame;
		if (bytes > FRAME_BYTES_MAX || bpf_probe_read_user(page->data, bytes, (const void *)frame))
			return false;
		page->bytes = bytes;
	}
	return py_frame__parse(page->data + BOUND_INDEX(frame - page->from, FRAME_PAGE), py, out);
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
