/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the machine code of small functions that CPython exports tells: where its thread state is, which version it is.
 */
#ifndef STEPFLAME_TARGET_PYCODE_H
#define STEPFLAME_TARGET_PYCODE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../include/python.h"
#include "elf.h"

/*
 * From 3.12 the current thread state is the thread-local variable _Py_tss_tstate (CPython Python/pystate.c), which a
 * stripped file does not name. Follows the code of _PyThreadState_GetCurrent or its like to the load of it, by any of
 * the TLS models of the x86-64 ABI (local-exec, initial-exec, local and general dynamic, TLS descriptors); words that
 * the loader filled in are read from process pid, where the file is mapped with load bias `bias`. Sets tstate_where,
 * tls_module and tstate_address. 0, or -ENOENT when no such function was understood.
 */
int py_code__tstate(const struct elf *elf, pid_t pid, uint64_t bias, struct py_process *out);

/* The "3.x.y" text that Py_GetVersion of CPython up to 3.10 formats, 0-terminated. 0 or -ENOENT. */
int py_code__version(const struct elf *elf, pid_t pid, uint64_t bias, char *version, size_t size);

#endif
