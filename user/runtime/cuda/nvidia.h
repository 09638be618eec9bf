/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads what NVIDIA's kernel driver reports in /proc/driver/nvidia. No state. */
#ifndef STEPFLAME_USER_RUNTIME_CUDA_NVIDIA_H
#define STEPFLAME_USER_RUNTIME_CUDA_NVIDIA_H

#include <stddef.h>
#include <stdio.h>

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
