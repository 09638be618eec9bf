/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timeline: REC_SPANS and the activities of GPUs in, tracks of spans out. A track is what a viewer shows in one
 * row: its spans nest strictly. Each thread and each stream of a GPU has one, and more where spans overlap in part (a step ends
 * within the action in which its optimizer ran). Names and groups are looked up in the job (job.h), which reads the
 * same stream.
 */
#ifndef STEPFLAME_USER_ANALYSIS_TIMELINE_H
#define STEPFLAME_USER_ANALYSIS_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "user/model/gpu.h"

#define TIMELINE_MAX       (8u << 20) /* spans that are kept: 450 MB, and 2 GB as a Chrome trace */
#define TIMELINE_DEPTH_MAX 1024       /* of a track */
#define TIMELINE_WINDOWS   0xffffff   /* tid of the track with the windows of CUPTI's, of each GPU */

struct timeline;

struct timeline_name {
	uint64_t id;                  /* REC_NAME; 0 of activities without a name of their own */
	enum span_kind kind;          /* SPAN_NONE: an activity, a call, */
	enum gpu_activity activity;   /* or, with neither here nor in api, a window of CUPTI's */
	enum gpu_direction direction; /* of a copy */
	enum gpu_api api;             /* of a call that probes saw */
};

struct timeline_span {
	uint64_t start_ns, duration_ns;
	int64_t sequence;     /* -1: not known */
	uint32_t name;        /* index into timeline__names */
	uint32_t group;       /* index into timeline__groups; 0: none */
	uint32_t flow;        /* of a node, and of the operator that made it: the same number, from 1; 0: none */
	uint32_t forward_tid; /* of nodes: the thread of that operator; 0: not known */
	uint32_t activity;    /* index in gpu__activities + 1; 0: none */
	uint32_t pid, tid;    /* tid: on a GPU the stream */
	uint16_t depth;       /* spans around it, on the thread; then on the track */
	uint8_t lane;
	uint8_t gpu; /* 0: of a thread; else of the GPU with this number less 1 */
};

/* Spans by start; of two that start together the outer one comes first. */
struct timeline_track {
	uint32_t pid, tid;
	uint32_t gpu;  /* as in struct timeline_span */
	uint32_t lane; /* 0: the thread's own; 1...: steps, forward, and what else overlaps in part with it */
	size_t span_cnt;
	const struct timeline_span *spans;
};

struct timeline *timeline__new(size_t span_max); /* NULL: no memory */
void timeline__free(struct timeline *timeline);  /* accepts NULL */
/* Takes one record; all but REC_SPANS are skipped. 0 or -ENOMEM. */
int timeline__add(struct timeline *timeline, const struct rec_hdr *record);
/*
 * Adds what GPUs did, the windows in which CUPTI told of it, and the calls of CUDA on the CPU: as CUPTI tells them, or, of a process without, the probes.
 * 0 or -ENOMEM.
 */
int timeline__add_gpu(struct timeline *timeline, const struct gpu *gpu);
/* Makes the tracks, once, of what was added. 0 or -ENOMEM. */
int timeline__build(struct timeline *timeline);

/* What timeline__build made, by pid, GPU, tid and lane. Owned by the timeline, like all below. */
const struct timeline_track *timeline__tracks(const struct timeline *timeline, size_t *cnt);
const struct timeline_name *timeline__names(const struct timeline *timeline, size_t *cnt);
/* REC_OP_GROUP ids; the first is 0. */
const uint64_t *timeline__groups(const struct timeline *timeline, size_t *cnt);
/*
 * Spans that are on no track: beyond span_max, malformed (a record that cannot be unpacked counts once), overlapping
 * in too many ways.
 */
uint64_t timeline__left_out(const struct timeline *timeline);

#endif
