/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the interpreters and thread states of a process that runs on. In: a pid, the address of
 * _PyRuntime, a version's offsets. Out: threads, and two addresses, given only when the process
 * agrees. No state; owned by the calling thread.
 */
#include "user/runtime/python/pythread.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "user/proc/process.h"
#include "user/runtime/python/interpreter.h"

#define INTERPRETER_MAX 64
#define THREAD_MAX      65536
#define ATTEMPTS        20 /* 1 ms apart */

/*
 * glibc's struct pthread on x86-64 (nptl/descr.h): specific_1stblock, 32 entries {uintptr_t seq;
 * void *data}. The same since 2.3. A word there counts only when it is the state of the thread.
 */
#define SPECIFIC_AT    0x310
#define SPECIFIC_CNT   32
#define SPECIFIC_KEYS  1024 /* PTHREAD_KEYS_MAX */

#define STATIC_TLS_MAX (1u << 20) /* bytes of all files' words below the thread pointer; torch has some KiB */

static const struct timespec moment = {.tv_nsec = 1000 * 1000};

static int read_address(pid_t pid, uint64_t address, uint64_t *value)
{
	return process__read_memory(pid, address, value, sizeof(*value));
}

int py_walk__resolve(pid_t pid, uint64_t runtime, const struct py_internals *internals, uint32_t walk[PY_WALK_CNT])
{
	uint64_t value;
	int err;

	for (int i = 0; i < PY_WALK_CNT; i++) {
		walk[i] = internals->walk[i];
		if (!internals->walk_at[i])
			continue;
		err = read_address(pid, runtime + internals->walk_at[i], &value);
		if (err)
			return err;
		walk[i] = (uint32_t)value;
	}
	return 0;
}

/* ---- all threads ---- */

struct thread_list {
	struct py_thread *threads; /* owned */
	int cnt;
};

static int thread_list__add(struct thread_list *list, struct py_thread thread)
{
	struct py_thread *more;

	if (list->cnt == THREAD_MAX)
		return -EAGAIN;                   /* a ring, most likely: the list was read while it changed */
	if ((list->cnt & (list->cnt - 1)) == 0) { /* full at each power of two */
		more = realloc(list->threads, (list->cnt ? (size_t)list->cnt * 2 : 1) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		list->threads = more;
	}
	list->threads[list->cnt++] = thread;
	return 0;
}

static int thread_list__interpreter(struct thread_list *list, pid_t pid, uint64_t interpreter,
				    const uint32_t walk[PY_WALK_CNT])
{
	struct py_thread thread = {0};
	uint64_t back, native = 0;
	int err;

	err = read_address(pid, interpreter + walk[PY_WALK_INTERP_THREADS], &thread.tstate);
	while (!err && thread.tstate) {
		if (read_address(pid, thread.tstate + walk[PY_WALK_TSTATE_INTERP], &back) || back != interpreter ||
		    read_address(pid, thread.tstate + walk[PY_WALK_TSTATE_THREAD], &thread.pthread) ||
		    (walk[PY_WALK_TSTATE_NATIVE] &&
		     read_address(pid, thread.tstate + walk[PY_WALK_TSTATE_NATIVE], &native)))
			return -EAGAIN;
		thread.tid = (pid_t)native;
		err = thread_list__add(list, thread);
		if (!err && read_address(pid, thread.tstate + walk[PY_WALK_TSTATE_NEXT], &thread.tstate))
			err = -EAGAIN;
	}
	return err;
}

int py_thread__list(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT], struct py_thread **out)
{
	struct thread_list list = {0};
	uint64_t interpreter;
	int err;

	*out = NULL;
	err = read_address(pid, runtime + walk[PY_WALK_INTERPRETERS], &interpreter);
	for (int i = 0; !err && interpreter; i++) {
		err = i == INTERPRETER_MAX ? -EAGAIN : thread_list__interpreter(&list, pid, interpreter, walk);
		if (!err && read_address(pid, interpreter + walk[PY_WALK_INTERP_NEXT], &interpreter))
			err = -EAGAIN;
	}
	if (err) {
		free(list.threads);
		return err;
	}
	*out = list.threads;
	return list.cnt;
}

int py_thread__interpreters(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT])
{
	uint64_t next;
	int cnt = 0, err = read_address(pid, runtime + walk[PY_WALK_INTERPRETERS], &next);

	for (; !err && next && cnt < INTERPRETER_MAX; cnt++)
		err = read_address(pid, next + walk[PY_WALK_INTERP_NEXT], &next);
	return err ?: cnt;
}

/* ---- where a thread keeps its state ---- */

static bool threads__have(const struct py_thread *threads, int cnt, uint64_t tstate)
{
	for (int i = 0; i < cnt; i++)
		if (threads[i].tstate == tstate)
			return true;
	return false;
}

/*
 * A thread may have a state in each interpreter, and the word holds one of them. Up to 3.12.1 it
 * may even hold a state that names the thread that made it; this accepts such a state only for the
 * interpreter's own key. A thread that has ended has no state.
 */
static bool threads__agree(pid_t pid, const struct py_thread *threads, int cnt, const uint32_t walk[PY_WALK_CNT],
			   int32_t offset, bool own_key)
{
	uint64_t self, held, pthread;
	bool agreed = false;

	for (int i = 0; i < cnt; i++) {
		if (read_address(pid, threads[i].pthread, &self) || self != threads[i].pthread)
			continue; /* glibc's struct pthread begins with its own address */
		if (read_address(pid, self + (int64_t)offset, &held))
			return false;
		if (held == threads[i].tstate)
			agreed = true;
		else if (held && !(own_key && threads__have(threads, cnt, held)) &&
			 (read_address(pid, held + walk[PY_WALK_TSTATE_THREAD], &pthread) || pthread != self))
			return false;
	}
	return agreed;
}

static int32_t specific__offset(uint32_t key)
{
	return (int32_t)(SPECIFIC_AT + 16 * key + 8);
}

/*
 * Takes the key that _PyRuntime names, else the lowest key at which the threads' states are found:
 * other keys, such as pybind11's, hold the same states, but are created after the interpreter's.
 */
static int32_t threads__find_tss(pid_t pid, const struct py_thread *threads, int cnt, uint64_t key_at,
				 const uint32_t walk[PY_WALK_CNT])
{
	struct {
		int32_t is_initialized;
		uint32_t key;
	} tss; /* Py_tss_t (CPython Include/cpython/pythread.h) */

	if (key_at && !process__read_memory(pid, key_at - sizeof(tss.is_initialized), &tss, sizeof(tss)) &&
	    tss.is_initialized == 1 && tss.key < SPECIFIC_KEYS) {
		if (tss.key >= SPECIFIC_CNT) /* in another block, reached through a pointer */
			return 0;
		if (threads__agree(pid, threads, cnt, walk, specific__offset(tss.key), true))
			return specific__offset(tss.key);
	}
	for (uint32_t key = 0; key < SPECIFIC_CNT; key++) {
		if (threads__agree(pid, threads, cnt, walk, specific__offset(key), false))
			return specific__offset(key);
	}
	return 0;
}

/*
 * The place of a thread-local word as seen from the thread pointer. A file that is there from the
 * start has its words below that, at the same distance in all threads, although its code may go by
 * the dtv; a file that was loaded later has them anywhere. 0: not known, or not so.
 */
static int32_t word__offset(pid_t pid, const struct thread_word *word, uint64_t tp)
{
	uint64_t at = tp + word->offset, dtv, cnt, block;

	if (word->module) {
		if (read_address(pid, tp + 8, &dtv) || read_address(pid, dtv - 16, &cnt) || word->module > cnt ||
		    read_address(pid, dtv + 16ul * word->module, &block))
			return 0;
		at = block + word->offset;
	}
	return at < tp && tp - at <= STATIC_TLS_MAX ? -(int32_t)(tp - at) : 0;
}

/* Threads that have not used a file's words yet have no block in the dtv: the first place counts that is known. */
static int32_t threads__find_word(pid_t pid, const struct py_thread *threads, int cnt, const struct thread_word *word,
				  const uint32_t walk[PY_WALK_CNT])
{
	int32_t offset = 0;

	for (int i = 0; !offset && i < cnt; i++)
		offset = word__offset(pid, word, threads[i].pthread);
	return offset && threads__agree(pid, threads, cnt, walk, offset, true) ? offset : 0;
}

int32_t py_thread__find_tss(pid_t pid, uint64_t runtime, const struct py_internals *internals,
			    const uint32_t walk[PY_WALK_CNT], const struct thread_word *word)
{
	uint64_t key_at = internals->tss_key ? runtime + internals->tss_key : 0;
	int32_t offset = 0;

	for (int i = 0; !offset && i < ATTEMPTS; i++) {
		struct py_thread *threads;
		int cnt = py_thread__list(pid, runtime, walk, &threads);

		if (i)
			nanosleep(&moment, NULL);
		if (cnt > 0)
			offset = word ? threads__find_word(pid, threads, cnt, word, walk)
				      : threads__find_tss(pid, threads, cnt, key_at, walk);
		free(threads);
	}
	return offset;
}

/* ---- the GIL ---- */

/* The list has the newest first; the main interpreter is the oldest. */
uint64_t py_thread__main_interpreter(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT])
{
	uint64_t interpreter = 0, next;

	if (read_address(pid, runtime + walk[PY_WALK_INTERPRETERS], &next))
		return 0;
	for (int i = 0; next && i < INTERPRETER_MAX; i++) {
		interpreter = next;
		if (read_address(pid, interpreter + walk[PY_WALK_INTERP_NEXT], &next))
			return 0;
	}
	return next ? 0 : interpreter;
}

static bool is_interpreter_state(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT], uint64_t interpreter)
{
	uint64_t next;
	int err = read_address(pid, runtime + walk[PY_WALK_INTERPRETERS], &next);

	for (int i = 0; !err && next && next != interpreter && i < INTERPRETER_MAX; i++)
		err = read_address(pid, next + walk[PY_WALK_INTERP_NEXT], &next);
	return !err && next == interpreter;
}

/*
 * The holder of a GIL that is taken is a thread of an interpreter, the main one or one that shares
 * its GIL; the last holder of a free one may have ended.
 */
static bool gil__makes_sense(pid_t pid, uint64_t gil, uint64_t runtime, const struct py_internals *internals,
			     const uint32_t walk[PY_WALK_CNT])
{
	uint64_t holder, back;
	int32_t locked;

	if (read_address(pid, gil + internals->gil_holder, &holder) ||
	    process__read_memory(pid, gil + internals->gil_locked, &locked, sizeof(locked)) || locked < 0 || locked > 1)
		return false;
	if (!locked)
		return holder == 0 || !read_address(pid, holder, &back);
	return !read_address(pid, holder + walk[PY_WALK_TSTATE_INTERP], &back) && back &&
	       is_interpreter_state(pid, runtime, walk, back);
}

uint64_t py_thread__find_gil(pid_t pid, uint64_t runtime, const struct py_internals *internals,
			     const uint32_t walk[PY_WALK_CNT])
{
	for (int i = 0; i < ATTEMPTS; i++) {
		uint64_t interpreter = py_thread__main_interpreter(pid, runtime, walk),
			 gil = runtime + walk[PY_WALK_GIL];

		if (i)
			nanosleep(&moment, NULL);
		if (!interpreter ||
		    (internals->layout.minor >= 12 && read_address(pid, interpreter + walk[PY_WALK_GIL], &gil)))
			continue;
		if (gil__makes_sense(pid, gil, runtime, internals, walk))
			return gil;
	}
	return 0;
}

uint64_t py_thread__gil_holder(pid_t pid, const struct python *python)
{
	const struct py_internals *internals = py_internals__of(&python->process.layout);
	uint64_t gil = python->process.gil_address, holder;
	int32_t locked;

	if (!gil || !internals || read_address(pid, gil + internals->gil_holder, &holder) ||
	    process__read_memory(pid, gil + internals->gil_locked, &locked, sizeof(locked)))
		return 0;
	return locked == 1 ? holder : 0;
}

/* The begin of glibc's struct pthread, x86-64 (nptl/descr.h). */
struct pthread {
	uint64_t self;
	char pad[0x2c8];
	pid_t tid; /* as the process sees it */
};

static pid_t pthread__tid(pid_t pid, uint64_t pthread)
{
	struct pthread head;

	return process__read_memory(pid, pthread, &head, sizeof(head)) || head.self != pthread ? 0 : head.tid;
}

/*
 * In a forked process, native_thread_id holds ids of the parent's threads, which no thread of its
 * own has.
 */
struct py_thread *py_thread__of(pid_t pid, pid_t nstid, int32_t tss_offset, struct py_thread *states, int cnt)
{
	struct py_thread *found = NULL;
	uint64_t own = 0;

	for (int i = 0; i < cnt; i++) {
		if (pthread__tid(pid, states[i].pthread) == nstid) {
			found = &states[i];
			if (tss_offset && !own)
				process__read_memory(pid, states[i].pthread + (int64_t)tss_offset, &own, sizeof(own));
		} else if (states[i].tid == nstid && !tss_offset) {
			found = &states[i];
		}
	}
	for (int i = 0; found && tss_offset && i < cnt; i++) {
		if (states[i].tstate == own)
			return &states[i];
	}
	return tss_offset ? NULL : found;
}

int py_thread__list_still(pid_t pid, const struct python *python, struct py_thread **out)
{
	int cnt = -EAGAIN;

	for (int i = 0; cnt == -EAGAIN && i < ATTEMPTS; i++) {
		if (i)
			nanosleep(&moment, NULL);
		cnt = py_thread__list(pid, python->runtime, python->walk, out);
	}
	return cnt;
}
