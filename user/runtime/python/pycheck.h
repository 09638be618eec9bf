/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Checks what was found of a CPython against the live process. Only reads; the process runs on, so
 * what changes is read again.
 */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYCHECK_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYCHECK_H

#include <stdint.h>
#include <sys/types.h>

#include "user/elf/elf.h"
#include "user/runtime/python/interpreter.h"

struct py_check {
	const struct process *process;
	const struct python *python; /* complete but for the check */
	const struct elf *elf;
	const struct py_internals *internals;
	uint64_t unicode_type; /* address of PyUnicode_Type */
	uint64_t until_ns;     /* of deputy__cpu_ns; py_check__process sets its own */
};

/*
 * From 3.13: checks that _Py_DebugOffsets at the start of _PyRuntime is of this version and agrees
 * with the table. 0 (also before 3.13), -ENOTSUP when they differ, or -errno.
 */
int py_check__debug_offsets(pid_t pid, uint64_t runtime, const struct py_internals *internals);

/*
 * All other checks that python.h lists. 0, -ENOTSUP on a contradiction, or -errno when the memory
 * cannot be read. A layout that nobody knows (python->tried) needs a thread that runs Python, and
 * whose frames make sense.
 */
int py_check__process(const struct py_check *check);

#endif
