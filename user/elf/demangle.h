/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The name of a C++ function, for people, of a symbol that may be hostile. A whole demangler writes out all types, and
 * a symbol of a few hundred bytes can make them gigabytes long; here they are left out.
 */
#ifndef STEPFLAME_USER_ELF_DEMANGLE_H
#define STEPFLAME_USER_ELF_DEMANGLE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * "_ZN2at6native12_GLOBAL__N_110cpu_kernelIfEEvRKNS_6TensorE" to "at::native::(anonymous namespace)::cpu_kernel<...>":
 * no arguments, no return type, template arguments as <...>, suffixes of the compiler's clones (".cold") dropped; cut
 * to `size`, 0-terminated. A lambda is {lambda#2}, a type without a name {unnamed#1}, a conversion "operator cast".
 * false: not a C++ function, or of a form that is not understood.
 */
bool demangle__name(const char *mangled, char *out, size_t size);

#endif
