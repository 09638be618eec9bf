/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Probes on the functions of CUDA and NCCL that a file holds: bpf/gpu.bpf.c. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_FUNCTIONS_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_FUNCTIONS_H

#include <stdbool.h>

#include "user/session/probe_list.h"

/*
 * Adds those of a file, stripped or not: ends and beginnings to lists of their own, for they are armed one after the
 * other. Returns how many functions can be watched, or -ENOMEM; what no probe can be placed on is left out.
 */
int gpu_functions__add(const struct elf *elf, struct probe_list *ends, struct probe_list *begins);

/* The same, from the cache where they are there: sets[0] the ends, sets[1] the beginnings. 0 or -ENOMEM. */
int gpu_functions__find(const struct elf *elf, struct probe_list sets[2]);

/* Leaves of such a list the waits for the GPU alone. */
void gpu_functions__keep_waits(struct probe_list *list);

#endif
