/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns step boundaries into the durations of each process's last steps. */
#ifndef STEPFLAME_USER_MODEL_STEP_TIMES_H
#define STEPFLAME_USER_MODEL_STEP_TIMES_H

#include <stdint.h>

#include "include/records.h"
#include "user/lib/array.h"

#define STEP_TIMES_KEPT      256 /* per process */
#define STEP_TIMES_PROCESSES 256 /* processes with steps; those of more are not timed */
#define STEP_THREADS         8   /* threads tracked per process; beyond that, a new one replaces the oldest */

/* The last step boundary of a thread. */
struct thread_boundary {
	uint32_t tid;
	uint64_t index, time_ns;
	uint64_t besides_ns; /* since then, up to the last boundary by any rule: in validation and checkpoints */
	uint64_t comm_ns;    /* likewise: in collectives */
};

struct process_steps {
	uint32_t pid, rule;
	uint32_t others;     /* boundaries by worse rules since the last by this rule */
	uint64_t index;      /* highest index of any thread */
	uint64_t boundaries; /* since the owner last set this to 0 */
	uint64_t step_cnt;   /* timed steps; ms has the last STEP_TIMES_KEPT, each at its number modulo that */
	float ms[STEP_TIMES_KEPT];
	struct thread_boundary threads[STEP_THREADS];
	unsigned int next_thread; /* the entry that a new thread replaces */
};

struct step_times {
	struct array processes; /* struct process_steps */
};

/* A step that a boundary ended. */
struct timed_step {
	uint32_t pid, tid;
	uint64_t index, end_ns, duration_ns;
	uint64_t besides_ns; /* of the duration: in validation and checkpoints */
	uint64_t comm_ns;    /* of the duration: in collectives, and in waits for them */
};

/* 1 when the boundary ended a step of known length, with *step (unless NULL); 0, also for a STEP_TICK; or -ENOMEM. */
int step_times__add(struct step_times *steps, const struct rec_step *record, struct timed_step *step);
/* NULL: it has made no step. */
struct process_steps *step_times__of(const struct step_times *steps, uint32_t pid);
/* A process has ended. */
void step_times__forget(struct step_times *steps, uint32_t pid);
void step_times__free(struct step_times *steps);

#endif
