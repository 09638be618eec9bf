/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bookkeeping of one CUPTI window in one process: its start and end, and which activities belong to
 * it. cupti.c opens and closes the window. Times are CLOCK_MONOTONIC, ns.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_WINDOW_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "include/gpu_records.h"

struct gpu_window {
	bool by_steps;           /* a window of the schedule: drops activities outside its steps */
	uint32_t index;          /* index in the recording */
	uint32_t scheduled;      /* index in the schedule */
	uint64_t requested_ns;   /* when stepflame requested it; 0: no window */
	uint64_t begun_ns;       /* when CUPTI became active; 0: not yet */
	uint64_t steps_start_ns; /* by_steps: when the first step began; 0: still warming up */
	uint64_t steps_end_ns;   /* by_steps: when the last step ended; 0: not yet */
	uint64_t ended_ns;       /* when CUPTI stopped; 0: still active */
	uint64_t reported_ns;    /* CUPTI has reported everything that ended before this */
	bool stopped;            /* stepflame requested its end */
	bool refused;            /* CUPTI was not available */
	enum gpu_window_end end;
	uint32_t error;            /* CUptiResult */
	uint32_t last_correlation; /* of the last call in it */
};

enum gpu_fate { GPU_INSIDE, GPU_OUTSIDE, GPU_UNDECIDED };

/*
 * Does an activity belong to the window? The window of a schedule includes activities that overlap
 * it, and GPU work that a call in it launched, however late that work begins; so the caller must
 * judge a call before its work. known_ns: the steps are known up to then; `last`: nothing more will
 * be known.
 */
enum gpu_fate gpu_window__judge(struct gpu_window *w, enum gpu_activity kind, uint32_t correlation, uint64_t start_ns,
				uint64_t end_ns, uint64_t known_ns, bool last);
/*
 * Fills in the record so far; the caller sets pid and index. false: the window has not begun, so
 * there is no record.
 */
bool gpu_window__record(const struct gpu_window *w, struct rec_gpu_window *out);
/* The length of the window so far. */
uint64_t gpu_window__ns(const struct gpu_window *w);

#endif
