/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the text and the JSON of the steps report share. */
#ifndef STEPFLAME_USER_REPORT_STEPS_REPORT_H
#define STEPFLAME_USER_REPORT_STEPS_REPORT_H

#include "user/analysis/cause/outside.h"
#include "user/analysis/compare/ranks.h"
#include "user/analysis/gpu/gpu_readings.h"
#include "user/analysis/resources/machine.h"
#include "user/analysis/resources/resources.h"
#include "user/analysis/verdict/verdict.h"
#include "user/report/print/table.h"
#include "user/report/report.h"

/* What is known of all tracks. */
struct steps_view {
	struct job *job;
	const struct report_options *options;
	struct steps *steps;
	const struct gpu *gpu;
	struct gpu_time *gpu_time;
	const struct step_track *tracks;
	size_t track_cnt;
	struct rank *ranks; /* one per track */
	struct straggler straggler;
};

/* What the report says about one track. */
struct steps_of {
	const struct step_track *track;
	struct blame blame;
	struct gpu_steps gpu;
	struct verdict verdict;
	struct outside outside;
	struct resource_samples resources; /* of its process */
	struct machine_samples machine;    /* of its machine */
	struct gpu_readings readings;      /* of all GPUs of its machine */
	uint32_t *order;                   /* indices into blame.steps, sorted by --sort */
};

/* 0 or -ENOMEM. Free with steps_view__release. */
int steps_view__new(struct job *job, const struct report_options *options, struct steps_view *view);
void steps_view__release(struct steps_view *view);
/* of_job: use the verdict of all ranks. 0 or -ENOMEM. Free with steps_of__release. */
int steps_of__new(const struct steps_view *view, const struct step_track *track, bool of_job, struct steps_of *of);
void steps_of__release(struct steps_of *of);

/*
 * Returns the track to show without --per-rank: that of the straggler, else that of the lowest
 * rank. The view must have a track.
 */
const struct step_track *steps_view__shown(const struct steps_view *view);
/*
 * Sets the share of the CPU samples that are of a class, 0 to 1, and its error (95 %). Returns
 * false without samples.
 */
bool step_sum__cpu_share(const struct step_sum *sum, enum cpu_class class, double *share, double *error);

/* Adds a row for each phase with time in sum; in text also one for all phases. 0 or -ENOMEM. */
int steps_tables__phases(const struct steps_of *of, const struct step_sum *sum, struct table *table);
/* Adds a row for each group of slow steps; one for all groups, except the first, with less than this share of the time. 0 or -ENOMEM. */
int steps_tables__groups(struct job *job, const struct blame *blame, double listed_share, struct table *table);

/* In steps_resources.c: the table of the processes, nothing without samples. 0 or -ENOMEM. */
int steps_resources__print(const struct steps_view *view, FILE *out);
#define STEPS_TROUBLE_BYTES 320
/* What is wrong with the process that has the worst trouble; "": nothing. 0 or -ENOMEM. */
int steps_resources__worst(const struct steps_view *view, char text[STEPS_TROUBLE_BYTES]);
/* The rows of that table, and the machines; what a step used, with null for what is not known. NULL: no memory. */
json_t *steps_resources__json(const struct steps_view *view);
json_t *steps_resources__json_machines(struct job *job);
json_t *steps_resources__json_step(const struct steps_of *of, const struct step *step);
json_t *steps_resources__json_step_heads(const struct steps_view *view); /* all keys of a step */

extern const char *const steps_report__sort_keys[];
/* Returns seconds by cause, for the causes that occur, in a phase (-1: any). NULL: no memory. */
json_t *steps_report__json_waits(const struct step_sum *sum, int phase);
json_t *steps_report__json_hotspots(struct job *job, const struct hotspot *hotspots, size_t cnt);
json_t *steps_report__json_verdict(const struct verdict *verdict); /* NULL: no memory */
int steps_report__json(struct job *job, const struct report_options *options, FILE *out);

#endif
