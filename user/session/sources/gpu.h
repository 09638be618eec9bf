/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State of a process's GPU that two sources share: gpu.c for the calls, cupti.c for the activity.
 * Private to them.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_H

#include "include/gpu_records.h"
#include "user/session/state.h"

/* Per target: the contents of its REC_GPU. */
struct gpu_target {
	bool seen;     /* stepflame probes its calls, or CUPTI has reported activity */
	uint32_t tier; /* this and all below: as in struct rec_gpu */
	uint32_t cupti_version;
	uint64_t cupti_ns, lost;
	char why[96];
};

static inline struct gpu_target *gpu__of(const struct target *t)
{
	return target__state(t, SOURCE_GPU);
}

/*
 * Makes BPF emit each call of the process from now on (REC_GPU_CALL), or stop doing so. 0 or
 * -errno.
 */
int gpu__emit_calls(struct session *s, const struct target *t, bool each);

#endif
