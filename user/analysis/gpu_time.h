/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How GPUs spent their time: when each was busy, with what, and what it waited for when it was not. Made of a job once;
 * takes no record in between.
 */
#ifndef STEPFLAME_USER_ANALYSIS_GPU_TIME_H
#define STEPFLAME_USER_ANALYSIS_GPU_TIME_H

#include "user/analysis/steps.h"
#include "user/model/gpu.h"
#include "user/model/job.h"

/* Times in which something lasts: disjoint, ascending. */
struct gpu_spans {
	struct gpu_span {
		uint64_t start_ns, end_ns;
		uint64_t before_ns; /* of all spans before it */
	} * items;
	size_t cnt;
};

uint64_t gpu_spans__total(const struct gpu_spans *spans);
/* How long between two instants. O(log). */
uint64_t gpu_spans__within(const struct gpu_spans *spans, uint64_t start_ns, uint64_t end_ns);

/*
 * Why a GPU was idle before a piece of work began; the first and the next two as in HTA's "idle time breakdown"
 * (hta/analyzers/breakdown_analysis.py), whose host wait is here in two.
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
	struct gpu_spans work; /* kernels, graphs, copies, sets, of all streams; in windows of CUPTI's, as all below */
	struct gpu_spans kernels; /* compute and comm */
	struct gpu_spans compute; /* kernels that are not NCCL's, and graphs */
	struct gpu_spans comm;
	uint64_t first_ns, last_ns;             /* from its first work to the end of its last */
	uint64_t watched_ns;                    /* of these: in windows of CUPTI's */
	struct gpu_spans idle[GPU_IDLE__COUNT]; /* with work they add up to watched_ns */
	uint64_t untimed;                       /* pieces of work whose times are not known */
};

/* A stream of it, its idle time as HTA splits it. */
struct gpu_stream {
	uint32_t pid, device, context, stream;
	uint64_t activities;
	uint64_t busy_ns;
	uint64_t host_wait_ns, kernel_wait_ns, other_ns;
};

struct gpu_time;

/* steps: of the job; may be NULL, then waits for data are known from copies alone. NULL: no memory. */
struct gpu_time *gpu_time__new(struct job *job, const struct steps *steps);
void gpu_time__free(struct gpu_time *time); /* accepts NULL */
/* By pid and device. */
const struct gpu_line *gpu_time__lines(const struct gpu_time *time, size_t *cnt);
/* By pid, device, context and stream. */
const struct gpu_stream *gpu_time__streams(const struct gpu_time *time, size_t *cnt);
/* Times of a process outside of CUPTI's windows. */
const struct gpu_spans *gpu_time__unwatched(const struct gpu_time *time, uint32_t pid);
/* How long CUPTI watched a process between two instants. */
uint64_t gpu_time__watched(const struct gpu_time *time, uint32_t pid, uint64_t start_ns, uint64_t end_ns);
/* Compute and communication at the same time, between two instants. */
uint64_t gpu_line__overlap(const struct gpu_line *line, uint64_t start_ns, uint64_t end_ns);

const char *gpu_idle__name(enum gpu_idle idle);    /* "host" */
const char *gpu_idle__meaning(enum gpu_idle idle); /* "the CPU had not asked for work yet" */

#endif
