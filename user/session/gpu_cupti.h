/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the GPU did in a process that has the injection library: a window of CUPTI's as long as the recording. Goes to
 * the session as REC_NAME, REC_GPU_ACTIVITY and REC_GPU_DEVICE; what REC_GPU says of it is told here.
 */
#ifndef STEPFLAME_SESSION_GPU_CUPTI_H
#define STEPFLAME_SESSION_GPU_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

#include "../../include/gpu.h"

struct session;
struct target;
struct gpu_cupti;

/* As in struct rec_gpu. */
struct gpu_cupti_told {
	enum gpu_tier tier; /* GPU_TIER_CUPTI, or GPU_TIER_NONE: `why` says what is in the way */
	uint64_t cupti_ns;
	uint64_t lost;
	uint32_t cupti_version;
	char why[96];
};

/* Some times a second, while the session is open: finds rings, starts windows, reads. */
void gpu_cupti__tend(struct session *s);
/* Ends all windows, and reads what still comes, for some seconds at most. */
void gpu_cupti__close(struct session *s);
/* What is known of one process until now. */
void gpu_cupti__told(const struct target *t, struct gpu_cupti_told *out);
/* Of all processes: activities that CUPTI lost, that found no room in the ring, and that could not be read or timed. */
void gpu_cupti__losses(const struct session *s, uint64_t *dropped, uint64_t *full, uint64_t *bad);
/* It called exec: what its ring still has is read, and another one may come. */
void gpu_cupti__forget(struct session *s, struct target *t);
void gpu_cupti__free(struct gpu_cupti *g); /* accepts NULL */

#endif
