/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads the Python threads of a live process: their states, where a thread keeps its own, and the
 * GIL for which they wait.
 */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYTHREAD_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYTHREAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/proc/getter.h"
#include "user/runtime/python/pylayout.h"

struct python;

struct py_thread {
	uint64_t tstate;  /* address of its PyThreadState */
	uint64_t pthread; /* its pthread_t: with glibc and musl the thread pointer */
	pid_t tid;        /* as the process sees it; 0 before 3.11 */
};

/*
 * Sets the offsets of a version's walk as this process has them: from 3.13, those in
 * _Py_DebugOffsets at `runtime` (address of _PyRuntime), else those of the table. 0 or -errno.
 */
int py_walk__resolve(pid_t pid, uint64_t runtime, const struct py_internals *internals, uint32_t walk[PY_WALK_CNT]);

/*
 * Lists all thread states of all interpreters, malloc'ed into *out (NULL when there is none), at
 * most 65,536. Threads come and go meanwhile: -EAGAIN when the list was changing. Count, or -errno.
 */
int py_thread__list(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT], struct py_thread **out);

/* How many interpreters there are, 64 at most; or -errno. */
int py_thread__interpreters(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT]);

/* The address of the main interpreter's state; 0: there is none, or the list was changing. */
uint64_t py_thread__main_interpreter(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT]);

/* The same as py_thread__list, but retries while the list is changing. Count, or -errno. */
int py_thread__list_still(pid_t pid, const struct python *python, struct py_thread **out);

/*
 * The state, among `cnt` states, of the thread whose id in its process is `nstid`; NULL when there
 * is none. The thread's own word at tss_offset (0: not known) decides: a thread may have other
 * states, in other interpreters, and up to 3.12.1 those name the thread that made them. When the
 * word is not known, the last state that names the thread wins, which is the main interpreter's.
 */
struct py_thread *py_thread__of(pid_t pid, pid_t nstid, int32_t tss_offset, struct py_thread *states, int cnt);

/*
 * The byte offset from a thread's thread pointer of the word that glibc's
 * pthread_getspecific(autoTSSkey) reads, or of `word`, a thread-local one that the file names (NULL:
 * none). In this process the word must hold the state of at least one thread, and in no thread
 * anything but a state. 0: not known, or another C library.
 */
int32_t py_thread__find_tss(pid_t pid, uint64_t runtime, const struct py_internals *internals,
			    const uint32_t walk[PY_WALK_CNT], const struct thread_word *word);

/*
 * The address of the main interpreter's struct _gil_runtime_state, whose members must make sense
 * there. 0: not known.
 */
uint64_t py_thread__find_gil(pid_t pid, uint64_t runtime, const struct py_internals *internals,
			     const uint32_t walk[PY_WALK_CNT]);

/*
 * The thread state that holds the GIL of the main interpreter; 0 when no thread state holds it, or
 * that is not known.
 */
uint64_t py_thread__gil_holder(pid_t pid, const struct python *python);

#endif
