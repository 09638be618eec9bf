/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Translates thread ids of a process in its own pid namespace into stepflame's namespace. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_TIDS_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_TIDS_H

#include <stdint.h>
#include <sys/types.h>

#include "user/proc/process.h"

/* Begins zeroed. */
struct gpu_tids {
	pid_t *tids, *nstids; /* owned */
	int cnt;
	uint64_t read_ns; /* when the list was read */
};

/* The tid in stepflame's namespace; 0: unknown. Reads the list at most five times per second. */
pid_t gpu_tids__translate(struct gpu_tids *tids, const struct process *process, uint32_t tid, uint64_t now_ns);
void gpu_tids__release(struct gpu_tids *tids);

#endif
