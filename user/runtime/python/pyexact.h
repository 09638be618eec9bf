/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds where every call of a Python function begins and ends. Up to CPython 3.10, each call enters
 * and leaves _PyEval_EvalFrameDefault. From 3.11, calls between Python functions stay inside it,
 * unless the interpreter's eval_frame is set: then every call passes one of the few places that
 * call through that pointer, and its end is seen there. From 3.12, some of these places jump
 * instead of calling, so the end of a call is also where its frame is cleared.
 */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYEXACT_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYEXACT_H

#include "user/runtime/python/python.h"
#include "user/x86/sites.h"

#define PY_EXACT_CALLERS 64 /* Debian's 3.11 has 17 */
#define PY_EXACT_WORDS   16 /* interpreters of a process */

struct py_exact {
	struct site begin; /* in _PyEval_EvalFrameDefault(tstate, frame, throwflag) */
	struct site end;   /* up to 3.10: in the same function, before its last call */
	/* From 3.11. */
	uint32_t word_offset; /* of PyInterpreterState.eval_frame; 0 up to 3.10 */
	uint64_t eval;        /* vaddr of _PyEval_EvalFrameDefault */
	uint32_t returned_cnt;
	struct site returned[PY_EXACT_CALLERS]; /* after calls through the pointer; depth: the call's own frame, -8 */
	/* From 3.12: entry of the function that clears a frame. */
	struct site clear;
	bool clear_second; /* the frame is its second argument, not the first */
};

/*
 * Finds the sites in the interpreter's file. 0; -ENOTSUP with *why set (static text): a site is
 * missing, or the kernel would single-step it, at some ten times the cost.
 */
int py_exact__find(const struct elf *elf, const struct python *python, struct py_exact *out, const char **why);

/* sys.getrecursionlimit() in the process, from CPython 3.11; -1: not known. */
int py_exact__recursion_limit(const struct process *process, const struct python *python);

/*
 * How many calls deep a Python function may recurse while eval_frame is set, before CPython 3.12 or
 * later raises RecursionError: in 3.12 and 3.13 each call then takes two of the C recursion limit,
 * which this reads from the thread states. -1: not known, or there is no such limit.
 */
int py_exact__safe_depth(const struct process *process, const struct python *python);

/*
 * Addresses of the eval_frame word in each interpreter of the process, at most PY_EXACT_WORDS.
 * Count (0: no interpreter yet), or -errno.
 */
int py_exact__words(const struct process *process, const struct python *python, uint32_t word_offset,
		    uint64_t words[PY_EXACT_WORDS]);

#endif
