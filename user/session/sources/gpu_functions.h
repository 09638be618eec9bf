/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the probes on a file's CUDA and NCCL functions: bpf/gpu.bpf.c. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_FUNCTIONS_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_FUNCTIONS_H

#include <stdbool.h>

#include "user/session/probe_list.h"

/*
 * Adds the probes of a file, stripped or not: exits and entries to separate lists, since exits
 * attach first. Returns how many functions can be traced, or -ENOMEM; skips functions on which no
 * probe can be placed.
 */
int gpu_functions__add(const struct elf *elf, struct probe_list *ends, struct probe_list *begins);

/*
 * The same, from the cache if possible: sets[0] gets the exits, sets[1] the entries. 0 or -ENOMEM.
 */
int gpu_functions__find(const struct elf *elf, struct probe_list sets[2]);

/* Removes all probes but those on waits for the GPU from such a list. */
void gpu_functions__keep_waits(struct probe_list *list);

#endif
