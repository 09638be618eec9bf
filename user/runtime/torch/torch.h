/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds torch in a process. */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_TORCH_H
#define STEPFLAME_USER_RUNTIME_TORCH_TORCH_H

#include "user/proc/process.h"

/* The mapped libtorch_cpu, or NULL. */
const struct mapped_file *torch__file(const struct process *process);

/* The version in torch/version.py beside the library ("2.15.0+cpu"), "" when not found. */
void torch__version(const struct process *process, const struct mapped_file *libtorch, char *version, size_t size);

/* Is the process a worker of a torch DataLoader, by the name that torch gives to workers? */
bool torch__is_worker(const struct process *process);

#endif
