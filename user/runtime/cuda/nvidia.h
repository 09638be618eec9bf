/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What NVIDIA's kernel driver says of itself in /proc/driver/nvidia. No state. */
#ifndef STEPFLAME_USER_RUNTIME_CUDA_NVIDIA_H
#define STEPFLAME_USER_RUNTIME_CUDA_NVIDIA_H

#include <stddef.h>
#include <stdio.h>

#define NVIDIA_VERSION "/proc/driver/nvidia/version"
#define NVIDIA_PARAMS  "/proc/driver/nvidia/params"

/* The driver's version ("555.42.06") of its file `version`, cut to size. 0 or -ENODATA: there is none in it. */
int nvidia__version(FILE *file, char *version, size_t size);
/*
 * Of its file `params`: 1: profiling is for administrators, 0: for all, -ENODATA: it does not say. The option
 * NVreg_RestrictProfilingToAdminUsers is told under that name or, of newer drivers, as RmProfilingAdminOnly.
 */
int nvidia__restricts_profiling(FILE *file);

#endif
