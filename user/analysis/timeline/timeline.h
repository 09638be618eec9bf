/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timeline: takes REC_SPANS and GPU activities, and returns tracks of spans. A track is one row
 * in a viewer: its spans nest strictly. Each thread and each GPU stream has one track, and more if
 * spans overlap partially (a step ends within the action in which its optimizer ran). Look up names
 * and groups in the job (job.h), which reads the same stream.
 */
#ifndef STEPFLAME_USER_ANALYSIS_TIMELINE_TIMELINE_H
#define STEPFLAME_USER_ANALYSIS_TIMELINE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "user/model/gpu.h"

#define TIMELINE_MAX       (8u << 20) /* most spans in memory: 450 MB, and 2 GB as a Chrome trace */
#define TIMELINE_DEPTH_MAX 1024       /* of a track */
#define TIMELINE_WINDOWS   0xffffff   /* tid of each GPU's track of CUPTI windows */

struct timeline;

struct timeline_name {
	uint64_t id;                  /* REC_NAME; 0 for activities without a name of their own */
	enum span_kind kind;          /* SPAN_NONE: an activity, or a call, */
	enum gpu_activity activity;   /* or, if this and api are unset, too, a window of CUPTI */
	enum gpu_direction direction; /* of a copy */
	enum gpu_api api;             /* of a call that the probes saw */
};

struct timeline_span {
	uint64_t start_ns, duration_ns;
	int64_t sequence;     /* -1: not known */
	uint32_t name;        /* index into timeline__names */
	uint32_t group;       /* index into timeline__groups; 0: no group */
	uint32_t flow;        /* a number, from 1, shared by a node and the operator that made it; 0: no flow */
	uint32_t forward_tid; /* for nodes: the thread of that operator; 0: not known */
	uint32_t activity;    /* 1 + index in gpu__activities; 0: no activity */
	uint32_t pid, tid;    /* tid: the stream, on a GPU */
	uint16_t depth;       /* spans around it, first on the thread, then on the track */
	uint8_t lane;
	uint8_t gpu; /* 0: on a thread; else 1 + number of the GPU */
};

/* Spans sorted by start; of spans that start together, the outer one comes first. */
struct timeline_track {
	uint32_t pid, tid;
	uint32_t gpu;  /* as in struct timeline_span */
	uint32_t lane; /* 0: the thread's own; 1...: steps, forward, and other spans that partially overlap it */
	size_t span_cnt;
	const struct timeline_span *spans;
};

struct timeline *timeline__new(size_t span_max); /* NULL: no memory */
void timeline__free(struct timeline *timeline);  /* accepts NULL */
/* Takes one record, and skips all but REC_SPANS. 0 or -ENOMEM. */
int timeline__add(struct timeline *timeline, const struct rec_hdr *record);
/*
 * Adds GPU activities, the windows in which CUPTI emitted them, and CUDA calls on the CPU: as CUPTI
 * saw them, or, for a process without CUPTI, as the probes did. 0 or -ENOMEM.
 */
int timeline__add_gpu(struct timeline *timeline, const struct gpu *gpu);
/* Builds the tracks, once. 0 or -ENOMEM. */
int timeline__build(struct timeline *timeline);

/*
 * The tracks, sorted by pid, GPU, tid and lane, after timeline__build. The timeline owns all
 * results below.
 */
const struct timeline_track *timeline__tracks(const struct timeline *timeline, size_t *cnt);
const struct timeline_name *timeline__names(const struct timeline *timeline, size_t *cnt);
/* REC_OP_GROUP ids; the first is 0. */
const uint64_t *timeline__groups(const struct timeline *timeline, size_t *cnt);
/*
 * Spans without a track: beyond span_max, malformed (a record that cannot be unpacked counts once),
 * or with too many partial overlaps.
 */
uint64_t timeline__left_out(const struct timeline *timeline);

#endif
