/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Identifies the functions of CUDA and NCCL that include/gpu.h lists, by their symbols. No state. */
#ifndef STEPFLAME_USER_RUNTIME_CUDA_CUDA_H
#define STEPFLAME_USER_RUNTIME_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "include/gpu.h"
#include "user/proc/process.h"

/*
 * The function that a symbol stands for: the symbol is its name, perhaps with the suffixes _v2 or
 * _v3 (a later version of it) and _ptds or _ptsz (with a default stream per thread). GPU_API_NONE:
 * not listed.
 */
enum gpu_api cuda__api(const char *symbol);

/* The same for the functions that return handles: enum gpu_handle_from, or -1. */
int cuda__handle_from(const char *symbol);

const char *cuda__name(enum gpu_api api); /* "" for GPU_API_NONE */
enum gpu_class cuda__class(enum gpu_api api);
bool cuda__is_of_runtime(enum gpu_api api); /* the runtime calls the driver */

/* Is the file, by its name, the driver, the runtime or NCCL? */
bool cuda__is_library(const char *path);

/*
 * The libraries of that kind that a process has mapped, "libcudart.so.12, libcuda.so.1", cut to
 * size; "" without such a library.
 */
void cuda__libraries(const struct process *process, char *text, uint32_t size);

/* ---- what NVIDIA's kernel driver reports in /proc/driver/nvidia ---- */

#define NVIDIA_VERSION "/proc/driver/nvidia/version"
#define NVIDIA_PARAMS  "/proc/driver/nvidia/params"

/*
 * The driver's version ("555.42.06") from its file `version`, cut to size. 0 or -ENODATA when the
 * file has none.
 */
int nvidia__version(FILE *file, char *version, size_t size);
/*
 * From the driver's file `params`: 1: only administrators may profile, 0: all may, -ENODATA: the
 * file does not say. The file has the option NVreg_RestrictProfilingToAdminUsers under that name
 * or, from newer drivers, as RmProfilingAdminOnly.
 */
int nvidia__restricts_profiling(FILE *file);

#endif
