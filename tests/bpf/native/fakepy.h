/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Objects of a CPython that is not there: str, code, frame, generator, type and thread state, laid out in this
 * process's memory by the real table of layouts (user/runtime/python/pylayout.inc). Everything else in them is 0xa5, so that a
 * read beside a field shows.
 */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_FAKEPY_H
#define STEPFLAME_TESTS_BPF_NATIVE_FAKEPY_H

#include "tests/bpf/native/kernel.h"

#include "user/runtime/python/python.h"

#define FAKEPY_BYTES      (1 << 19)
#define FAKEPY_GUARD      4096
#define FAKEPY_LOCALS     4
#define FAKEPY_SUSPENDED  40 /* an index of an instruction, in versions that tell by it */
#define FAKEPY_NO_ADDRESS 0x00007deadbeef000ULL

struct fakepy {
	const struct py_layout *py;
	u8 *base;
	size_t used;
	u64 gen_type, code_type;
};

static inline u64 fakepy__alloc(struct fakepy *f, size_t bytes)
{
	u64 address = (u64)f->base + f->used;

	f->used += (bytes + 15) & ~15ul;
	if (f->used > FAKEPY_BYTES)
		abort();
	memset((void *)address, 0xa5, bytes);
	return address;
}

static inline void fakepy__put(u64 address, u64 value, size_t bytes)
{
	memcpy((void *)address, &value, bytes);
}

static inline struct fakepy fakepy__new(int minor)
{
	struct fakepy f = {.py = py_layout__find(minor)};

	/* and a page behind it that cannot be read */
	f.base = mmap(NULL, FAKEPY_BYTES + FAKEPY_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!f.py || f.base == MAP_FAILED || mprotect(f.base, FAKEPY_BYTES, PROT_READ | PROT_WRITE))
		abort();
	f.gen_type = fakepy__alloc(&f, 64);
	f.code_type = fakepy__alloc(&f, 64);
	return f;
}

static inline void fakepy__free(struct fakepy *f)
{
	munmap(f->base, FAKEPY_BYTES + FAKEPY_GUARD);
}

/*
 * A str of that kind: 1 (Latin-1), 2 or 4 bytes a character; `ascii` says that it is marked so, and has the shorter
 * head.
 */
static inline u64 fakepy__str(struct fakepy *f, int kind, bool ascii, const void *chars, u64 length)
{
	const struct py_layout *py = f->py;
	u32 head = ascii ? py->str_ascii_data : py->str_compact_data;
	u32 state = 1 | (u32)kind << py->str_kind_shift | 1u << py->str_compact_shift |
		    (u32)ascii << py->str_ascii_shift; /* and interned */
	u64 address = fakepy__alloc(f, head + (length + 1) * (u64)kind);

	fakepy__put(address + py->str_length, length, 8);
	fakepy__put(address + py->str_state, state, 4);
	memcpy((void *)(address + head), chars, length * (u64)kind);
	return address;
}

static inline u64 fakepy__text(struct fakepy *f, const char *text)
{
	return fakepy__str(f, 1, true, text, strlen(text));
}

/* Of characters of two bytes, or four: this one, and the text. */
static inline u64 fakepy__wide_text(struct fakepy *f, int kind, u32 first, const char *rest)
{
	u32 wide[128] = {first}, cnt = 1;
	u16 half[128];

	while (*rest)
		wide[cnt++] = (u8)*rest++;
	for (u32 i = 0; i < cnt; i++)
		half[i] = (u16)wide[i];
	return fakepy__str(f, kind, false, kind == 4 ? (void *)wide : half, cnt);
}

static inline u64 fakepy__code_of(struct fakepy *f, u64 file, u64 name)
{
	u64 address = fakepy__alloc(f, 256);

	fakepy__put(address + f->py->code_filename, file, 8);
	fakepy__put(address + f->py->code_name, name, 8);
	return address;
}

/*
 * A code object that a walk over frames can tell of. `name` is its qualified name from 3.11 on, what is behind the last
 * dot before.
 */
static inline u64 fakepy__function_at(struct fakepy *f, u64 address, u64 file, u64 name, u32 first_line)
{
	const struct py_layout *py = f->py;

	fakepy__put(address + py->object_type, f->code_type, 8);
	fakepy__put(address + py->code_filename, file, 8);
	fakepy__put(address + py->code_name, name, 8);
	if (py->code_qualname)
		fakepy__put(address + py->code_qualname, name, 8);
	fakepy__put(address + py->code_firstlineno, first_line, 4);
	fakepy__put(address + py->code_linetable, fakepy__alloc(f, 64), 8);
	return address;
}

static inline u64 fakepy__function_of(struct fakepy *f, u64 file, u64 name, u32 first_line)
{
	return fakepy__function_at(f, fakepy__alloc(f, 256), file, name, first_line);
}

static inline u64 fakepy__code(struct fakepy *f, const char *file, const char *name)
{
	return fakepy__code_of(f, fakepy__text(f, file), fakepy__text(f, name));
}

/* A reference as the version's frames hold it: 3.14 marks it in the low bits. */
static inline u64 fakepy__ref(const struct fakepy *f, u64 object)
{
	return object | (f->py->ref_mask & 1);
}

static inline size_t fakepy__frame_bytes(const struct fakepy *f)
{
	return f->py->frame_locals + 8 * FAKEPY_LOCALS + 8;
}

static inline void fakepy__fill_frame(struct fakepy *f, u64 frame, u64 code, u64 previous)
{
	fakepy__put(frame + f->py->frame_code, fakepy__ref(f, code), 8);
	fakepy__put(frame + f->py->frame_previous, previous, 8);
	if (f->py->frame_owner)
		fakepy__put(frame + f->py->frame_owner, 0, 1);
}

static inline u64 fakepy__frame(struct fakepy *f, u64 code, u64 previous)
{
	u64 frame = fakepy__alloc(f, fakepy__frame_bytes(f));

	fakepy__fill_frame(f, frame, code, previous);
	return frame;
}

/* The instruction at hand of a frame, `bytes` of code from the first; -1: not begun. */
static inline void fakepy__set_instr(const struct fakepy *f, u64 frame, u64 code, s64 bytes)
{
	const struct py_layout *py = f->py;

	if (py->code_instructions)
		fakepy__put(frame + py->frame_instr, code + py->code_instructions + (u64)bytes * (bytes < 0 ? 2 : 1),
			    8);
	else
		fakepy__put(frame + py->frame_instr, (u64)(bytes < 0 ? -1 : bytes / py->instr_bytes), 4);
}

/* A frame that the interpreter puts where C calls Python (3.12 and later); what it has for a code object is none. */
static inline u64 fakepy__c_frame(struct fakepy *f, u64 previous)
{
	u64 frame = fakepy__frame(f, FAKEPY_NO_ADDRESS, previous);

	fakepy__put(frame + f->py->frame_owner, (u64)f->py->frame_owner_c, 1);
	return frame;
}

static inline u64 fakepy__gen_frame(const struct fakepy *f, u64 gen)
{
	u64 frame = gen + f->py->gen_frame;

	return f->py->gen_embedded ? frame : *(u64 *)frame;
}

static inline void fakepy__set_created(const struct fakepy *f, u64 gen, bool created)
{
	const struct py_layout *py = f->py;
	int suspended = py->state_bytes == 4 ? FAKEPY_SUSPENDED : -1;
	u64 at = (py->state_in_gen ? gen : fakepy__gen_frame(f, gen)) + py->state_off;

	fakepy__put(at, (u64)(s64)(created ? py->state_created : suspended), py->state_bytes);
}

/* A generator that has not started, of that code, whose second argument is `argument`. */
static inline u64 fakepy__generator(struct fakepy *f, u64 code, u64 argument)
{
	u64 gen = fakepy__alloc(f, f->py->gen_frame + 8 + (f->py->gen_embedded ? fakepy__frame_bytes(f) : 0));
	u64 frame = gen + f->py->gen_frame;

	fakepy__put(gen + f->py->object_type, f->gen_type, 8);
	if (!f->py->gen_embedded) {
		frame = fakepy__alloc(f, fakepy__frame_bytes(f));
		fakepy__put(gen + f->py->gen_frame, frame, 8);
	}
	fakepy__fill_frame(f, frame, code, 0);
	fakepy__put(frame + f->py->frame_locals, fakepy__ref(f, f->gen_type), 8);
	fakepy__put(frame + f->py->frame_locals + 8, fakepy__ref(f, argument), 8);
	fakepy__set_created(f, gen, true);
	return gen;
}

/* An object whose type has that name. */
static inline u64 fakepy__object(struct fakepy *f, const char *type_name)
{
	u64 name = fakepy__alloc(f, 16 + strlen(type_name)), type = fakepy__alloc(f, 256),
	    object = fakepy__alloc(f, f->py->object_type + 8u);

	memset((void *)name, 0, 16 + strlen(type_name));
	memcpy((void *)name, type_name, strlen(type_name));
	fakepy__put(type + f->py->type_name, name, 8);
	fakepy__put(object + f->py->object_type, type, 8);
	return object;
}

static inline void fakepy__set_frame(const struct fakepy *f, u64 tstate, u64 frame)
{
	u64 at = tstate + f->py->tstate_frame;

	fakepy__put((f->py->tstate_cframe ? *(u64 *)at : at) + (f->py->tstate_cframe ? f->py->cframe_current : 0),
		    frame, 8);
}

static inline u64 fakepy__tstate(struct fakepy *f, u64 frame)
{
	u64 tstate = fakepy__alloc(f, 128);

	if (f->py->tstate_cframe)
		fakepy__put(tstate + f->py->tstate_frame, fakepy__alloc(f, 32), 8);
	fakepy__set_frame(f, tstate, frame);
	return tstate;
}

#endif
