/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_ELF_KERNEL_NAME_H
#define STEPFLAME_USER_ELF_KERNEL_NAME_H

#include <stddef.h>

/*
 * A readable name of a CUDA kernel, from a mangled one that may be hostile. Hundreds of torch's
 * kernels differ only in their template arguments, so this function does not drop the arguments as
 * demangle.h does, but prints their first names: "at::native::reduce_kernel<ReduceOp func_wrapper_t
 * sum_functor ...>". malloc'ed; NULL: no memory.
 */
char *kernel_name__for_people(const char *mangled);

/*
 * A kernel's name as it goes into a recording: the mangled name when it fits. A cut mangled name
 * could be neither read nor distinguished from others (a sixth of those in torch 2.15 are longer
 * than 512 bytes), so a longer one becomes the readable name and a hash of the whole:
 * "cutlass::device_kernel<GemmUniversal ...> #90abf3d1". Cut to `size`, 0-terminated.
 */
void kernel_name__to_keep(const char *mangled, char *out, size_t size);

#endif
