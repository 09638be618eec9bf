/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Readable names of C++ functions, from symbols that may be hostile. A full demangler writes out
 * all types, and a symbol of a few hundred bytes can expand to gigabytes; this one leaves the types
 * out.
 */
#ifndef STEPFLAME_USER_ELF_DEMANGLE_H
#define STEPFLAME_USER_ELF_DEMANGLE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * "_ZN2at6native12_GLOBAL__N_110cpu_kernelIfEEvRKNS_6TensorE" to "at::native::(anonymous
 * namespace)::cpu_kernel<...>": without arguments, return type and suffixes of the compiler's
 * clones (".cold"); template arguments become <...>. Cut to `size`, 0-terminated. A lambda is
 * {lambda#2}, an unnamed type {unnamed#1}, a conversion "operator cast". Returns false when the
 * symbol is not a C++ function, or has an unknown form.
 */
bool demangle__name(const char *mangled, char *out, size_t size);

#endif
