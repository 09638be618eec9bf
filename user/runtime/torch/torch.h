/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds torch in a process, and what one has to know of it: its version, its process group, its tensors. */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_TORCH_H
#define STEPFLAME_USER_RUNTIME_TORCH_TORCH_H

#include "user/elf/elf.h"
#include "user/proc/process.h"
#include "user/runtime/python/interpreter.h"

/* The mapped libtorch_cpu, or NULL. */
const struct mapped_file *torch__file(const struct process *process);

/* The version in torch/version.py beside the library ("2.15.0+cpu"), "" when not found. */
void torch__version(const struct process *process, const struct mapped_file *libtorch, char *version, size_t size);

/* Is the process a worker of a torch DataLoader, by the name that torch gives to workers? */
bool torch__is_worker(const struct process *process);

/* ---- the process group of torch.distributed ---- */

struct process_group {
	int rank, size;
};

/*
 * Reads the rank of the process in the group of all processes, and that group's size. 0; -ENOENT:
 * there is no group, or none that is laid out as expected; or -errno.
 */
int process_group__read(pid_t pid, const struct python *python, struct process_group *out);

/* ---- where a torch stores the fields of a tensor that stepflame reads ---- */

/*
 * Bytes from the start of a c10::TensorImpl to its sizes, in the torch of this libtorch_cpu. Read
 * from the operators' code: each operator first reads the key set of its tensors, whose distance
 * from the sizes has been the same since 1.13 (c10/core/TensorImpl.h). 0 or -ENOENT.
 */
int torch__sizes_offset(const struct elf *elf, uint32_t *offset);

#endif
