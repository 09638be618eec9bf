/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Step boundaries in, how long the last steps of each process took out. */
#ifndef STEPFLAME_STEP_TIMES_H
#define STEPFLAME_STEP_TIMES_H

#include "top.h"

struct process_steps {
	uint32_t pid, rule;
	uint64_t index, time_ns; /* of the last boundary */
	uint64_t boundaries;     /* since the last step_times__rows */
	uint64_t step_cnt;       /* timed; the last of them are in ring, by number */
	float ms[TOP_STEPS_KEPT];
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
