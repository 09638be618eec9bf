/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_MODEL_GPU_JOIN_H
#define STEPFLAME_USER_MODEL_GPU_JOIN_H

#include "user/model/gpu.h"

/*
 * Sets asked_by, call and is_comm of the activities. Activities and calls must be sorted. 0 or
 * -ENOMEM.
 */
int gpu_join__all(struct gpu *gpu, const struct names *names);

#endif
