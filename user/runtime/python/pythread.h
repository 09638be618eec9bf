/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Python threads of a live process: their states, where a thread keeps its own, and the GIL that they wait for. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYTHREAD_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYTHREAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/runtime/python/pylayout.h"

struct python;

struct py_thread {
	uint64_t tstate;  /* address of its PyThreadState */
	uint64_t pthread; /* its pthread_t: with glibc and musl the thread pointer */
	pid_t tid;        /* as the process sees it; 0 before 3.11 */
};

/*
 * The offsets of a version's walk as this process has them: from 3.13 what _Py_DebugOffsets at `runtime` (address of
 * _PyRuntime) tells, else the table's. 0 or -errno.
 */
int py_walk__resolve(pid_t pid, uint64_t runtime, const struct py_internals *internals, uint32_t walk[PY_WALK_CNT]);

/*
 * All thread states of all interpreters, malloc'ed into *out (NULL when there is none); at most 65,536. Threads come
 * and go meanwhile: -EAGAIN when the list was in motion. Count, or -errno.
 */
int py_thread__list(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT], struct py_thread **out);

/* How many interpreters there are, 64 at most; or -errno. */
int py_thread__interpreters(pid_t pid, uint64_t runtime, const uint32_t walk[PY_WALK_CNT]);

/* The same, asked again while the list is in motion: it stands still sooner or later. Count, or -errno. */
int py_thread__list_still(pid_t pid, const struct python *python, struct py_thread **out);

/*
 * The state of the thread whose process knows it as `nstid`, among `cnt` states; NULL: none. It is the one in the thread's
 * own word, at tss_offset (0: not known): a thread may have others, in other interpreters, and those up to 3.12.1 say to be
 * of the thread that made them. Where that word is not known, it is the last that says to be of the thread, the main
 * interpreter's.
 */
struct py_thread *py_thread__of(pid_t pid, pid_t nstid, uint32_t tss_offset, struct py_thread *states, int cnt);

/*
 * The byte offset from a thread's thread pointer of the word in which glibc's pthread_getspecific(autoTSSkey) looks,
 * such that in this process it holds the state of one thread at least, and in none what is no state. 0: not known,
 * or the C library is another.
 */
uint32_t py_thread__find_tss(pid_t pid, uint64_t runtime, const struct py_internals *internals,
			     const uint32_t walk[PY_WALK_CNT]);

/* The address of the main interpreter's struct _gil_runtime_state, the members of which make sense there. 0: not known. */
uint64_t py_thread__find_gil(pid_t pid, uint64_t runtime, const struct py_internals *internals,
			     const uint32_t walk[PY_WALK_CNT]);

/* The thread state that holds the GIL of the main interpreter, 0: none, or not known. */
uint64_t py_thread__gil_holder(pid_t pid, const struct python *python);

#endif
