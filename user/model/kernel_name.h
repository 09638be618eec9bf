/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_KERNEL_NAME_H
#define STEPFLAME_KERNEL_NAME_H

/*
 * The name of a kernel for people, of a mangled one that may be hostile. Torch has hundreds of kernels that differ in
 * their template arguments alone, so that these are not left out as demangle.h does, but told by their first names:
 * "at::native::reduce_kernel<ReduceOp func_wrapper_t sum_functor ...>". malloc'ed; NULL: no memory.
 */
char *kernel_name__for_people(const char *mangled);

#endif
