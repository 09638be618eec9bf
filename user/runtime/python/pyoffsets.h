/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The layout of a CPython that the built-in table (pylayout.h) does not have: a newer version, a
 * pre-release, or one that somebody changed. Only reads.
 */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYOFFSETS_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYOFFSETS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/runtime/python/pylayout.h"

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
