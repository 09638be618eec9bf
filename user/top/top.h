/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a live view shows. In: a job (job.h) after each snapshot, and step boundaries. Out: a frame,
 * which has a header and a table per view, for the time since the last frame and since the start.
 * This file knows neither terminals nor processes. The state grows with the names, functions and
 * threads that the job shows, not with time.
 */
#ifndef STEPFLAME_USER_TOP_TOP_H
#define STEPFLAME_USER_TOP_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/gpu_records.h"
#include "user/lib/array.h"
#include "user/model/job.h"
#include "user/proc/cgroup.h"

struct top;

enum top_view { TOP_ACTIONS, TOP_FUNCTIONS, TOP_WAITS, TOP_THREADS, TOP_STEPS, TOP_PROCESSES, TOP__VIEWS };

enum top_format {
	TOP_NUMBER,  /* three significant digits, k and M above 9,999 */
	TOP_PERCENT, /* one decimal; ">999" */
	TOP_MS,      /* three significant digits, in ms */
};

#define TOP_VALUES   7
#define TOP_HISTORY  24 /* steps in a row's sparkline */
#define TOP_GPUS_MAX 16

struct top_column {
	const char *title;
	const char *key; /* in JSON */
	enum top_format format;
	const char *help;
};

struct top_view_info {
	const char *name;  /* for the command line */
	const char *title; /* on its tab */
	const char *rows;  /* title of the rows' names */
	const struct top_column *columns;
	int column_cnt;
	int sort; /* the column to sort by at first; all sort in descending order */
};

extern const struct top_view_info top_views[TOP__VIEWS];

struct top_history {
	double ms[TOP_HISTORY]; /* oldest first */
	size_t cnt;
};

struct top_row {
	char *name;                  /* owned; control characters not escaped */
	double values[TOP_VALUES];   /* by column; NAN: unknown */
	struct top_history *history; /* owned; NULL in all views but TOP_STEPS */
};

struct top_frame {
	char *target; /* pids, versions and command; owned, like all texts */
	char *losses; /* "" or "name=n, ..." */
	char *note;   /* the session's last note, or "" */
	double elapsed_s, interval_s;
	double cpu_percent; /* from top_usage, as the next four */
	size_t processes, threads;
	uint64_t rss_bytes;
	struct cgroup_limits limits;
	uint64_t steps;
	double steps_per_s;
	const char *step_rule;           /* static text */
	double hits_per_s, cost_percent; /* of the interval; cost_percent: lower bound, of the busiest process */
	double own_percent, own_mb;
	struct rec_gpu_usage gpus[TOP_GPUS_MAX]; /* of the host, NVML's last readings; by device */
	size_t gpu_cnt;
	struct array rows[TOP__VIEWS]; /* struct top_row */
};

/* A process that is alive. */
struct top_process {
	uint32_t pid;
	enum target_role role;
	char comm[16];      /* any bytes */
	uint64_t ticks;     /* CPU time so far */
	double cpu_percent; /* of one CPU, since the last frame; NAN: unknown */
	uint64_t rss_bytes;
	size_t threads;
};

/* What the processes themselves report, for a frame. */
struct top_usage {
	double cpu_percent; /* the same of the whole job */
	size_t processes, threads;
	const struct top_process *each; /* all processes, or NULL */
	uint64_t rss_bytes;             /* of all; pages that they share count for each */
	struct cgroup_limits limits;    /* of the first main process; without a cpuset that has all processors */
	/* Sets the thread's name, truncated, or "" when it is unknown. The pointer may be NULL. */
	void (*thread_name)(uint32_t pid, uint32_t tid, char name[16]);
};

struct top *top__new(void);      /* NULL: no memory */
void top__free(struct top *top); /* accepts NULL */
/* Takes each step boundary, in order of time within a process. 0 or -ENOMEM. */
int top__step(struct top *top, const struct rec_step *step);
/*
 * Makes a frame after a snapshot. It uses up the job's samples: the caller then forgets them. 0 or
 * -ENOMEM.
 */
int top__update(struct top *top, struct job *job, const struct top_usage *usage, struct top_frame *frame);
/* Restarts the totals "since the start" at the last frame. */
void top__reset(struct top *top);

void top_frame__release(struct top_frame *frame);
/*
 * Returns a frame's rows of a view whose names contain the filter ("": all), sorted by a column: one
 * past the last: by name. malloc'ed; NULL: no memory.
 */
const struct top_row **top_frame__sorted(const struct top_frame *frame, enum top_view view, int column,
					 const char *filter, size_t *cnt);

#endif
