/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the GPU did in a process that has the injection library, in windows of CUPTI's: those of the schedule, or one as
 * long as the recording. Goes to the session as REC_NAME, REC_GPU_ACTIVITY, REC_GPU_DEVICE and REC_GPU_WINDOW; what
 * REC_GPU says of it is put into the target.
 */
#ifndef STEPFLAME_USER_SESSION_GPU_CUPTI_H
#define STEPFLAME_USER_SESSION_GPU_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

struct session;
struct rec_gpu_window;
struct target;
struct gpu_cupti;

/* Some times a second, while the session is open: finds rings, starts windows, reads. */
void gpu_cupti__tend(struct session *s);
/* At one of the schedule's, as BPF says: the warm-up, the first step or the end of a window. */
void gpu_cupti__boundary(struct session *s, const struct rec_gpu_window *rec);
/* REC_GPU_WINDOW of those that are open. */
void gpu_cupti__snapshot(struct session *s);
/* All windows of a schedule with an end have passed. */
bool gpu_cupti__done(const struct session *s, const struct target *t);
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
