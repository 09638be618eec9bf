/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State of a process's GPU that two sources share: gpu.c for the calls, cupti.c for the activity; and
 * where the probes of calls go, for tools.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_H

#include "include/gpu_records.h"
#include "user/session/state.h"

/* Per target: the contents of its REC_GPU. */
struct gpu_target {
	bool seen;     /* stepflame probes its calls, or CUPTI has reported activity */
	uint32_t tier; /* this and all below: as in struct rec_gpu */
	uint32_t cupti_version;
	uint64_t cupti_ns, lost;
	char why[96];
};

static inline struct gpu_target *gpu__of(const struct target *t)
{
	return target__state(t, SOURCE_GPU);
}

/*
 * Makes BPF emit each call of the process from now on (REC_GPU_CALL), or stop doing so. 0 or
 * -errno.
 */
int gpu__emit_calls(struct session *s, const struct target *t, bool each);

/*
 * Adds the probes on the CUDA and NCCL functions of a file: exits and entries to separate lists, since
 * exits attach first. Returns how many functions can be traced, or -ENOMEM; skips functions on which
 * no probe can be placed.
 */
int gpu__add_functions(const struct elf *elf, struct probe_list *ends, struct probe_list *begins);
/* The same, from the cache if possible: sets[0] gets the exits, sets[1] the entries. 0 or -ENOMEM. */
int gpu__find_functions(const struct elf *elf, struct probe_list sets[2]);

#endif
