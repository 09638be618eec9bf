/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the CPython interpreter in a process: its file, version, layout, and the functions on which
 * landmarks sit.
 */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYTHON_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYTHON_H

#include "user/elf/elf.h"
#include "user/runtime/python/interpreter.h"

/*
 * Finds CPython among the mapped files (the executable before a libpython3.x), its exact version
 * (Py_Version, or the text that Py_GetVersion formats), layout, functions and thread state. *elf
 * (may be NULL) receives the opened file, which the caller frees; NULL on error. 0; -ENOENT no
 * CPython there; -ELIBACC its file may not be read; -EOPNOTSUPP a version outside the table that
 * has no table of its own that can be read (pylayout.h), a free-threaded build, or another Python,
 * whose name is then the version ("PyPy"); -ENOTSUP the live process contradicts the table; or
 * -errno. On an error `out` has the version alone. A function, thread state, tss_offset or GIL that
 * is not found is not an error, but 0 or PY_TSTATE_UNKNOWN.
 *
 * The check against the live process: PyGen_Type's and PyUnicode_Type's tp_name read "generator"
 * and "str"; the `next` found is the one in the process; where a thread runs Python, its thread
 * state leads to frames whose code objects have readable names and a line table, and its
 * thread-local word (reached through its thread_id, which is its thread pointer) holds that state
 * or nothing; from 3.13, _Py_DebugOffsets agree, or have the layout (out->tried).
 */
int python__find(const struct process *process, struct python *out, struct elf **elf);

/* Is there a Python that cannot be read? err: of python__find; -ETIMEDOUT: nothing of the process can. */
bool python__is_unreadable(int err);

/* What is not recorded of such a process, and what is. */
#define PYTHON_REFUSED                                                                               \
	"no Python stacks, functions, actions or collections; labels, operators, steps, waits, I/O " \
	"and GPU calls are there"

/* Of python->tried, in words that follow the version. */
#define PYTHON_TRIED                                                                                        \
	"is laid out as no version that this stepflame knows: it is read by its own table, with which its " \
	"threads agree"

/* Can it be recorded all the same? Of one without torch or JAX that takes a CPython (`version`). */
bool python__is_dispensable(int err, bool has_framework, const char *version);

/*
 * Writes what an error of python__find means for the process, in the same words for all commands;
 * returns the remedy, or NULL when there is none. version may be "".
 */
#define PYTHON_WHY_BYTES 256
const char *python__explain(int err, pid_t pid, const char *comm, const char *version, char why[PYTHON_WHY_BYTES]);

#endif
