/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Readable names of C++ functions and of CUDA kernels, from symbols that may be hostile. A full
 * demangler writes out all types, and a symbol of a few hundred bytes can expand to gigabytes; this
 * one leaves the types out.
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

/*
 * A readable name of a CUDA kernel, from a mangled one that may be hostile. Hundreds of torch's
 * kernels differ only in their template arguments, so this function does not drop the arguments, but
 * prints their first names: "at::native::reduce_kernel<ReduceOp func_wrapper_t sum_functor ...>".
 * malloc'ed; NULL: no memory.
 */
char *demangle__kernel(const char *mangled);

/*
 * A kernel's name as it goes into a recording: the mangled name when it fits. A cut mangled name
 * could be neither read nor distinguished from others (a sixth of those in torch 2.15 are longer
 * than 512 bytes), so a longer one becomes the readable name and a hash of the whole:
 * "cutlass::device_kernel<GemmUniversal ...> #90abf3d1". Cut to `size`, 0-terminated.
 */
void demangle__kernel_to_keep(const char *mangled, char *out, size_t size);

#endif
