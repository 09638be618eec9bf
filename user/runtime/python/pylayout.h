/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What stepflame knows about a CPython version beyond the layout that the BPF side gets
 * (include/python.h): the path from _PyRuntime to the thread states, and what _Py_DebugOffsets must
 * say. For python.c and its tests.
 */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYLAYOUT_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYLAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/python.h"

#define PY_MINOR_MIN 8
#define PY_MINOR_MAX 15

/* Offsets on the path from _PyRuntime to a thread state. */
enum py_walk_field {
	PY_WALK_INTERPRETERS,   /* _PyRuntime.interpreters.head */
	PY_WALK_INTERP_NEXT,    /* PyInterpreterState.next */
	PY_WALK_INTERP_THREADS, /* PyInterpreterState.threads.head */
	PY_WALK_TSTATE_NEXT,    /* PyThreadState.next */
	PY_WALK_TSTATE_INTERP,  /* PyThreadState.interp */
	PY_WALK_TSTATE_THREAD,  /* PyThreadState.thread_id: the pthread_t, so the thread pointer */
	PY_WALK_TSTATE_NATIVE,  /* PyThreadState.native_thread_id: the thread id; 0 before 3.11 */
	PY_WALK_GIL, /* PyInterpreterState.ceval.gil, a pointer; up to 3.11 _PyRuntime.ceval.gil, the struct itself */
	PY_WALK_INTERP_MODULES, /* PyInterpreterState.(imports.)modules: the dict sys.modules */
	PY_WALK_CNT,
};

#define PY_DEBUG_MAX 24

struct py_internals {
	struct py_layout layout;
	uint32_t walk[PY_WALK_CNT];
	uint32_t tss_key; /* _PyRuntime.(gilstate.)autoTSSkey._key; 0 from 3.15, where a thread-local word is instead */
	uint32_t gil_bytes, gil_holder, gil_locked; /* struct _gil_runtime_state: its size, last_holder, locked */
	uint32_t recursion_limit;                   /* PyInterpreterState.ceval.recursion_limit; 0 before 3.11 */
	/*
	 * From 3.13, _PyRuntime begins with _Py_DebugOffsets (CPython
	 * Include/internal/pycore_runtime.h or pycore_debug_offsets.h): these are the places in
	 * _PyRuntime of the 64-bit words that hold walk[], the version and "free-threaded", and
	 * what other words must hold. 0 before 3.13.
	 */
	uint32_t walk_at[PY_WALK_CNT];
	uint32_t debug_version_at;
	uint32_t debug_free_threaded_at;
	struct {
		uint16_t at, value;
	} debug[PY_DEBUG_MAX]; /* ends at the first at == 0 */
};

/* The row of a minor version, or of its free-threaded build; or NULL. */
const struct py_internals *py_internals__find(int minor, bool free_threaded);
/* The row that a layout is from. */
const struct py_internals *py_internals__of(const struct py_layout *layout);
/* The layout of a minor version with a GIL, or NULL. */
const struct py_layout *py_layout__find(int minor);
bool py_layout__is_free_threaded(const struct py_layout *layout);

/*
 * ---- the layout of a CPython that the table does not have: a newer version, a pre-release, or one
 * that somebody changed. Only reads. ----
 */

#define PY_OFFSETS_WORDS 192 /* 3.15's has 111 */

/* From this minor version on, _PyRuntime begins with _Py_DebugOffsets. */
#define PY_MINOR_OFFSETS 13

/*
 * Takes a layout from the words of _Py_DebugOffsets, whose order of fields is of no known version,
 * by the shape of its sections. What they lack is as in `row`, the nearest version's; so is
 * layout.minor. walk[PY_WALK_TSTATE_THREAD] and _NATIVE stay 0, since shape alone does not tell
 * them: candidates[] gets the offsets at which the two may begin, the first that is 0 ends them.
 * 0, or -ENOTSUP when a section is not there, or not as BPF can read it.
 */
#define PY_OFFSETS_CANDIDATES 8
int py_offsets__parse(const uint64_t words[PY_OFFSETS_WORDS], const struct py_internals *row, struct py_internals *out,
		      uint32_t candidates[PY_OFFSETS_CANDIDATES]);

/*
 * Reads the table of the process, of minor version `minor`, free-threaded if `row` is, and lets its
 * threads tell what shape does not. The caller must check the layout against the process
 * (pycheck.h). 0; -ENOTSUP; or -errno.
 */
int py_offsets__read(pid_t pid, uint64_t runtime, int minor, const struct py_internals *row, struct py_internals *out);

/* Does the process say that it is a free-threaded build? Those before 3.13 have no such table. */
bool py_offsets__is_free_threaded(pid_t pid, uint64_t runtime);

#endif
