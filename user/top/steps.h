/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Step boundaries in, how long the last steps of each process took out. */
#ifndef STEPFLAME_TOP_STEPS_H
#define STEPFLAME_TOP_STEPS_H

#include "top.h"

struct step_times {
	uint32_t pid, rule;
	uint64_t index, time_ns; /* of the last boundary */
	uint64_t boundaries;     /* since the last steps__rows */
	uint64_t step_cnt;       /* timed; the last of them are in ring, by number */
	float ms[TOP_STEPS_KEPT];
};

struct steps {
	struct array processes; /* struct step_times */
};

/* 0 or -ENOMEM. */
int steps__add(struct steps *steps, const struct rec_step *record);
/* Adds a row for each process (struct top_row) to rows, and begins a new interval. 0 or -ENOMEM. */
int steps__rows(struct steps *steps, const struct job *job, double interval_s, struct array *rows);
void steps__free(struct steps *steps);

#endif
