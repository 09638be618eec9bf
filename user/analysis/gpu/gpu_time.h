/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How GPUs spent their time: when each was busy, with what, and what it waited for when idle. Built
 * from a job once; the job must not take records meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_GPU_GPU_TIME_H
#define STEPFLAME_USER_ANALYSIS_GPU_GPU_TIME_H

#include "user/analysis/steps/steps.h"
#include "user/model/gpu.h"
#include "user/model/job.h"

/* The times at which something happens: disjoint, ascending. */
struct gpu_spans {
	struct gpu_span {
		uint64_t start_ns, end_ns;
		uint64_t before_ns; /* total length of the spans before it */
	} * items;
	size_t cnt;
};

uint64_t gpu_spans__total(const struct gpu_spans *spans);
/* Total length between two instants. O(log). */
uint64_t gpu_spans__within(const struct gpu_spans *spans, uint64_t start_ns, uint64_t end_ns);

/*
 * Why a GPU was idle before some work began. HOST, LAUNCH and OTHER follow HTA's "idle time
 * breakdown" (hta/analyzers/breakdown_analysis.py); its host wait is split here into HOST and DATA.
 */
#define STEPFLAME_GPU_IDLE(X)                                                           \
	X(HOST, "host", "the CPU had not asked for work yet")                           \
	X(DATA, "data", "the CPU had not, and was in a DataLoader's next or in a copy") \
	X(LAUNCH, "launch", "work was asked for, and began within 10 us")               \
	X(OTHER, "other",                                                               \
	  "work was asked for, and waited longer, such as for another stream; or who asked is not known")

enum gpu_idle {
#define X(id, ...) GPU_IDLE_##id,
	STEPFLAME_GPU_IDLE(X)
#undef X
		GPU_IDLE__COUNT,
};

#define GPU_IDLE_LAUNCH_NS 10000

/* One GPU as one process numbers it. */
struct gpu_line {
	uint32_t pid, device;
	struct gpu_spans
		work; /* kernels, graphs, copies, sets, on all streams; all spans here lie within CUPTI's windows */
	struct gpu_spans kernels; /* compute and comm */
	struct gpu_spans compute; /* graphs, and kernels other than NCCL's */
	struct gpu_spans comm;
	uint64_t first_ns, last_ns;             /* from the start of its first work to the end of its last */
	uint64_t watched_ns;                    /* the part of that time within CUPTI's windows */
	struct gpu_spans idle[GPU_IDLE__COUNT]; /* work and all idle spans add up to watched_ns */
	uint64_t untimed;                       /* work items whose times are not known */
};

/* A stream of a GPU, with its idle time split as HTA does. */
struct gpu_stream {
	uint32_t pid, device, context, stream;
	uint64_t activities;
	uint64_t busy_ns;
	uint64_t host_wait_ns, kernel_wait_ns, other_ns;
};

struct gpu_time;

/* steps: of the same job. Without steps (NULL), only copies show waits for data. NULL: no memory. */
struct gpu_time *gpu_time__new(struct job *job, const struct steps *steps);
void gpu_time__free(struct gpu_time *time); /* accepts NULL */
/* Sorted by pid and device. */
const struct gpu_line *gpu_time__lines(const struct gpu_time *time, size_t *cnt);
/* Sorted by pid, device, context and stream. */
const struct gpu_stream *gpu_time__streams(const struct gpu_time *time, size_t *cnt);
/* How long CUPTI watched a process between two instants. */
uint64_t gpu_time__watched(const struct gpu_time *time, uint32_t pid, uint64_t start_ns, uint64_t end_ns);
/* How long compute and communication overlapped between two instants. */
uint64_t gpu_line__overlap(const struct gpu_line *line, uint64_t start_ns, uint64_t end_ns);

const char *gpu_idle__name(enum gpu_idle idle);    /* "host" */
const char *gpu_idle__meaning(enum gpu_idle idle); /* "the CPU had not asked for work yet" */

/*
 * Steps and the GPU: what each step asked for, as the probes counted it, and how long the GPUs of
 * its process worked during the step, as CUPTI saw it, whoever asked for the work.
 */

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
