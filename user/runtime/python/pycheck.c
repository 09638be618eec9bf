/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Checks the CPython that was found against the process that runs it. In: struct py_check. Out:
 * agreed or not. Owned by the calling thread.
 *
 * Threads of the target run, begin and end while they are read, so two words may come from two
 * moments, and may together contradict the table although the process never did. A contradiction
 * counts only when the words that led to it are unchanged afterwards, and only when it recurs. The
 * check looks at a thread's outermost frames, which change least.
 */
#include "user/runtime/python/pycheck.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "user/proc/deputy.h"
#include "user/runtime/python/pyframes.h"

#define ATTEMPTS        40 /* at what changes, at growing intervals: 0.8 s in all */
#define INTERPRETER_MAX 64
#define THREAD_MAX      64         /* threads to check in each interpreter */
#define PATIENCE_NS     3000000000 /* of CPU time, however many threads and frames the target pretends to have */
#define READINGS        20         /* readings at once of the frames of a running thread */
#define FRAME_CNT       8          /* frames to check in each thread */
#define DEPTH_MAX       (1u << 17) /* frames of a thread, since a ring of frames would not end */
#define OWNER_MAX       4          /* the highest of enum _frameowner in any version */
#define TEXT_MAX        4096       /* characters: file names */
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

/* ---- what does not change ---- */

int py_check__debug_offsets(pid_t pid, uint64_t runtime, const struct py_internals *internals)
{
	uint64_t words[128];
	int err;

	if (!internals->debug_version_at)
		return 0;
	err = process__read_memory(pid, runtime, words, sizeof(words));
	if (err)
		return err;
	/* The version is PY_VERSION_HEX; patch releases change only its lower 16 bits. */
	if (memcmp(words, "xdebugpy", 8) ||
	    words[internals->debug_version_at / 8] >> 16 != (3u << 8 | internals->layout.minor))
		return -ENOTSUP;
	if (!words[internals->debug_free_threaded_at / 8] == py_layout__is_free_threaded(&internals->layout))
		return -ENOTSUP;
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
 * Does the process hold a PyMethodDef {"next", next, METH_FASTCALL}? Nothing names its table, which
 * lies among the interpreter's static data, so this reads the memory around PyGen_Type, itself
 * static data.
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

/* A str whose characters are text: no character is 0, and ASCII ones are below 128. */
static bool check__str(const struct py_check *check, uint64_t address)
{
	const struct py_layout *layout = &check->internals->layout;
	unsigned char head[128], text[TEXT_MAX];
	bool ascii, compact;
	uint64_t length, type;
	uint32_t state, kind;

	if (check__read(check, address, head, layout->str_compact_data))
		return false;
	memcpy(&type, head + layout->object_type, sizeof(type));
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

/* A bytes object: its length leads to the 0 after its last byte. */
static bool check__bytes(const struct py_check *check, uint64_t address)
{
	const struct py_layout *layout = &check->internals->layout;
	uint64_t type, length;
	char last;

	return !check__pointer(check, address + layout->object_type, &type) &&
	       check__c_string(check, type + layout->type_name, "bytes") &&
	       !check__pointer(check, address + layout->bytes_length, &length) && length < DATA_MAX &&
	       !check__read(check, address + layout->bytes_data + length, &last, 1) && last == 0;
}

enum check_verdict {
	VERDICT_NONE,   /* no Python frame */
	VERDICT_MOVING, /* it changed while it was read: no verdict */
	VERDICT_BAD,    /* makes no sense, in this reading at least */
	VERDICT_GOOD,
};

/*
 * Is the current instruction inside the code, or just before the first one, in a frame that has not
 * begun?
 */
static bool link__has_instruction(const struct py_link *link, const struct py_layout *layout)
{
	return link->offset >= -2 && link->offset < CODE_MAX && (layout->instr_bytes == 1 || link->offset % 2 == 0);
}

static bool check__code(const struct py_check *check, uint64_t code)
{
	const struct py_layout *layout = &check->internals->layout;
	uint64_t type, name, table;

	if (check__pointer(check, code + layout->object_type, &type) || type != check->python->process.code_type)
		return false;
	if (check__pointer(check, code + layout->code_linetable, &table) || !check__bytes(check, table))
		return false;
	return !check__pointer(check, code + layout->code_filename, &name) && check__str(check, name) &&
	       !check__pointer(check, code + layout->code_name, &name) && check__str(check, name) &&
	       (!layout->code_qualname ||
		(!check__pointer(check, code + layout->code_qualname, &name) && check__str(check, name)));
}

/* The outermost frames of a thread: the k-th from outside is links[(cnt - 1 - k) % FRAME_CNT]. */
struct outer {
	struct py_link links[FRAME_CNT];
	uint32_t cnt; /* of all */
};

static const struct py_link *outer__at(const struct outer *outer, uint32_t k)
{
	return &outer->links[(outer->cnt - 1 - k) % FRAME_CNT];
}

static uint32_t outer__held(const struct outer *outer)
{
	return outer->cnt < FRAME_CNT ? outer->cnt : FRAME_CNT;
}

struct outer_request {
	pid_t pid;
	struct py_layout layout;
	uint64_t tstate;
};

/* The links of a frame that is left meanwhile may lead anywhere. */
static int read_outer_in_deputy(const void *in, struct deputy_out *answer)
{
	const struct outer_request *r = in;
	struct outer *out = (void *)answer->bytes;
	struct py_window window;
	uint64_t frame;
	int err = py_link__innermost(r->pid, &r->layout, r->tstate, &frame);

	window.start = window.end = 0;
	for (out->cnt = 0; !err && frame && out->cnt < DEPTH_MAX; out->cnt++) {
		struct py_link *link = &out->links[out->cnt % FRAME_CNT];

		err = py_link__read(r->pid, &r->layout, &window, frame, link);
		if (!err)
			frame = link->previous;
	}
	return err ?: frame ? -EAGAIN : 0;
}

/* 0 or -errno. */
static int check__outer(const struct py_check *check, uint64_t tstate, struct outer *out)
{
	const struct outer_request request = {check->process->pid, check->internals->layout, tstate};
	const struct deputy_out *answer;
	int err = deputy__cpu_ns() > check->until_ns
			  ? -ETIME
			  : deputy__run(request.pid, read_outer_in_deputy, &request, sizeof(request), &answer);

	if (!err)
		memcpy(out, answer->bytes, sizeof(*out));
	return err;
}

static bool check__link(const struct py_check *check, const struct py_link *link)
{
	if (link->owner < 0 || link->owner > OWNER_MAX)
		return false;
	return !link->python ||
	       (check__code(check, link->code) && link__has_instruction(link, &check->internals->layout));
}

/*
 * Checks the frames that the thread had both before and after their codes were read. Such frames
 * kept the codes alive.
 */
static enum check_verdict check__frames_once(const struct py_check *check, uint64_t tstate)
{
	struct outer before, after;
	bool good[FRAME_CNT], python = false;
	uint32_t held, k = 0;

	if (check__outer(check, tstate, &before))
		return VERDICT_MOVING;
	held = outer__held(&before);
	for (uint32_t i = 0; i < held; i++)
		good[i] = check__link(check, outer__at(&before, i));
	if (check__outer(check, tstate, &after))
		return VERDICT_MOVING;
	for (; k < held && k < outer__held(&after); k++) {
		const struct py_link *x = outer__at(&before, k), *y = outer__at(&after, k);

		if (x->frame != y->frame || x->code != y->code || x->previous != y->previous)
			break;
		if (!good[k])
			return VERDICT_BAD;
		python = python || x->python;
	}
	return python ? VERDICT_GOOD : k == held && before.cnt == after.cnt ? VERDICT_NONE : VERDICT_MOVING;
}

static enum check_verdict check__frames(const struct py_check *check, uint64_t tstate)
{
	enum check_verdict verdict = VERDICT_MOVING;

	for (int i = 0; verdict == VERDICT_MOVING && i < READINGS; i++)
		verdict = check__frames_once(check, tstate);
	return verdict;
}

/* Whether the list has the interpreter. True also when the list is full, and there may be more. */
static bool is_among(const uint64_t interpreters[INTERPRETER_MAX], uint64_t interpreter)
{
	for (int i = 0; i < INTERPRETER_MAX; i++) {
		if (interpreters[i] == interpreter)
			return true;
	}
	return interpreters[INTERPRETER_MAX - 1] != 0;
}

/*
 * The address of the word in which the thread has its current state; 0 when the thread has no such
 * word, has ended, or has not begun.
 */
static uint64_t check__word(const struct py_check *check, uint64_t tstate)
{
	const struct py_process *py = &check->python->process;
	uint64_t tp, self, dtv, cnt, block;

	if (py->tstate_where != PY_TSTATE_TLS && py->tstate_where != PY_TSTATE_DTV)
		return 0;
	if (check__pointer(check, tstate + check->python->walk[PY_WALK_TSTATE_THREAD], &tp) ||
	    check__pointer(check, tp, &self) || self != tp)
		return 0;
	if (py->tstate_where == PY_TSTATE_TLS)
		return tp + py->tstate_address;
	/*
	 * glibc's dtv: the count of entries lies before it; an entry is -1 until the thread uses
	 * that module's block.
	 */
	if (check__pointer(check, tp + 8, &dtv) || check__pointer(check, dtv - 16, &cnt) || py->tls_module > cnt ||
	    check__pointer(check, dtv + 16ul * py->tls_module, &block) || block == 0 || block == UINT64_MAX)
		return 0;
	return block + py->tstate_address;
}

/*
 * Does the word hold `tstate`, another state of an interpreter, or nothing? A thread may have a
 * state in each interpreter, one of which is current. Up to 3.12.1, a state outside the main
 * interpreter names the thread that made it, and may be current in another thread.
 */
static enum check_verdict check__state_in(const struct py_check *check, uint64_t word, uint64_t tstate,
					  const uint64_t interpreters[INTERPRETER_MAX])
{
	uint64_t current, interpreter, now;

	if (check__pointer(check, word, &current))
		return VERDICT_BAD;
	if (current == 0 || current == tstate ||
	    (!check__pointer(check, current + check->python->walk[PY_WALK_TSTATE_INTERP], &interpreter) &&
	     is_among(interpreters, interpreter)))
		return VERDICT_GOOD;
	return !check__pointer(check, word, &now) && now == current ? VERDICT_BAD : VERDICT_MOVING;
}

/*
 * Checks where the thread keeps its own state. glibc's and musl's pthread_t is the thread pointer,
 * so PyThreadState.thread_id leads to the thread-local words. A thread that has released the GIL
 * may have no state there.
 */
static enum check_verdict check__current(const struct py_check *check, uint64_t tstate,
					 const uint64_t interpreters[INTERPRETER_MAX])
{
	uint64_t word = check__word(check, tstate);
	enum check_verdict verdict = word ? check__state_in(check, word, tstate, interpreters) : VERDICT_GOOD;

	return verdict == VERDICT_BAD && check__word(check, tstate) != word ? VERDICT_MOVING : verdict;
}

/*
 * Up to 3.11: the state of the thread that holds the GIL, when one does, belongs to an interpreter
 * of the list.
 */
static enum check_verdict check__global(const struct py_check *check, const uint64_t interpreters[INTERPRETER_MAX])
{
	if (check->python->process.tstate_where != PY_TSTATE_GLOBAL)
		return VERDICT_GOOD;
	return check__state_in(check, check->python->process.tstate_address, 0, interpreters);
}

static bool check__is_listed(const struct py_check *check, uint64_t interpreter, uint64_t tstate)
{
	const uint32_t *walk = check->python->walk;
	uint64_t at;
	int err = check__pointer(check, interpreter + walk[PY_WALK_INTERP_THREADS], &at);

	for (int i = 0; !err && at && at != tstate && i < THREAD_MAX; i++)
		err = check__pointer(check, at + walk[PY_WALK_TSTATE_NEXT], &at);
	return !err && at == tstate;
}

/*
 * The threads of one interpreter: BAD when a current state is elsewhere, else the best verdict on
 * their frames.
 */
static enum check_verdict check__interpreter(const struct py_check *check, const uint64_t interpreters[INTERPRETER_MAX],
					     uint64_t interpreter)
{
	const uint32_t *walk = check->python->walk;
	enum check_verdict verdict, result = VERDICT_NONE;
	uint64_t tstate, back;

	if (check__pointer(check, interpreter + walk[PY_WALK_INTERP_THREADS], &tstate))
		return VERDICT_BAD;
	for (int i = 0; tstate && i < THREAD_MAX; i++) {
		if (check__pointer(check, tstate + walk[PY_WALK_TSTATE_INTERP], &back) || back != interpreter)
			return result > VERDICT_MOVING ? result : VERDICT_MOVING;
		verdict = check__current(check, tstate, interpreters);
		if (verdict == VERDICT_BAD && check__is_listed(check, interpreter, tstate))
			return VERDICT_BAD;
		verdict = verdict == VERDICT_GOOD ? check__frames(check, tstate) : VERDICT_MOVING;
		if (verdict == VERDICT_BAD && !check__is_listed(check, interpreter, tstate))
			verdict = VERDICT_MOVING;
		result = verdict > result ? verdict : result;
		if (check__pointer(check, tstate + walk[PY_WALK_TSTATE_NEXT], &tstate))
			break;
	}
	return result;
}

/* Lists the interpreters; returns false when the list makes no sense. */
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

/* BAD when any interpreter is BAD; else the best of their verdicts. */
static enum check_verdict check__threads(const struct py_check *check)
{
	uint64_t interpreters[INTERPRETER_MAX] = {0};
	enum check_verdict verdict, result = VERDICT_NONE;

	if (!check__list(check, interpreters))
		return VERDICT_BAD;
	for (int i = 0; i < INTERPRETER_MAX && interpreters[i]; i++) {
		verdict = check__interpreter(check, interpreters, interpreters[i]);
		if (verdict == VERDICT_BAD)
			return verdict;
		result = verdict > result ? verdict : result;
	}
	verdict = check__global(check, interpreters);
	return verdict == VERDICT_GOOD ? result : verdict;
}

static int check__live(const struct py_check *check)
{
	for (int i = 0; i < ATTEMPTS && deputy__cpu_ns() < check->until_ns; i++) {
		const struct timespec pause = {.tv_nsec = (i + 1) * 1000 * 1000};
		enum check_verdict verdict = check__threads(check);

		if (verdict == VERDICT_GOOD || (verdict == VERDICT_NONE && !check->python->tried))
			return 0;
		nanosleep(&pause, NULL);
	}
	return process__alive(check->process) ? -ENOTSUP : -ESRCH;
}

int py_check__process(const struct py_check *check)
{
	const struct py_layout *layout = &check->internals->layout;
	struct py_check bounded = *check;
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
	bounded.until_ns = deputy__cpu_ns() + PATIENCE_NS;
	return check__live(&bounded);
}
