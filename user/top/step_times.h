/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Step boundaries in, how long the last steps of each process took out. */
#ifndef STEPFLAME_USER_TOP_STEP_TIMES_H
#define STEPFLAME_USER_TOP_STEP_TIMES_H

#include "user/top/top.h"

#define STEP_THREADS 8 /* of a process that are told apart; more take turns */

/* The last boundary of a thread. */
struct thread_boundary {
	uint32_t tid;
	uint64_t index, time_ns;
};

struct process_steps {
	uint32_t pid, rule;
	uint32_t others;     /* boundaries by worse rules since one by this */
	uint64_t index;      /* of the thread that has made most */
	uint64_t boundaries; /* since the last step_times__rows */
	uint64_t step_cnt;   /* timed; the last of them are in ring, by number */
	float ms[TOP_STEPS_KEPT];
	struct thread_boundary threads[STEP_THREADS];
	unsigned int next_thread; /* the one that a new thread replaces */
};

struct step_times {
	struct array processes; /* struct process_steps */
};

/* 0 or -ENOMEM. */
int step_times__add(struct step_times *steps, const struct rec_step *record);
/* Adds a row for each process (struct top_row) to rows, and begins a new interval. 0 or -ENOMEM. */
int step_times__rows(struct step_times *steps, const struct job *job, double interval_s, struct array *rows);
void step_times__free(struct step_times *steps);

#endif
