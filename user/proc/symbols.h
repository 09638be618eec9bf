/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Describes the code at an instruction pointer as a text for reports. Nothing is guessed: an
 * address that no symbol covers gets only the name of its library. One thread owns a struct
 * symbols; memory is bounded (some 60 MB), whatever the targets map.
 */
#ifndef STEPFLAME_USER_PROC_SYMBOLS_H
#define STEPFLAME_USER_PROC_SYMBOLS_H

#include <stdint.h>
#include <sys/types.h>

#define SYMBOL_TEXT_MAX 280

struct symbols;

struct symbols *symbols__new(void); /* NULL: no memory */
void symbols__free(struct symbols *symbols);

/*
 * symbols__user returns "at::native::copy_ (libtorch_cpu.so)", "memcpy (libc.so.6)", "libcuda.so.1"
 * when no symbol names the function, "[jit]" (executable memory that is not an ELF file), "[vdso]",
 * or NULL: not mapped, or the process was gone before the first query. C++ names are without types
 * (demangle.h). UTF-8 without control characters, less than SYMBOL_TEXT_MAX bytes; valid until the
 * next call.
 */
const char *symbols__user(struct symbols *symbols, pid_t pid, uint64_t ip);

/*
 * The mangled name, cut to size, of the function that begins at that address. 0, -ENOENT when no
 * named function begins there, or -errno.
 */
int symbols__function(struct symbols *symbols, pid_t pid, uint64_t address, char *mangled, size_t size);

/* Call this when the process ended, or called exec: drops its cached mappings. */
void symbols__forget(struct symbols *symbols, pid_t pid);

#endif
