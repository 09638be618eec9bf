/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads of a process that has a PID namespace of its own: as it numbers them, and as we do. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_TIDS_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_TIDS_H

#include <stdint.h>
#include <sys/types.h>

#include "user/proc/process.h"

/* Begins zeroed. */
struct gpu_tids {
	pid_t *tids, *nstids; /* owned */
	int cnt;
	uint64_t read_ns; /* when the list was */
};

/* A thread as we number it; 0: not known. The list is read again some times a second at most. */
pid_t gpu_tids__translate(struct gpu_tids *tids, const struct process *process, uint32_t tid, uint64_t now_ns);
void gpu_tids__release(struct gpu_tids *tids);

#endif
