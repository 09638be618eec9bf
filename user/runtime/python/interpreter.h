/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known about the CPython interpreter in a process; python.h finds it. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_INTERPRETER_H
#define STEPFLAME_USER_RUNTIME_PYTHON_INTERPRETER_H

#include <stdbool.h>
#include <stdint.h>

#include "include/python.h"
#include "user/proc/process.h"
#include "user/runtime/python/pygc.h"
#include "user/runtime/python/pylayout.h"

/* Functions by vaddr in the interpreter's file; 0 when not found. */
struct py_functions {
	uint64_t next;     /* builtin_next(self, args, nargs) */
	uint64_t throw_;   /* gen_throw(gen, ...), of PyGen_Type's methods */
	uint64_t iternext; /* slot_tp_iternext(self) */
	uint64_t eval;     /* _PyEval_EvalFrameDefault(tstate, frame, throwflag) */
	struct py_gc gc;   /* gc.callback 0: not found */
};

struct python {
	const struct mapped_file *file; /* in the caller's struct process: libpython, or the static executable */
	char version[16];               /* "3.11.7" */
	char build_id[64];
	uint64_t bias; /* address = bias + vaddr */
	struct py_functions functions;
	struct py_process process;  /* what the BPF side needs */
	uint64_t runtime;           /* address of _PyRuntime */
	uint32_t walk[PY_WALK_CNT]; /* from `runtime` to the threads (pythread.h), as this process has the offsets */
	/* not laid out as the built-in table has it: read from its own table, or of a version that is newer (pyoffsets.h) */
	bool tried;
	bool started; /* the process had an interpreter; else facts that come from threads are still missing */
};

#endif
