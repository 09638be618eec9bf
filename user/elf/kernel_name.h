/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_ELF_KERNEL_NAME_H
#define STEPFLAME_USER_ELF_KERNEL_NAME_H

#include <stddef.h>

/*
 * The name of a kernel for people, of a mangled one that may be hostile. Torch has hundreds of kernels that differ in
 * their template arguments alone, so that these are not left out as demangle.h does, but told by their first names:
 * "at::native::reduce_kernel<ReduceOp func_wrapper_t sum_functor ...>". malloc'ed; NULL: no memory.
 */
char *kernel_name__for_people(const char *mangled);

/*
 * A kernel's name as a recording keeps it: the mangled one, or where that has no room, which would leave some that cannot be
 * read nor told from each other (a sixth of those in torch 2.15 are longer than 512 bytes), the one for people and a hash of
 * the whole: "cutlass::device_kernel<GemmUniversal ...> #90abf3d1". Cut to `size`, 0-terminated.
 */
void kernel_name__to_keep(const char *mangled, char *out, size_t size);

#endif
