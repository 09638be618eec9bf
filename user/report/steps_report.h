/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the text and the JSON of the steps report share. */
#ifndef STEPFLAME_USER_REPORT_STEPS_REPORT_H
#define STEPFLAME_USER_REPORT_STEPS_REPORT_H

#include "user/analysis/outside.h"
#include "user/analysis/ranks.h"
#include "user/analysis/verdict.h"
#include "user/report/report.h"

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
	struct straggler straggler;
};

/* What is told of one track. */
struct steps_of {
	const struct step_track *track;
	struct blame blame;
	struct gpu_steps gpu;
	struct verdict verdict;
	struct outside outside;
	uint32_t *order; /* of blame.steps, by --sort */
};

/* 0 or -ENOMEM. Free with steps_view__release. */
int steps_view__new(struct job *job, const struct report_options *options, struct steps_view *view);
void steps_view__release(struct steps_view *view);
/* of_job: the verdict is that of all ranks. 0 or -ENOMEM. Free with steps_of__release. */
int steps_of__new(const struct steps_view *view, const struct step_track *track, bool of_job, struct steps_of *of);
void steps_of__release(struct steps_of *of);

/* The track that is shown without --per-rank: that of the straggler, else of the lowest rank. There is one. */
const struct step_track *steps_view__shown(const struct steps_view *view);
/* Share of the samples on the CPU, 0 to 1, and how far it may be off (95 %); false: there are none. */
bool step_sum__cpu_share(const struct step_sum *sum, enum cpu_class class, double *share, double *error);

/* steps_outside.c: lines of the text, where there is something to say. 0 or -ENOMEM. */
int steps_report__print_compile(struct job *job, const struct steps_of *of, FILE *out);
int steps_report__print_outside(struct job *job, const struct steps_of *of, FILE *out);
/* Why there is no step, and what the processes did instead. */
int steps_report__explain_empty(struct job *job, FILE *out);

extern const char *const steps_report__sort_keys[];
int steps_report__json(struct job *job, const struct report_options *options, FILE *out);

#endif
