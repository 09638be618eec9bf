/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What one or two recordings say for the page about memory, CPU and GPUs over time: of each process
 * that makes steps, of all processes together, and of each GPU. Jobs go in, a few curves come out, each
 * of at most USE_POINTS_MAX points. Owns all its data, so a job may be freed once it is added.
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_USE_CURVES_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_USE_CURVES_H

#include "user/analysis/steps/steps.h"
#include "user/lib/array.h"
#include "user/model/job.h"

#define USE_POINTS_MAX 4000

struct use_curves;

enum use_kind {
	USE_MEMORY, /* resident, in bytes */
	USE_CPU,    /* in thousandths of a percent of a processor */
	USE_GPU,    /* busy, in thousandths of a percent */
};

struct use_point {
	uint64_t time_ns; /* since the recording began */
	uint64_t value;   /* until the next point */
};

struct use_curve {
	uint32_t recording; /* 0 or 1 */
	enum use_kind kind;
	uint32_t pid;        /* 0: all processes, or a GPU */
	uint32_t device;     /* number of a GPU */
	struct array points; /* struct use_point, sorted by time; not all 0 */
};

struct use_curves *use_curves__new(void);       /* NULL: no memory */
void use_curves__free(struct use_curves *uses); /* accepts NULL */
/* Takes the next recording. origin_ns: when it began. 0 or -ENOMEM. */
int use_curves__add(struct use_curves *uses, struct job *job, const struct steps *steps, uint64_t origin_ns);
/* Valid until the next use_curves__add. */
const struct use_curve *use_curves__all(const struct use_curves *uses, size_t *cnt);

#endif
