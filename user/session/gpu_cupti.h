/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the GPU did in a process that has the injection library: a window of CUPTI's as long as the recording. Goes to
 * the session as REC_NAME, REC_GPU_ACTIVITY and REC_GPU_DEVICE; what REC_GPU says of it is put into the target.
 */
#ifndef STEPFLAME_SESSION_GPU_CUPTI_H
#define STEPFLAME_SESSION_GPU_CUPTI_H

#include <stdint.h>

struct session;
struct target;
struct gpu_cupti;

/* Some times a second, while the session is open: finds rings, starts windows, reads. */
void gpu_cupti__tend(struct session *s);
/* Ends all windows, */
void gpu_cupti__stop(struct session *s);
/* and reads what still comes, for some seconds at most. */
void gpu_cupti__close(struct session *s);
/* Of all processes: activities that CUPTI lost, that found no room in the ring, and that could not be read or timed. */
struct gpu_cupti_losses {
	uint64_t dropped, full, bad;
};

void gpu_cupti__losses(const struct session *s, struct gpu_cupti_losses *out);
/* It called exec: what its ring still has is read, and another one may come. */
void gpu_cupti__forget(struct session *s, struct target *t);
void gpu_cupti__free(struct gpu_cupti *g); /* accepts NULL */

#endif
