/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the process group of torch.distributed in a live process. */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_PROCESS_GROUP_H
#define STEPFLAME_USER_RUNTIME_TORCH_PROCESS_GROUP_H

#include "user/runtime/python/interpreter.h"

struct process_group {
	int rank, size;
};

/*
 * Reads the rank of the process in the group of all processes, and that group's size. 0; -ENOENT:
 * there is no group, or none that is laid out as expected; or -errno.
 */
int process_group__read(pid_t pid, const struct python *python, struct process_group *out);

#endif
