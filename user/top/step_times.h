/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns step boundaries into the durations of each process's last steps. */
#ifndef STEPFLAME_USER_TOP_STEP_TIMES_H
#define STEPFLAME_USER_TOP_STEP_TIMES_H

#include "user/top/top.h"

#define STEP_THREADS 8 /* threads tracked per process; beyond that, a new one replaces the oldest */

/* The last step boundary of a thread. */
struct thread_boundary {
	uint32_t tid;
	uint64_t index, time_ns;
};

struct process_steps {
	uint32_t pid, rule;
	uint32_t others;     /* boundaries by worse rules since the last by this rule */
	uint64_t index;      /* highest index of any thread */
	uint64_t boundaries; /* since the last step_times__rows */
	uint64_t step_cnt;   /* timed steps; ms has the last TOP_STEPS_KEPT, each at its number modulo that */
	float ms[TOP_STEPS_KEPT];
	struct thread_boundary threads[STEP_THREADS];
	unsigned int next_thread; /* the entry that a new thread replaces */
};

struct step_times {
	struct array processes; /* struct process_steps */
};

/* 0 or -ENOMEM. */
int step_times__add(struct step_times *steps, const struct rec_step *record);
/* Adds a row (struct top_row) for each process to rows, and begins a new interval. 0 or -ENOMEM. */
int step_times__rows(struct step_times *steps, const struct job *job, double interval_s, struct array *rows);
void step_times__free(struct step_times *steps);

#endif
