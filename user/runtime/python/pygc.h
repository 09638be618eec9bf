/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds where CPython reports that it collects garbage. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYGC_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYGC_H

#include <stdbool.h>
#include <stdint.h>

#include "user/elf/elf.h"

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

#endif
