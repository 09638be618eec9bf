/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds torch in a process, and reads its process group. */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_TORCH_H
#define STEPFLAME_USER_RUNTIME_TORCH_TORCH_H

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

#endif
