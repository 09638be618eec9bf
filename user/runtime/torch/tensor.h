/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a torch keeps what is read of a tensor. */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_TENSOR_H
#define STEPFLAME_USER_RUNTIME_TORCH_TENSOR_H

#include <stdint.h>

#include "user/elf/elf.h"

/*
 * Bytes from the start of a c10::TensorImpl to its sizes, in the torch that this libtorch_cpu belongs to. Read from the
 * operators' code: each reads the key set of its tensors first, whose distance from the sizes has been the same
 * since 1.13 (c10/core/TensorImpl.h). 0 or -ENOENT.
 */
int tensor__sizes_offset(const struct elf *elf, uint32_t *offset);

#endif
