/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds where a torch stores the fields of a tensor that stepflame reads. */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_TENSOR_H
#define STEPFLAME_USER_RUNTIME_TORCH_TENSOR_H

#include <stdint.h>

#include "user/elf/elf.h"

/*
 * Bytes from the start of a c10::TensorImpl to its sizes, in the torch of this libtorch_cpu. Read
 * from the operators' code: each operator first reads the key set of its tensors, whose distance
 * from the sizes has been the same since 1.13 (c10/core/TensorImpl.h). 0 or -ENOENT.
 */
int tensor__sizes_offset(const struct elf *elf, uint32_t *offset);

#endif
