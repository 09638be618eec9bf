/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads facts from the machine code of getters, small functions that CPython or torch exports:
 * which thread-local word a getter returns, which version it names.
 */
#ifndef STEPFLAME_USER_PROC_GETTER_H
#define STEPFLAME_USER_PROC_GETTER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/python.h"
#include "user/elf/elf.h"

/*
 * A thread-local word: *(u64 *)(dtv[module] + offset), glibc's dtv as in enum py_tstate_where, or
 * with module 0 *(u64 *)(thread pointer + (s64)offset).
 */
struct thread_word {
	uint32_t module;
	uint64_t offset;
};

/*
 * Finds the word that the exported function `getter` returns; a stripped file does not name the
 * word. Follows the function's code to the load, by any of the TLS models of the x86-64 ABI
 * (local-exec, initial-exec, local and general dynamic, TLS descriptors). Words that the loader
 * filled in are read from process pid, where the file is mapped with load bias `bias`. 0, or
 * -ENOENT when there is no such function, or its code was not understood.
 */
int getter__thread_word(const struct elf *elf, pid_t pid, uint64_t bias, const char *getter, struct thread_word *out);

/*
 * Finds the current thread state, which from 3.12 is the thread-local variable _Py_tss_tstate
 * (CPython Python/pystate.c). Sets tstate_where, tls_module and tstate_address. 0, or -ENOENT when
 * no function that returns it was understood.
 */
int getter__tstate(const struct elf *elf, pid_t pid, uint64_t bias, struct py_process *out);

/* The "3.x.y" text that Py_GetVersion of CPython up to 3.10 formats, 0-terminated. 0 or -ENOENT. */
int getter__version(const struct elf *elf, pid_t pid, uint64_t bias, char *version, size_t size);

#endif
