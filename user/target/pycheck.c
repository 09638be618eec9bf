/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The check of a CPython that was found against the process that runs it. In: struct py_check. Out: agreed or not.
 * Owned by the thread that calls it. Threads of the target run while their states are read, so a thread that makes no
 * sense once is read again.
 */
#include "pycheck.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ATTEMPTS        20 /* readings of moving threads, 1 ms apart */
#define INTERPRETER_MAX 64
#define THREAD_MAX      64   /* threads looked at in each interpreter */
#define FRAME_MAX       8    /* frames looked at in each thread */
#define OWNER_MAX       4    /* the highest of enum _frameowner in any version */
#define TEXT_MAX        4096 /* characters: file names */
#define DATA_MAX        (16u << 20)
#define CODE_MAX        (16u << 20) /* bytes of one function's code */
#define TABLE_CHUNK     65536u

static int check__read(const struct py_check *check, uint64_t address, void *buffer, size_t size)
{
	return process__read_memory(check->process->pid, address, buffer, size);
}

static int check__pointer(const struct py_check *check, uint64_t address, uint64_t *value)
{
	return check__read(check, address, value, sizeof(*value));
}

/* ---- what does not move ---- */

int py_check__debug_offsets(pid_t pid, uint64_t runtime, const struct py_internals *internals)
{
	uint64_t words[128];
	int err;

	if (!internals->debug_version_at)
		return 0;
	err = process__read_memory(pid, runtime, words, sizeof(words));
	if (err)
		return err;
	/* The version is PY_VERSION_HEX, of which patch releases change only the lower 16 bits. */
	if (memcmp(words, "xdebugpy", 8) ||
	    words[internals->debug_version_at / 8] >> 16 != (3u << 8 | internals->layout.minor))
		return -ENOTSUP;
	if (words[internals->debug_free_threaded_at / 8])
		return -EOPNOTSUPP;
	for (size_t i = 0; i < PY_DEBUG_MAX && internals->debug[i].at; i++) {
		if (words[internals->debug[i].at / 8] != internals->debug[i].value)
			return -ENOTSUP;
	}
	return 0;
}

/* Does the char * at this address point at `expected`? */
static bool check__c_string(const struct py_check *check, uint64_t pointer_at, const char *expected)
{
	char text[16];
	uint64_t address;
	size_t size = strlen(expected) + 1;

	return !check__pointer(check, pointer_at, &address) && !check__read(check, address, text, size) &&
	       !memcmp(text, expected, size);
}

/*
 * Does the process hold a PyMethodDef {"next", next, METH_FASTCALL}? The table lies among the interpreter's static
 * data, which is read around PyGen_Type, itself such data; nothing names the table.
 */
static bool check__next(const struct py_check *check)
{
	const struct python *python = check->python;
	uint64_t next = python->bias + python->functions.next, low = python->process.gen_type - python->bias,
		 high = low;
	uint64_t *words;
	bool found = false;
	size_t have;

	while (high - low < DATA_MAX && elf__bytes(check->elf, low - 4096, 8, &have) &&
	       !elf__is_code(check->elf, low - 4096))
		low -= 4096;
	while (high - low < 2 * DATA_MAX && elf__bytes(check->elf, high + 4096, 8, &have))
		high += 4096;
	words = calloc(1, TABLE_CHUNK + 16);
	if (!words)
		return false;
	low &= ~7ul;
	for (uint64_t at = low; !found && at < high; at += TABLE_CHUNK) {
		/* 16 bytes more, so that an entry across the border is whole */
		size_t size = high - at < TABLE_CHUNK + 16 ? high - at : TABLE_CHUNK + 16;

		if (check__read(check, python->bias + at, words, size))
			continue;
		for (size_t i = 1; !found && (i + 2) * 8 <= size; i++)
			found = words[i] == next && (uint32_t)words[i + 1] == 0x80 &&
				check__c_string(check, python->bias + at + (i - 1) * 8, "next");
	}
	free(words);
	return found;
}

/* ---- threads ---- */

/* A str whose characters are text: none is 0, and ASCII ones are below 128. */
static bool check__str(const struct py_check *check, uint64_t address)
{
	const struct py_layout *layout = &check->internals->layout;
	unsigned char head[128], text[TEXT_MAX];
	bool ascii, compact;
	uint64_t length, type;
	uint32_t state, kind;

	if (check__read(check, address, head, layout->str_compact_data))
		return false;
	memcpy(&type, head + 8, sizeof(type));
	memcpy(&length, head + layout->str_length, sizeof(length));
	memcpy(&state, head + layout->str_state, sizeof(state));
	kind = state >> layout->str_kind_shift & ((1u << layout->str_kind_bits) - 1);
	compact = state >> layout->str_compact_shift & 1;
	ascii = state >> layout->str_ascii_shift & 1;
	if (type != check->unicode_type || !compact || (kind != 1 && kind != 2 && kind != 4) || (ascii && kind != 1) ||
	    length == 0 || length > sizeof(text) / kind)
		return false;
	if (check__read(check, address + (ascii ? layout->str_ascii_data : layout->str_compact_data), text,
			length * kind))
		return false;
	for (size_t i = 0; i < length; i++) {
		uint32_t character = 0;

		memcpy(&character, text + i * kind, kind);
		if (character == 0 || character > 0x10ffff || (ascii && character > 127))
			return false;
	}
	return true;
}

/* A bytes object: its length leads to the 0 behind its last byte. */
static bool check__bytes(const struct py_check *check, uint64_t address)
{
	const struct py_layout *layout = &check->internals->layout;
	uint64_t type, length;
	char last;

	return !check__pointer(check, address + 8, &type) &&
	       check__c_string(check, type + layout->type_name, "bytes") &&
	       !check__pointer(check, address + layout->bytes_length, &length) && length < DATA_MAX &&
	       !check__read(check, address + layout->bytes_data + length, &last, 1) && last == 0;
}

enum verdict {
	VERDICT_NONE, /* no Python frame */
	VERDICT_GOOD,
	VERDICT_BAD, /* makes no sense, this time at least */
};

/* Is the instruction at hand one of the code, or the place before its first, of a frame that has not begun? */
static bool check__instruction(const struct py_check *check, uint64_t frame, uint64_t code)
{
	const struct py_layout *layout = &check->internals->layout;
	uint64_t at;
	int32_t index;

	if (layout->instr_bytes)
		return !check__read(check, frame + layout->frame_instr, &index, sizeof(index)) &&
		       (uint32_t)(index + 1) < CODE_MAX;
	return !check__pointer(check, frame + layout->frame_instr, &at) &&
	       at - (code + layout->code_instructions - 2) < CODE_MAX && at % 2 == 0;
}

static bool check__code(const struct py_check *check, uint64_t code)
{
	const struct py_layout *layout = &check->internals->layout;
	uint64_t type, name, table;

	if (check__pointer(check, code + 8, &type) || type != check->python->process.code_type)
		return false;
	if (check__pointer(check, code + layout->code_linetable, &table) || !check__bytes(check, table))
		return false;
	return !check__pointer(check, code + layout->code_filename, &name) && check__str(check, name) &&
	       !check__pointer(check, code + layout->code_name, &name) && check__str(check, name) &&
	       (!layout->code_qualname ||
		(!check__pointer(check, code + layout->code_qualname, &name) && check__str(check, name)));
}

/* The innermost frames of a thread, those that are Python functions. */
static enum verdict check__frames(const struct py_check *check, uint64_t tstate)
{
	const struct py_layout *layout = &check->internals->layout;
	enum verdict verdict = VERDICT_NONE;
	uint64_t frame, code;
	int8_t owner = 0;

	if (check__pointer(check, tstate + layout->tstate_frame, &frame))
		return VERDICT_BAD;
	if (layout->tstate_cframe && frame && check__pointer(check, frame + layout->cframe_current, &frame))
		return VERDICT_BAD;
	for (int i = 0; frame && i < FRAME_MAX; i++) {
		if (layout->frame_owner && check__read(check, frame + layout->frame_owner, &owner, sizeof(owner)))
			return VERDICT_BAD;
		if (owner < 0 || owner > OWNER_MAX)
			return VERDICT_BAD;
		if (layout->frame_owner_c < 0 || owner < layout->frame_owner_c) {
			if (check__pointer(check, frame + layout->frame_code, &code))
				return VERDICT_BAD;
			code &= ~(uint64_t)layout->ref_mask;
			if (!check__code(check, code) || !check__instruction(check, frame, code))
				return VERDICT_BAD;
			verdict = VERDICT_GOOD;
		}
		if (check__pointer(check, frame + layout->frame_previous, &frame))
			return VERDICT_BAD;
	}
	return verdict;
}

/* True also when there may be more. */
static bool is_among(const uint64_t interpreters[INTERPRETER_MAX], uint64_t interpreter)
{
	for (int i = 0; i < INTERPRETER_MAX; i++) {
		if (interpreters[i] == interpreter)
			return true;
	}
	return interpreters[INTERPRETER_MAX - 1] != 0;
}

/*
 * Where the thread says that its own state is. glibc's and musl's pthread_t is the thread pointer, so
 * PyThreadState.thread_id gives the way to its thread-local words. A thread that has released the GIL may have none.
 */
static bool check__current(const struct py_check *check, uint64_t tstate, const uint64_t interpreters[INTERPRETER_MAX])
{
	const struct py_process *py = &check->python->process;
	uint64_t tp, self, dtv, cnt, at, current, interpreter;

	if (py->tstate_where != PY_TSTATE_TLS && py->tstate_where != PY_TSTATE_DTV)
		return true;
	if (check__pointer(check, tstate + check->python->walk[PY_WALK_TSTATE_THREAD], &tp) ||
	    check__pointer(check, tp, &self) || self != tp)
		return true; /* its thread has ended, or has not begun */
	at = tp;
	if (py->tstate_where == PY_TSTATE_DTV) {
		/*
		 * glibc's dtv: the number of entries lies before it; an entry is -1 until the thread uses that module's
		 * block.
		 */
		if (check__pointer(check, tp + 8, &dtv) || check__pointer(check, dtv - 16, &cnt) ||
		    py->tls_module > cnt || check__pointer(check, dtv + 16ul * py->tls_module, &at) || at == 0 ||
		    at == UINT64_MAX)
			return true;
	}
	if (check__pointer(check, at + py->tstate_address, &current))
		return false;
	/*
	 * A thread may have a state in each interpreter, one of which is current. Up to 3.12.1 a state that is not the main
	 * interpreter's says to be of the thread that made it, and may be current in another.
	 */
	return current == 0 || current == tstate ||
	       (!check__pointer(check, current + check->python->walk[PY_WALK_TSTATE_INTERP], &interpreter) &&
		is_among(interpreters, interpreter));
}

/* Up to 3.11: the state of the thread that holds the GIL, if one does, belongs to an interpreter of the list. */
static bool check__global(const struct py_check *check, const uint64_t interpreters[INTERPRETER_MAX])
{
	uint64_t current, interpreter;

	if (check->python->process.tstate_where != PY_TSTATE_GLOBAL)
		return true;
	if (check__pointer(check, check->python->process.tstate_address, &current))
		return false;
	if (current == 0)
		return true;
	if (check__pointer(check, current + check->python->walk[PY_WALK_TSTATE_INTERP], &interpreter))
		return false;
	return is_among(interpreters, interpreter);
}

/*
 * The threads of one interpreter: GOOD when one makes sense, else BAD when one does not; BAD when a current state is
 * elsewhere.
 */
static enum verdict check__interpreter(const struct py_check *check, const uint64_t interpreters[INTERPRETER_MAX],
				       uint64_t interpreter)
{
	const uint32_t *walk = check->python->walk;
	enum verdict verdict, result = VERDICT_NONE;
	uint64_t tstate, back;

	if (check__pointer(check, interpreter + walk[PY_WALK_INTERP_THREADS], &tstate))
		return VERDICT_BAD;
	for (int i = 0; tstate && i < THREAD_MAX; i++) {
		if (check__pointer(check, tstate + walk[PY_WALK_TSTATE_INTERP], &back) || back != interpreter)
			return result == VERDICT_GOOD ? result : VERDICT_BAD;
		if (!check__current(check, tstate, interpreters))
			return VERDICT_BAD;
		verdict = check__frames(check, tstate);
		if (verdict == VERDICT_GOOD || result == VERDICT_NONE)
			result = verdict;
		if (check__pointer(check, tstate + walk[PY_WALK_TSTATE_NEXT], &tstate))
			break;
	}
	return result;
}

/* The interpreters; false when their list makes no sense. */
static bool check__list(const struct py_check *check, uint64_t interpreters[INTERPRETER_MAX])
{
	const uint32_t *walk = check->python->walk;
	uint64_t next;

	if (check__pointer(check, check->python->runtime + walk[PY_WALK_INTERPRETERS], &next))
		return false;
	for (int i = 0; next && i < INTERPRETER_MAX; i++) {
		interpreters[i] = next;
		if (check__pointer(check, next + walk[PY_WALK_INTERP_NEXT], &next))
			return false;
	}
	return true;
}

static enum verdict check__threads(const struct py_check *check)
{
	uint64_t interpreters[INTERPRETER_MAX] = {0};
	bool good = false, bad = !check__list(check, interpreters);

	for (int i = 0; i < INTERPRETER_MAX && interpreters[i]; i++) {
		enum verdict verdict = check__interpreter(check, interpreters, interpreters[i]);

		good |= verdict == VERDICT_GOOD;
		bad |= verdict == VERDICT_BAD;
	}
	bad = bad || !check__global(check, interpreters);
	return bad ? VERDICT_BAD : good ? VERDICT_GOOD : VERDICT_NONE;
}

int py_check__process(const struct py_check *check)
{
	const struct py_layout *layout = &check->internals->layout;
	const struct timespec pause = {.tv_nsec = 1000 * 1000};
	uint64_t value;
	int err;

	err = check__pointer(check, check->python->process.gen_type, &value);
	if (err)
		return err;
	if (!check__c_string(check, check->python->process.gen_type + layout->type_name, "generator") ||
	    !check__c_string(check, check->unicode_type + layout->type_name, "str"))
		return -ENOTSUP;
	if (check->python->functions.next && !check__next(check))
		return -ENOTSUP;
	for (int i = 0; i < ATTEMPTS; i++) {
		if (check__threads(check) != VERDICT_BAD)
			return 0;
		nanosleep(&pause, NULL);
	}
	return process__alive(check->process) ? -ENOTSUP : -ESRCH;
}
