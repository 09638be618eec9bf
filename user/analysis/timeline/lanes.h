/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What one or two recordings say in intervals, for the page's view of a step over time: work of each
 * stream of a GPU, windows of CUPTI, and the phases of the threads that make steps, of recordings
 * with --timeline. Records and jobs go in, lanes of spans come out. Nothing has a time that was not
 * recorded. Owns all its data, so a job may be freed once it is added.
 */
#ifndef STEPFLAME_USER_ANALYSIS_TIMELINE_LANES_H
#define STEPFLAME_USER_ANALYSIS_TIMELINE_LANES_H

#include "user/analysis/steps/steps.h"
#include "user/lib/array.h"
#include "user/model/job.h"

struct lanes;

enum lane_kind {
	LANE_PHASES,  /* of a thread */
	LANE_STREAM,  /* of a GPU, as a process numbers them */
	LANE_WINDOWS, /* in which CUPTI watched a process; without them, it is not known when it did */
};

struct lane_span {
	uint64_t start_ns, duration_ns; /* since the recording began */
	uint64_t busy_ns;               /* of the duration; less than it where work was merged */
	uint64_t longest_ns;            /* of what was merged */
	uint32_t cnt;                   /* of what was merged; 1: nothing */
	uint32_t what;                  /* enum phase; of a stream: index of a text, of the longest; else 0 */
};

struct lane {
	uint32_t recording; /* 0 or 1 */
	enum lane_kind kind;
	uint32_t pid, tid;                /* tid: of phases */
	uint32_t device, context, stream; /* of a stream */
	struct array spans;               /* struct lane_span, sorted by start; those of phases are disjoint */
};

struct lanes *lanes__new(void);        /* NULL: no memory */
void lanes__free(struct lanes *lanes); /* accepts NULL */
/* Takes one record of the next recording, and skips all but REC_SPANS. 0 or -ENOMEM. */
int lanes__take(struct lanes *lanes, const struct rec_hdr *record);
/* The recording ends. job: made of the same records; origin_ns: when it began. 0 or -ENOMEM. */
int lanes__add(struct lanes *lanes, struct job *job, const struct steps *steps, uint64_t origin_ns);
/*
 * Leaves at most span_max spans of phases and as many of streams: merges work of a stream that
 * begins within *stream_ns, and drops phases shorter than *phase_ns. 0: none.
 */
void lanes__thin(struct lanes *lanes, size_t span_max, uint64_t *stream_ns, uint64_t *phase_ns);

/* Spans of the timeline that were too many to look for phases in them. */
uint64_t lanes__left_out(const struct lanes *lanes);
/* Valid until the next lanes__add. */
const struct lane *lanes__all(const struct lanes *lanes, size_t *cnt);
char *const *lanes__texts(const struct lanes *lanes, size_t *cnt);

#endif
