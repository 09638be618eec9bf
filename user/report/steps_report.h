/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the text and the JSON of the steps report share. */
#ifndef STEPFLAME_STEPS_REPORT_H
#define STEPFLAME_STEPS_REPORT_H

#include "../model/ranks.h"
#include "../model/verdict.h"
#include "report.h"

/* Of all tracks, and of the one that is shown. */
struct steps_view {
	struct job *job;
	const struct report_options *options;
	struct steps *steps;
	const struct gpu *gpu;
	struct gpu_time *gpu_time;
	const struct step_track *tracks;
	size_t track_cnt;
	struct rank *ranks; /* of the tracks */
	long straggler;     /* -1: none */
	char *straggler_why;
};

/* What is told of one track. */
struct steps_of {
	const struct step_track *track;
	struct blame blame;
	struct gpu_steps gpu;
	struct verdict verdict;
	uint32_t *order; /* of blame.steps, by --sort */
};

/* 0 or -ENOMEM. Free with steps_view__release. */
int steps_view__new(struct job *job, const struct report_options *options, struct steps_view *view);
void steps_view__release(struct steps_view *view);
/* 0 or -ENOMEM. Free with steps_of__release. */
int steps_of__new(const struct steps_view *view, const struct step_track *track, struct steps_of *of);
void steps_of__release(struct steps_of *of);

/* The track that is shown without --per-rank: that of the straggler, else of the lowest rank. There is one. */
const struct step_track *steps_view__shown(const struct steps_view *view);
/* Share of the samples on the CPU, 0 to 1, and how far it may be off (95 %); false: there are none. */
bool step_sum__cpu_share(const struct step_sum *sum, enum cpu_class class, double *share, double *error);

extern const char *const steps_report__sort_keys[];
int steps_report__json(struct job *job, const struct report_options *options, FILE *out);

#endif
