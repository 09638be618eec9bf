/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steps and the GPU: what each step asked for, as the probes counted it, and how long the GPUs of
 * its process worked during the step, as CUPTI saw it, whoever asked for the work.
 */
#ifndef STEPFLAME_USER_ANALYSIS_GPU_GPU_STEPS_H
#define STEPFLAME_USER_ANALYSIS_GPU_GPU_STEPS_H

#include "user/analysis/gpu/gpu_time.h"
#include "user/analysis/steps/steps.h"
#include "user/model/gpu.h"

struct gpu_step {
	size_t known; /* steps whose calls are known: 0 or 1; in a sum, their number */
	uint64_t launches, copies, copied_bytes;
	uint64_t api_ns, sync_ns; /* in calls except waits; in waits */
	uint64_t watched_ns;      /* time of the step that CUPTI watched */
	uint64_t busy_ns;         /* part of watched_ns in which GPUs worked; the mean of several GPUs */
	uint64_t profiling_ns;    /* what its thread lost to CUPTI, as CUPTI reports it */
};

struct gpu_steps {
	struct gpu_step
		*steps; /* one for each step of the track; NULL: the process does not use CUDA, and all is empty */
	struct gpu_step all, slow;
	uint64_t kernels, kernel_ns; /* kernels and graphs that began in steps, and their time */
};

/* time: of the same job as gpu. 0 or -ENOMEM. Free with gpu_steps__release. */
int gpu_steps__new(const struct gpu *gpu, const struct gpu_time *time, const struct step_track *track,
		   struct gpu_steps *out);
void gpu_steps__release(struct gpu_steps *gpu);

/*
 * Adds up what the probes counted between the boundaries in a step; false: a boundary is missing,
 * so the counts are not known. Set *at to 0 for the first step of a track, then pass it back
 * unchanged.
 */
bool gpu_step__calls(const struct gpu *gpu, const struct step_track *track, const struct step *step, size_t *at,
		     struct gpu_step *out);

/*
 * Whether CUPTI watched all of a step, or most of the time of several. Its windows are known to the
 * millisecond.
 */
bool gpu_step__is_watched(const struct gpu_step *step, uint64_t step_ns);
/* Busy share of the time watched, 0 to 1; 0 if CUPTI watched nothing. */
double gpu_step__busy(const struct gpu_step *step);

#endif
