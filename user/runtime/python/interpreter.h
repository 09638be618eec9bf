/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known about the CPython interpreter in a process; python.h finds it. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_INTERPRETER_H
#define STEPFLAME_USER_RUNTIME_PYTHON_INTERPRETER_H

#include <stdbool.h>
#include <stdint.h>

#include "include/python.h"
#include "user/elf/elf.h"
#include "user/proc/process.h"
#include "user/runtime/python/pylayout.h"

/* Where CPython reports that it collects garbage. */
struct py_gc {
	uint64_t callback; /* vaddr of invoke_gc_callback(..., phase, generation, ...) */
	uint64_t start;    /* vaddr of the text "start" that it gets as phase; bits 0-11 differ from those of "stop" */
	bool phase_first;  /* phase is its first argument, else its second */
};

/*
 * Finds invoke_gc_callback, a static function, in an interpreter, stripped or not: PyGC_Collect, or
 * a function that it calls, calls it with "start" and again with "stop". (CPython 3.8 to 3.12
 * Modules/gcmodule.c, from 3.13 Python/gc.c.) 0, -ENOENT, or -errno of flow__new.
 */
int py_gc__find(const struct elf *elf, struct py_gc *out);

/* Functions by vaddr in the interpreter's file; 0 when not found. */
struct py_functions {
	uint64_t next;     /* builtin_next(self, args, nargs) */
	uint64_t throw_;   /* gen_throw(gen, ...), of PyGen_Type's methods */
	uint64_t iternext; /* slot_tp_iternext(self) */
	uint64_t eval;     /* _PyEval_EvalFrameDefault(tstate, frame, throwflag) */
	uint64_t code_end; /* code_dealloc(code), of PyCode_Type's slots */
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
	/* not laid out as the built-in table has it: read from its own table, or of a version that is newer (pylayout.h) */
	bool tried;
	bool started; /* the process had an interpreter; else facts that come from threads are still missing */
};

#endif
