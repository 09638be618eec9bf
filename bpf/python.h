/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads CPython objects of the current thread, by the offsets of its version (include/python.h).
 * All data is hostile: BPF reads through its pointers with checked helpers only and never trusts
 * them.
 */
#ifndef STEPFLAME_BPF_PYTHON_H
#define STEPFLAME_BPF_PYTHON_H

#include "bpf/name.h"

/*
 * Frames that are searched for the loop of Lightning that runs: the user's own iterators and their
 * decorators lie inside it. 40 frames cover a DataLoader wrapped a dozen times; beyond that the
 * answer is "unknown", which is counted.
 */
#define PY_FRAMES 40

struct py_text {
	u64 address, bytes;
	u32 encoding; /* enum name_encoding */
};

/* Finds the characters of a str. Returns 0, or -1 (counted): not a compact str, or unreadable. */
static __always_inline int py__text(const struct py_layout *py, u64 object, struct py_text *text)
{
	u64 head[3], length; /* length, hash, state: adjacent in every version (tests/unit/test_python.c) */
	u32 state, kind;

	if (!object || bpf_probe_read_user(head, sizeof(head), (const void *)(object + py->str_length))) {
		count(CNT_BAD_READ);
		return -1;
	}
	length = head[0];
	state = head[2];
	kind = state >> (py->str_kind_shift & 31) & ((1u << (py->str_kind_bits & 31)) - 1);
	if (!(state >> (py->str_compact_shift & 31) & 1) || length > 1 << 20 || (kind != 1 && kind != 2 && kind != 4)) {
		count(CNT_BAD_READ);
		return -1;
	}
	text->address = object + (state >> (py->str_ascii_shift & 31) & 1 ? py->str_ascii_data : py->str_compact_data);
	text->bytes = length * kind;
	text->encoding = kind;
	return 0;
}

/*
 * 8 characters of 2 or 4 bytes each, packed as by WORD8; 0: one of them is not Latin-1, or
 * unreadable.
 */
__weak __noinline u64 py__narrow(u64 address, u32 encoding)
{
	union {
		u16 half[8];
		u32 wide[8];
	} chars = {};
	u64 word = 0;

	if (bpf_probe_read_user(&chars, encoding == NAME_UCS2 ? sizeof(chars.half) : sizeof(chars.wide),
				(const void *)address))
		return 0;
	for (int i = 0; i < 8; i++) {
		u32 c = encoding == NAME_UCS2 ? chars.half[i] : chars.wide[i];

		if (c > 0xff)
			return 0;
		word |= (u64)c << 8 * i;
	}
	return word;
}

/* 16 bytes of a str. */
struct py_words {
	u64 word[2];
};

/*
 * A separate function: the verifier of Linux 6.1 gives up if it is inlined into the walks over
 * frames.
 */
__weak __noinline int py__tail_words(const struct py_layout *py, u64 object, struct py_words *out)
{
	struct py_text text;
	u64 end;

	if (!py || !out || py__text(py, object, &text) || text.bytes < 16 * (u64)text.encoding)
		return false;
	end = text.address + text.bytes;
	if (text.encoding == NAME_LATIN1)
		return !bpf_probe_read_user(out, sizeof(*out), (const void *)(end - 16));
	out->word[0] = py__narrow(end - 16 * (u64)text.encoding, text.encoding);
	out->word[1] = py__narrow(end - 8 * (u64)text.encoding, text.encoding);
	return true;
}

/*
 * The last 16 characters of a str, as two words; false: it is shorter. Also handles wide
 * characters, which a path may have in an outer directory.
 */
static __always_inline bool py__tail(const struct py_layout *py, u64 object, u64 tail[2])
{
	struct py_words words = {};
	bool ok = py__tail_words(py, object, &words);

	tail[0] = words.word[0];
	tail[1] = words.word[1];
	return ok;
}

#define TAIL_IS(tail, s) ((tail)[0] == WORD8(s) && (tail)[1] == WORD8((s) + 8))

__weak __noinline int py__head_words(const struct py_layout *py, u64 object, struct py_words *out)
{
	struct py_text text;
	u32 bytes;

	if (!py || !out || py__text(py, object, &text) || text.encoding != NAME_LATIN1)
		return false;
	bytes = text.bytes < 16 ? text.bytes : 16;
	return !bpf_probe_read_user(out, bytes, (const void *)text.address);
}

/* The first 16 bytes of a str, zero-padded, as two words. */
static __always_inline bool py__head(const struct py_layout *py, u64 object, u64 head[2])
{
	struct py_words words = {};
	bool ok = py__head_words(py, object, &words);

	head[0] = words.word[0];
	head[1] = words.word[1];
	return ok;
}

#define HEAD_IS(head, s) ((head)[0] == WORD8(s) && (head)[1] == WORD8((s) + 8))

/*
 * Reads `bytes` bytes of an object into the thread's name buffer, where they stay until the next
 * name. Returns 0, or not 0: unreadable. Reads many fields at once, since a read costs more than
 * its bytes do.
 */
static __always_inline int py__image(struct thread *t, u64 object, u32 bytes)
{
	return bpf_probe_read_user(t->names.text, bytes & (REC_NAME_MAX - 1), (const void *)object);
}

static __always_inline u64 py__image_word(const struct thread *t, u32 offset)
{
	return *(const u64 *)(t->names.text + BOUND_INDEX(offset, REC_NAME_MAX));
}

/* What BPF reads from a generator. */
struct py_generator {
	u64 code;
	u64 argument; /* the second argument: local variable 1 */
	bool created; /* the generator has not started */
};

/*
 * Reads the generator whose py__object_bytes are in the name buffer. False: it has no frame, or the
 * frame is unreadable.
 */
static __always_inline bool py__generator(const struct py_layout *py, struct thread *t, struct py_generator *out)
{
	u64 state = py__image_word(t, py->state_off);
	u32 frame = py->gen_frame;

	if (!py->gen_embedded) {
		u64 address = py__image_word(t, frame);

		frame = 0;
		if (!address || py__image(t, address, py->frame_locals + 16))
			return false;
	}
	if (!py->state_in_gen)
		state = py__image_word(t, frame + py->state_off);
	out->created = (py->state_bytes == 1 ? (signed char)state : (s32)state) == py->state_created;
	out->code = py__image_word(t, frame + py->frame_code) & ~(u64)py->ref_mask;
	out->argument = py__image_word(t, frame + py->frame_locals + 8) & ~(u64)py->ref_mask;
	return true;
}

/* Bytes of an object that py__generator needs, in case the object is a generator. */
static __always_inline u32 py__object_bytes(const struct py_layout *py)
{
	return py->gen_frame + (py->gen_embedded ? py->frame_locals + 16 : 8);
}

/* The current thread's PyThreadState, if the thread holds the GIL; 0: unknown. */
static __always_inline u64 py__tstate(const struct py_process *process)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 fsbase;

	switch (process->tstate_where) {
	case PY_TSTATE_GLOBAL:
		return read_u64(process->tstate_address);
	case PY_TSTATE_TLS:
		fsbase = task->thread.fsbase;
		return read_u64(fsbase + process->tstate_address);
	case PY_TSTATE_DTV:
		fsbase = task->thread.fsbase;
		return read_u64(read_u64(read_u64(fsbase + 8) + 16 * (u64)process->tls_module) +
				process->tstate_address);
	default:
		return 0;
	}
}

/* A walk over the Python frames of a thread, from the innermost outwards. */
struct py_walk {
	const struct py_layout *py;
	u64 frame;
};

static __always_inline void py__walk(struct py_walk *walk, const struct py_layout *py, u64 tstate)
{
	walk->py = py;
	walk->frame = tstate ? read_u64(tstate + py->tstate_frame) : 0;
	if (py->tstate_cframe && walk->frame)
		walk->frame = read_u64(walk->frame + py->cframe_current);
}

/*
 * Returns the code object of the walk's frame, and moves the walk one frame outwards; 0: not the
 * frame of a Python function.
 */
static __always_inline u64 py__next_code(struct py_walk *walk)
{
	const struct py_layout *py = walk->py;
	u64 frame = walk->frame;
	u8 owner = 0;

	walk->frame = read_u64(frame + py->frame_previous) & ~(u64)py->ref_mask;
	if (py->frame_owner_c >= 0) {
		bpf_probe_read_user(&owner, sizeof(owner), (const void *)(frame + py->frame_owner));
		if (owner >= py->frame_owner_c)
			return 0;
	}
	return read_u64(frame + py->frame_code) & ~(u64)py->ref_mask;
}

#endif
