// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The layouts of CPython: of known versions from a table, which tools/pylayout writes; of others from
 * what the process says of itself. No state.
 */
#include "user/runtime/python/pylayout.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "include/records.h"
#include "user/proc/process.h"
#include "user/runtime/python/pyobject.h"

static const struct py_internals table[] = {
#include "user/runtime/python/pylayout.inc"
};

bool py_layout__is_free_threaded(const struct py_layout *layout)
{
	return py_layout__longer(layout) > 0;
}

const struct py_internals *py_internals__find(int minor, bool free_threaded)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].layout.minor == minor && py_layout__is_free_threaded(&table[i].layout) == free_threaded)
			return &table[i];
	}
	return NULL;
}

const struct py_internals *py_internals__of(const struct py_layout *layout)
{
	return py_internals__find(layout->minor, py_layout__is_free_threaded(layout));
}

const struct py_layout *py_layout__find(int minor)
{
	const struct py_internals *row = py_internals__find(minor, false);

	return row ? &row->layout : NULL;
}

/* ---- versions that the table lacks ---- */

/*
 * Reads _Py_DebugOffsets (CPython Include/internal/pycore_debug_offsets.h), with which _PyRuntime
 * begins, where nobody knows the order of its fields. In: words of a process, which may be anything.
 * Out: a layout whose values are in bounds, not more.
 *
 * Each version so far has added fields, within sections and between them. The sections have kept
 * their order, and each begins with the size of its struct, so that how its values relate tells
 * which one it is:
 *
 *   3.13  "xdebugpy" version 0 | 283320 608 632 | 194968 7272 7264 7344 ... | 304 0 8 16 72 152 160 ...
 *   3.15  "xdebugpy" version 0 | 346568 912 936 | 226240 7272 7264 7336 ... | 888 0 8 16 72 80 88 96 176 184 ...
 */

#define SHAPE_WORDS 16          /* a shape looks at so many words at most */
#define RUNTIME_MAX (16u << 20) /* bytes of a struct */
#define INTERP_MAX  (4u << 20)
#define TSTATE_MAX  (64u << 10)
#define FRAME_MAX   128 /* FRAME_BYTES, FRAME_BYTES_MAX */
#define CODE_MAX    256
#define GEN_MAX     256
#define THREADS_MAX 16 /* that are asked */
#define NATIVE_MAX  (1u << 22)

/* The fixed part: cookie, version, free_threaded, runtime_state, and how interpreter_state begins. */
enum {
	AT_VERSION = 1,
	AT_FREE_THREADED,
	AT_RUNTIME_SIZE,
	AT_INTERPRETERS = AT_RUNTIME_SIZE + 2,
	AT_INTERP_SIZE,
	AT_INTERP_NEXT = AT_INTERP_SIZE + 2,
	AT_INTERP_THREADS,
	AT_INTERP_REST,
};

/* {size, prev 0, next 8, interp 16, current_frame} */
static bool is_thread_state(const uint64_t *w)
{
	return w[0] > 64 && w[0] <= TSTATE_MAX && w[1] == 0 && w[2] == 8 && w[3] == 16 && w[4] < w[0] - 8;
}

/* {imports_modules, sysdict, builtins, ceval_gil}: the dicts are neighbours */
static bool is_dicts(const uint64_t *w)
{
	return w[2] == w[1] + 8 && w[0] != w[1] && w[1] && w[1] % 8 == 0;
}

/* {size, previous, executable, instr_ptr, localsplus, owner}: the locals are last, an array of one */
static bool is_frame(const uint64_t *w)
{
	return w[0] > 32 && w[0] <= FRAME_MAX && w[4] == w[0] - 8 && w[1] < w[4] && w[2] < w[4] && w[3] < w[4] &&
	       w[1] != w[2] && w[2] != w[3] && w[1] != w[3] && (w[1] | w[2] | w[3] | w[4]) % 8 == 0 && w[5] < w[4] &&
	       w[5];
}

/* {size, filename, name, qualname, linetable, firstlineno}: the names are neighbours */
static bool is_code(const uint64_t *w)
{
	return w[0] > 64 && w[0] <= CODE_MAX && w[1] && w[1] % 8 == 0 && w[2] == w[1] + 8 && w[3] == w[1] + 16 &&
	       w[4] == w[1] + 24 && w[4] < w[0] - 8 && w[5] && w[5] % 4 == 0 && w[5] < w[0] - 8;
}

/* pyobject {16, ob_type 8}, type_object {size, tp_name 24}: as in all versions, or 16 bytes more */
static bool is_object(const uint64_t *w)
{
	return (w[1] == 8 || w[1] == 24) && w[0] == w[1] + 8 && w[3] == w[1] + 16;
}

/*
 * bytes_object {size, ob_size 16, ob_sval 32}, unicode_object {size, state 32, length 16,
 * asciiobject_size 40}; or 16 bytes more
 */
static bool is_text(const uint64_t *w)
{
	return (w[1] == 16 || w[1] == 32) && w[2] == w[1] + 16 && w[4] == w[1] + 16 && w[5] == w[1] &&
	       w[6] == w[1] + 24;
}

static bool has_word(const uint64_t *words, size_t from, uint64_t value)
{
	for (size_t i = from; i < from + 4; i++)
		if (words[i] == value)
			return true;
	return false;
}

/*
 * frame {..., owner, stackpointer, tlbc_index}: an int, with two bytes between it and the owner; code
 * {..., co_code_adaptive, co_tlbc}: a pointer right before the code
 */
static int parse_copies(const uint64_t *frame, const uint64_t *code, size_t instructions, struct py_layout *out)
{
	uint64_t index = frame[5] - 6, copies = code[instructions] - 8;

	if (!out->code_tlbc)
		return 0;
	if (frame[5] < 6 || index % 4 || !has_word(frame, 6, index) || !has_word(code, instructions + 1, copies))
		return -ENOTSUP;
	out->frame_tlbc = (uint16_t)index;
	out->code_tlbc = (uint16_t)copies;
	return 0;
}

/* The first place in [from, to) that has the shape; 0: none. */
static size_t find_shape(const uint64_t *words, size_t from, size_t to, bool (*is)(const uint64_t *w))
{
	for (size_t i = from; i < to && i + SHAPE_WORDS <= PY_OFFSETS_WORDS; i++)
		if (is(words + i))
			return i;
	return 0;
}

/* {size, gi_name, gi_iframe, gi_frame_state}: the frame is last */
static size_t find_generator(const uint64_t *w, size_t from, uint64_t frame_bytes)
{
	for (size_t i = from; i + SHAPE_WORDS <= PY_OFFSETS_WORDS; i++)
		if (w[i] <= GEN_MAX && w[i + 2] && w[i + 2] % 8 == 0 && w[i] == w[i + 2] + frame_bytes &&
		    w[i] + 16 < REC_NAME_MAX && w[i + 1] < w[i + 2] && w[i + 3] < w[i + 2] && w[i + 3])
			return i;
	return 0;
}

/* Which word says where co_code_adaptive is: last, an array of one; some fields lie between. 0: not found */
static size_t instructions_of(const uint64_t *code)
{
	for (size_t i = 6; i + 1 < SHAPE_WORDS; i++)
		if (code[i] == code[0] - 8)
			return i;
	return 0;
}

static bool is_place(uint64_t offset, uint64_t size, uint64_t most)
{
	return size <= most && size >= 8 && offset <= size - 8 && offset % 8 == 0;
}

static int parse_walk(const uint64_t *w, size_t thread, struct py_internals *out)
{
	size_t dicts = find_shape(w, AT_INTERP_REST, thread, is_dicts);
	const uint64_t values[PY_WALK_CNT] = {
		[PY_WALK_INTERPRETERS] = w[AT_INTERPRETERS],
		[PY_WALK_INTERP_NEXT] = w[AT_INTERP_NEXT],
		[PY_WALK_INTERP_THREADS] = w[AT_INTERP_THREADS],
		[PY_WALK_TSTATE_NEXT] = w[thread + 2],
		[PY_WALK_TSTATE_INTERP] = w[thread + 3],
		[PY_WALK_GIL] = w[dicts + 3],
		[PY_WALK_INTERP_MODULES] = w[dicts],
	};
	const enum py_walk_field of_interp[] = {PY_WALK_INTERP_NEXT, PY_WALK_INTERP_THREADS, PY_WALK_GIL,
						PY_WALK_INTERP_MODULES};

	if (!dicts || !is_place(values[PY_WALK_INTERPRETERS], w[AT_RUNTIME_SIZE], RUNTIME_MAX))
		return -ENOTSUP;
	for (size_t i = 0; i < sizeof(of_interp) / sizeof(of_interp[0]); i++)
		if (!is_place(values[of_interp[i]], w[AT_INTERP_SIZE], INTERP_MAX))
			return -ENOTSUP;
	for (int i = 0; i < PY_WALK_CNT; i++)
		out->walk[i] = (uint32_t)values[i];
	return 0;
}

static void parse_layout(const uint64_t *thread, const uint64_t *frame, const uint64_t *code, const uint64_t *gen,
			 struct py_layout *out)
{
	out->tstate_frame = (uint16_t)thread[4];
	out->frame_previous = (uint16_t)frame[1];
	out->frame_code = (uint16_t)frame[2];
	out->frame_instr = (uint16_t)frame[3];
	out->frame_locals = (uint16_t)frame[4];
	out->frame_owner = (uint16_t)frame[5];
	out->code_filename = (uint16_t)code[1];
	out->code_name = (uint16_t)code[2];
	out->code_qualname = (uint16_t)code[3];
	out->code_linetable = (uint16_t)code[4];
	out->code_firstlineno = (uint16_t)code[5];
	out->code_instructions = (uint16_t)code[instructions_of(code)];
	if (gen) {
		out->gen_frame = (uint16_t)gen[2];
		out->state_off = (uint16_t)gen[3];
	}
}

int py_offsets__parse(const uint64_t words[PY_OFFSETS_WORDS], const struct py_internals *row, struct py_internals *out,
		      uint32_t candidates[PY_OFFSETS_CANDIDATES])
{
	size_t thread = find_shape(words, AT_INTERP_REST, PY_OFFSETS_WORDS, is_thread_state);
	size_t frame = thread ? find_shape(words, thread + 5, PY_OFFSETS_WORDS, is_frame) : 0;
	size_t code = frame ? find_shape(words, frame + 6, PY_OFFSETS_WORDS, is_code) : 0;
	size_t object = code ? find_shape(words, code + 6, PY_OFFSETS_WORDS, is_object) : 0;
	size_t text = object ? find_shape(words, object + 4, PY_OFFSETS_WORDS, is_text) : 0;
	size_t gen = text ? find_generator(words, text + 7, words[frame]) : 0, cnt = 0;

	*out = *row;
	memset(out->walk_at, 0, sizeof(out->walk_at));
	memset(candidates, 0, PY_OFFSETS_CANDIDATES * sizeof(*candidates));
	/* 3.13's has no section of generators */
	if (!text || (!gen && row->layout.minor > PY_MINOR_OFFSETS) || !instructions_of(words + code) ||
	    words[object + 1] != row->layout.object_type || words[text + 1] != row->layout.object_type + 8u ||
	    parse_walk(words, thread, out) ||
	    parse_copies(words + frame, words + code, instructions_of(words + code), &out->layout))
		return -ENOTSUP;
	parse_layout(words + thread, words + frame, words + code, gen ? words + gen : NULL, &out->layout);
	for (size_t i = thread + 5; i + 1 < frame && cnt + 1 < PY_OFFSETS_CANDIDATES; i++)
		if (words[i + 1] == words[i] + 8 && is_place(words[i + 1], words[thread], TSTATE_MAX))
			candidates[cnt++] = (uint32_t)words[i];
	return cnt ? 0 : -ENOTSUP;
}

/* ---- what the threads tell ---- */

static int read_word(pid_t pid, uint64_t address, uint64_t *value)
{
	return process__read_memory(pid, address, value, sizeof(*value));
}

/* pthread_t, the address of a struct that begins with its own address; and behind it the id of a thread */
static bool is_thread_at(pid_t pid, uint64_t at)
{
	uint64_t pthread, self, native;

	return !read_word(pid, at, &pthread) && !read_word(pid, pthread, &self) && self == pthread &&
	       !read_word(pid, at + 8, &native) && native && native <= NATIVE_MAX;
}

static bool is_of_threads(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT], uint32_t candidate)
{
	uint64_t interpreter, tstate;
	int err = read_word(pid, runtime + walk[PY_WALK_INTERPRETERS], &interpreter)
			  ?: read_word(pid, interpreter + walk[PY_WALK_INTERP_THREADS], &tstate);

	for (int i = 0; !err && tstate && i < THREADS_MAX; i++) {
		if (is_thread_at(pid, tstate + candidate))
			return true;
		err = read_word(pid, tstate + walk[PY_WALK_TSTATE_NEXT], &tstate);
	}
	return false;
}

/* A field that no version had may pass for sys.modules. */
static bool has_modules(pid_t pid, uint64_t runtime, const struct py_internals *found)
{
	uint64_t interpreter, modules;

	return !read_word(pid, runtime + found->walk[PY_WALK_INTERPRETERS], &interpreter) &&
	       !read_word(pid, interpreter + found->walk[PY_WALK_INTERP_MODULES], &modules) &&
	       py_object__is(pid, &found->layout, modules, "dict");
}

int py_offsets__read(pid_t pid, uint64_t runtime, int minor, const struct py_internals *row, struct py_internals *out)
{
	uint32_t candidates[PY_OFFSETS_CANDIDATES];
	uint64_t words[PY_OFFSETS_WORDS];
	int err = minor < PY_MINOR_OFFSETS ? -ENOTSUP : process__read_memory(pid, runtime, words, sizeof(words));

	if (err)
		return err;
	if (memcmp(words, "xdebugpy", 8) || words[AT_VERSION] >> 16 != (3u << 8 | (uint64_t)minor))
		return -ENOTSUP;
	if (!words[AT_FREE_THREADED] == py_layout__is_free_threaded(&row->layout))
		return -ENOTSUP;
	err = py_offsets__parse(words, row, out, candidates);
	if (!err && !has_modules(pid, runtime, out))
		err = -ENOTSUP;
	for (int i = 0; !err && i < PY_OFFSETS_CANDIDATES; i++) {
		if (!candidates[i])
			break;
		if (!is_of_threads(pid, runtime, out->walk, candidates[i]))
			continue;
		out->walk[PY_WALK_TSTATE_THREAD] = candidates[i];
		out->walk[PY_WALK_TSTATE_NATIVE] = candidates[i] + 8;
		return 0;
	}
	return err ?: -ENOTSUP;
}

bool py_offsets__is_free_threaded(pid_t pid, uint64_t runtime)
{
	uint64_t words[AT_FREE_THREADED + 1];

	return !process__read_memory(pid, runtime, words, sizeof(words)) && !memcmp(words, "xdebugpy", 8) &&
	       words[AT_FREE_THREADED];
}
