/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GPUs: the records of gpu_records.h in; processes, calls, and what the GPU did, joined to the call that asked for it,
 * out. Part of the job (job.h), which owns it: job__gpu.
 */
#ifndef STEPFLAME_USER_MODEL_GPU_H
#define STEPFLAME_USER_MODEL_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/gpu_records.h"
#include "user/lib/array.h"
#include "user/lib/intern.h"
#include "user/lib/names.h"
#include "user/model/stacks.h"

/* A process that has CUDA: REC_GPU, or another record that names it. */
struct gpu_process {
	uint32_t pid;
	enum gpu_tier tier; /* at least what its records show */
	uint64_t cupti_ns;
	uint64_t lost;
	uint32_t cupti_version;
	char why[104]; /* UTF-8; why it is not a better tier, else empty */

	/* Of its activities on the GPU: kernels, copies, sets, graphs. */
	uint64_t activities;
	uint64_t unasked;  /* of them: those whose CALL is not there */
	uint64_t unjoined; /* of them: those with no gpu_call, these included */
};

/* The last state of REC_GPU_CALLS of a key. */
struct gpu_calls {
	struct gpu_calls_key key; /* of a launch object is the REC_NAME id of the kernel's mangled name; 0: not known */
	struct gpu_calls_val val;
};

/* REC_GPU_CALL: one call, as the probes saw it. */
struct gpu_call {
	uint64_t start_ns, duration_ns;
	uint64_t op, action; /* REC_NAME ids as in struct gpu_calls_key; 0: none */
	uint64_t object;     /* an address */
	uint64_t bytes;
	uint32_t pid, tid;
	uint32_t path;     /* number for stacks__path; 0: none */
	uint32_t step;     /* boundaries in the process before it */
	uint16_t api;      /* enum gpu_api */
	uint8_t direction; /* enum gpu_direction */
	uint8_t dtype;
	uint64_t device_ns;  /* on the GPU, of the activities that are joined to it; saturates */
	uint32_t activities; /* how many these are */
};

#define GPU_NOT_JOINED UINT32_MAX

/* REC_GPU_ACTIVITY. */
struct gpu_act {
	uint64_t start_ns, duration_ns; /* their sum does not overflow */
	uint64_t name;                  /* REC_NAME id: of a kernel (mangled), of a function; 0: none */
	uint64_t bytes;
	uint32_t pid, tid;
	uint32_t correlation;
	uint32_t device, context, stream;
	uint16_t kind;     /* enum gpu_activity */
	uint8_t direction; /* enum gpu_direction */
	uint8_t is_comm;   /* a kernel of NCCL, by its name */
	uint32_t
		asked_by; /* index in gpu__activities: its GPU_ACTIVITY_CALL; GPU_NOT_JOINED. Of a CALL itself: its own */
	uint32_t call;    /* index in gpu__calls: that call as the probes saw it; GPU_NOT_JOINED. Also of a CALL */
	uint32_t detail[8]; /* as in struct gpu_ring_activity */
};

struct gpu {
	struct array told;       /* struct rec_gpu by number of pids - 1, zeroed where it did not come */
	struct intern pids;      /* of all records */
	struct array processes;  /* struct gpu_process */
	struct map sums;         /* struct gpu_calls */
	struct array calls;      /* struct gpu_call */
	struct array activities; /* struct gpu_act */
	struct array steps;      /* struct rec_gpu_step */
	struct intern device_ids;
	struct array devices; /* struct rec_gpu_device, sorted by gpu__join into: */
	struct array sorted_devices;
	struct array usages; /* struct rec_gpu_usage */
	struct intern window_ids;
	struct array windows; /* struct rec_gpu_window, sorted by gpu__join into: */
	struct array sorted_windows;
	bool joined; /* since the last record */
};

/* Takes one of the records, whose size holds its struct. 0, -ENOMEM, or -EINVAL when it makes no sense. */
int gpu__add(struct gpu *gpu, struct stacks *stacks, const struct rec_hdr *record);
/*
 * Sorts, joins activities to calls, and drops what was asked for outside of the time observed (CUPTI begins before a window
 * of steps does, and ends after it; NULL: of no time); does nothing when no record came. 0 or -ENOMEM.
 */
int gpu__join(struct gpu *gpu, const struct names *names, const struct rec_window *window);

/* All below: after gpu__join, valid until the next record; NULL only with *cnt == 0. */

/* By pid. */
const struct gpu_process *gpu__processes(const struct gpu *gpu, size_t *cnt);
/* NULL: it is not known to have CUDA. */
const struct gpu_process *gpu__process(const struct gpu *gpu, uint32_t pid);
const struct gpu_calls *gpu__sums(const struct gpu *gpu, size_t *cnt);
/* By pid, tid and start. They do not overlap within a thread, unless the recording lies. */
const struct gpu_call *gpu__calls(const struct gpu *gpu, size_t *cnt);
/* By pid and start. */
const struct gpu_act *gpu__activities(const struct gpu *gpu, size_t *cnt);
/* By pid and time. */
const struct rec_gpu_step *gpu__steps(const struct gpu *gpu, size_t *cnt);
/* By pid and number; the last state each. Names are UTF-8 that ends. */
const struct rec_gpu_device *gpu__devices(const struct gpu *gpu, size_t *cnt);
/* By device and time, likewise. */
const struct rec_gpu_usage *gpu__usages(const struct gpu *gpu, size_t *cnt);

/* By pid and index; the last state each. start_ns is not behind end_ns, and end below GPU_WINDOW__COUNT. */
const struct rec_gpu_window *gpu__windows(const struct gpu *gpu, size_t *cnt);

/* The call of the CPU, as CUPTI saw it; NULL: not joined. */
const struct gpu_act *gpu__asked_by(const struct gpu *gpu, const struct gpu_act *activity);
/* The call with its operator, action, step and path, as the probes saw it; NULL: not joined. */
const struct gpu_call *gpu__call_of(const struct gpu *gpu, const struct gpu_act *activity);

/* Is it work of the GPU: a kernel, copy, set or graph? */
static inline bool gpu_act__is_work(const struct gpu_act *activity)
{
	return activity->kind >= GPU_ACTIVITY_KERNEL && activity->kind <= GPU_ACTIVITY_GRAPH;
}

static inline uint64_t gpu_act__end_ns(const struct gpu_act *activity)
{
	return activity->start_ns + activity->duration_ns;
}

const char *gpu_api__name(unsigned int api);             /* "cudaLaunchKernel"; "" for what is none */
const char *gpu_window__end_name(unsigned int end);      /* "steps" */
enum gpu_class gpu_api__class(unsigned int api);         /* GPU_NONE for what is none */
const char *gpu_direction__name(unsigned int direction); /* "host to device" */
/* A function's name as CUPTI has it ("cudaLaunchKernel_v7000", "cuMemcpyHtoDAsync_v2_ptsz"); GPU_API_NONE: not watched. */
enum gpu_api gpu_api__find(const char *name);

/* Drops calls, activities, steps and usages; sums, processes and devices stay. */
void gpu__forget(struct gpu *gpu);
/* Leaves it empty. */
void gpu__free(struct gpu *gpu);

#endif
