/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a live view shows. In: a job (job.h) after each snapshot, and step boundaries; out: a frame: a header and a
 * table per view, of what happened since the last one and since the start. Knows no terminal and no process. Its size
 * is bounded by the names, functions and threads that the job shows, not by time.
 */
#ifndef STEPFLAME_USER_TOP_TOP_H
#define STEPFLAME_USER_TOP_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/gpu_records.h"
#include "user/lib/array.h"
#include "user/model/job.h"

struct top;

enum top_view { TOP_ACTIONS, TOP_FUNCTIONS, TOP_WAITS, TOP_THREADS, TOP_STEPS, TOP__VIEWS };

enum top_format {
	TOP_NUMBER,  /* three significant digits, k and M above 9,999 */
	TOP_PERCENT, /* one decimal; ">999" */
	TOP_MS,      /* three significant digits, in ms */
};

#define TOP_VALUES        7
#define TOP_HISTORY       24  /* steps in a row's sparkline */
#define TOP_STEPS_KEPT    256 /* of a process: mean and percentiles are of these */
#define TOP_PROCESSES_MAX 256 /* with steps */
#define TOP_GPUS_MAX      16

struct top_column {
	const char *title;
	enum top_format format;
	const char *help;
};

struct top_view_info {
	const char *name;  /* for the command line */
	const char *title; /* on its tab */
	const char *rows;  /* title of the rows' names */
	const struct top_column *columns;
	int column_cnt;
	int sort; /* the column by which it is sorted at first; all are descending */
};

extern const struct top_view_info top_views[TOP__VIEWS];

struct top_history {
	double ms[TOP_HISTORY]; /* the oldest first */
	size_t cnt;
};

struct top_row {
	char *name;                  /* owned; control characters as they came */
	double values[TOP_VALUES];   /* by column; NAN: not known */
	struct top_history *history; /* owned; NULL but of TOP_STEPS */
};

struct top_frame {
	char *target; /* pids, versions and command; owned, like all texts */
	char *losses; /* "" or "name=n, ..." */
	char *note;   /* the last one of the session, "" */
	double elapsed_s, interval_s;
	double cpu_percent; /* as given */
	size_t processes, threads;
	uint64_t steps;
	double steps_per_s;
	const char *step_rule;           /* static text */
	double hits_per_s, cost_percent; /* of the interval; the busiest process pays at least so much of its time */
	double own_percent, own_mb;
	struct rec_gpu_usage gpus[TOP_GPUS_MAX]; /* the host's, as NVML last said; by device */
	size_t gpu_cnt;
	struct array rows[TOP__VIEWS]; /* struct top_row */
};

/* What the processes themselves tell, for a frame. */
struct top_usage {
	double cpu_percent; /* of one CPU, of the whole job since the last frame; NAN: not known */
	size_t processes, threads;
	/* A thread's name, cut, "" when it is not known; may be NULL. */
	void (*thread_name)(uint32_t pid, uint32_t tid, char name[16]);
};

struct top *top__new(void);      /* NULL: no memory */
void top__free(struct top *top); /* accepts NULL */
/* Each step boundary, in order of time in a process. 0 or -ENOMEM. */
int top__step(struct top *top, const struct rec_step *step);
/* After a snapshot. Takes what the job has of samples into account, which are then to be forgotten. 0 or -ENOMEM. */
int top__update(struct top *top, struct job *job, const struct top_usage *usage, struct top_frame *frame);
/* What is counted from the start counts from the last frame on. */
void top__reset(struct top *top);

void top_frame__release(struct top_frame *frame);

#endif
