/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steps and the GPU: what a step asked for, as the probes counted it, and how long the GPUs of its process worked
 * while it lasted, as CUPTI saw it, whoever asked for that.
 */
#ifndef STEPFLAME_USER_ANALYSIS_GPU_STEPS_H
#define STEPFLAME_USER_ANALYSIS_GPU_STEPS_H

#include "user/analysis/gpu_time.h"
#include "user/analysis/steps.h"
#include "user/model/gpu.h"

struct gpu_step {
	size_t told; /* steps of which the calls are known: 0 or 1; in a sum their count */
	uint64_t launches, copies, copied_bytes;
	uint64_t api_ns, sync_ns; /* in calls, but for waits; in waits */
	uint64_t watched_ns;      /* of the step: that CUPTI was at work in */
	uint64_t busy_ns;         /* of these: that GPUs worked in; of several the mean */
};

struct gpu_steps {
	struct gpu_step *steps; /* of the track's, in their order; NULL: the process has no CUDA, and all is empty */
	struct gpu_step all, slow;
	uint64_t kernels, kernel_ns; /* that began in steps: kernels and graphs, and their time */
};

/* time: of the job that gpu is of. 0 or -ENOMEM. Free with gpu_steps__release. */
int gpu_steps__new(const struct gpu *gpu, const struct gpu_time *time, const struct step_track *track,
		   struct gpu_steps *out);
void gpu_steps__release(struct gpu_steps *gpu);

/*
 * What the probes counted between the boundaries in a step, of which all have to be there; false: not known. *at: 0 for the
 * first step of a track, then as it was left.
 */
bool gpu_step__calls(const struct gpu *gpu, const struct step_track *track, const struct step *step, size_t *at,
		     struct gpu_step *out);

/* Did CUPTI see all of a step, or of most of the time of several? Its windows are known to the millisecond. */
bool gpu_step__is_watched(const struct gpu_step *step, uint64_t step_ns);
/* Share of the time watched, 0 to 1; 0 where none was. */
double gpu_step__busy(const struct gpu_step *step);

#endif
