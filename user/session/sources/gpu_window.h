/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One window of CUPTI's in one process, on paper: since when, until when, and what of CUPTI's word belongs to it. Who
 * opens and closes it is gpu_cupti.c. Times are CLOCK_MONOTONIC, ns.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_WINDOW_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "include/gpu_records.h"

struct gpu_window {
	bool by_steps;      /* of a schedule: what its steps are not is left out */
	uint32_t index;     /* in the recording */
	uint32_t scheduled; /* and in the schedule */
	uint64_t asked_ns;  /* 0: there is none */
	uint64_t begun_ns;  /* CUPTI is at work; 0: not yet */
	uint64_t steps_ns;  /* by steps: its first step began; 0: not yet, it warms up */
	uint64_t until_ns;  /* likewise, its last step ended */
	uint64_t ended_ns;  /* CUPTI was at work until then; 0: it is */
	uint64_t told_ns;   /* all that ended before was told */
	bool stopped;       /* its end was asked for, */
	bool refused;       /* CUPTI could not be had */
	enum gpu_window_end end;
	uint32_t error;            /* CUptiResult */
	uint32_t last_correlation; /* of a call in it */
};

enum gpu_fate { GPU_TOLD, GPU_LEFT_OUT, GPU_NOT_YET_KNOWN };

/*
 * Is what began and ended then part of the window? Of a schedule's: what is in it at least in part, and work that was
 * asked for in it, however late it begins; calls are to be asked about before the work that they asked for. known_ns: the
 * steps are known up to then; `last`: nothing more will be.
 */
enum gpu_fate gpu_window__judge(struct gpu_window *w, enum gpu_activity kind, uint32_t correlation, uint64_t start_ns,
				uint64_t end_ns, uint64_t known_ns, bool last);
/* What is said of it so far; pid and index are the caller's. false: it has not begun, and nothing is to be said. */
bool gpu_window__record(const struct gpu_window *w, struct rec_gpu_window *out);
/* How long it was, so far. */
uint64_t gpu_window__ns(const struct gpu_window *w);

#endif
