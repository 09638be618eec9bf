/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds out, from outside, on which object a Python thread waits that waits in a method of C. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYAWAITED_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYAWAITED_H

#include <stdint.h>
#include <sys/types.h>

#include "include/python.h"
#include "include/wait_records.h"

struct py_awaited {
	uint64_t code;   /* address of the code object of the innermost Python frame */
	uint32_t offset; /* of its current instruction */
	enum awaited_kind on;
	uint64_t lock; /* address of the object of AWAITED_ACQUIRE; else 0 */
};

/*
 * Reads what the thread state's innermost Python frame calls. The thread must wait meanwhile, which
 * the caller checks. 0, -ENOENT: it has no such frame, or -errno.
 */
int py_awaited__read(pid_t pid, const struct py_process *py, uint64_t tstate, struct py_awaited *out);

/*
 * The file, the name (as in struct py_frame) and the first line of that code object; the texts are
 * malloc'ed, NULL after an error. 0 or -errno.
 */
int py_awaited__name(pid_t pid, const struct py_process *py, uint64_t code, char **file, char **name,
		     uint32_t *first_line);

#endif
