/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What two sources know of a process's GPU: calls (gpu.c), and what CUPTI says (cupti.c). Used by them only. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_H

#include "include/gpu_records.h"
#include "user/session/state.h"

/* Of a target: what its REC_GPU says. */
struct gpu_target {
	bool seen;     /* it has mapped functions of CUDA or NCCL, and they are watched; or CUPTI told of it */
	uint32_t tier; /* as in struct rec_gpu, as all below */
	uint32_t cupti_version;
	uint64_t cupti_ns, lost;
	char why[96];
};

static inline struct gpu_target *gpu__of(const struct target *t)
{
	return target__state(t, SOURCE_GPU);
}

/* From now on each call of the process is emitted (REC_GPU_CALL), or no more. 0 or -errno. */
int gpu__emit_calls(struct session *s, const struct target *t, bool each);

#endif
