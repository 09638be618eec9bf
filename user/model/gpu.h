/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GPUs: takes the records of gpu_records.h, and returns processes, calls and GPU activities, each
 * activity joined to the call that asked for it. Part of the job (job.h), which owns it: job__gpu.
 */
#ifndef STEPFLAME_USER_MODEL_GPU_H
#define STEPFLAME_USER_MODEL_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/gpu_records.h"
#include "user/lib/array.h"
#include "user/lib/map.h"
#include "user/lib/names.h"
#include "user/model/stacks.h"

/* A process that uses CUDA: REC_GPU, or another GPU record, names it. */
struct gpu_process {
	uint32_t pid;
	enum gpu_tier tier; /* at least the tier that its records show */
	uint64_t cupti_ns;
	uint64_t lost;
	uint32_t cupti_version;
	char why[104]; /* UTF-8; why the tier is not a better one, else empty */

	/* Counts of its GPU activities: kernels, copies, sets, graphs. */
	uint64_t activities;
	uint64_t unasked;  /* those without a CALL activity */
	uint64_t unjoined; /* those without a gpu_call, including the unasked ones */
};

/* The last state of one key of REC_GPU_CALLS. */
struct gpu_calls {
	struct gpu_calls_key
		key; /* its object, for a launch, is the REC_NAME id of the kernel's mangled name; 0: not known */
	struct gpu_calls_val val;
};

/* REC_GPU_CALL: one call, as the probes saw it. */
struct gpu_call {
	uint64_t start_ns, duration_ns;
	uint64_t op, action; /* REC_NAME ids as in struct gpu_calls_key; 0: not in one */
	uint64_t object;     /* an address */
	uint64_t bytes;
	uint32_t pid, tid;
	uint32_t path;     /* number for stacks__path; 0: no path */
	uint32_t step;     /* number of boundaries in the process before the call */
	uint16_t api;      /* enum gpu_api */
	uint8_t direction; /* enum gpu_direction */
	uint8_t dtype;
	uint64_t device_ns;  /* GPU time of the activities joined to this call; saturating */
	uint32_t activities; /* number of those activities */
};

#define GPU_NOT_JOINED UINT32_MAX

/* REC_GPU_ACTIVITY. */
struct gpu_act {
	uint64_t start_ns, duration_ns; /* their sum does not overflow */
	uint64_t name;                  /* REC_NAME id of a kernel (mangled) or function; 0: no name */
	uint64_t bytes;
	uint32_t pid, tid;
	uint32_t correlation;
	uint32_t device, context, stream;
	uint16_t kind;     /* enum gpu_activity */
	uint8_t direction; /* enum gpu_direction */
	uint8_t is_comm;   /* a kernel of NCCL, judged by its name */
	uint32_t
		asked_by; /* index in gpu__activities of its GPU_ACTIVITY_CALL (itself for a CALL); or GPU_NOT_JOINED */
	uint32_t call;    /* index in gpu__calls: the call as the probes saw it (also for a CALL); or GPU_NOT_JOINED */
	uint32_t detail[8]; /* as in struct gpu_ring_activity */
};

struct gpu {
	struct array records;    /* struct rec_gpu by number in pids - 1, zeroed where no record came */
	struct intern pids;      /* the pids of all records */
	struct array processes;  /* struct gpu_process */
	struct map totals;       /* struct gpu_calls */
	struct array calls;      /* struct gpu_call */
	struct array activities; /* struct gpu_act */
	struct array steps;      /* struct rec_gpu_step */
	struct intern device_ids;
	struct array devices; /* struct rec_gpu_device; gpu__join sorts them into: */
	struct array sorted_devices;
	struct array usages; /* struct rec_gpu_usage */
	struct intern users; /* pid << 32 | device of REC_GPU_USER */
	struct intern window_ids;
	struct array windows; /* struct rec_gpu_window; gpu__join sorts them into: */
	struct array sorted_windows;
	bool joined; /* no record came since the last gpu__join */
};

/*
 * Takes one GPU record; the caller has checked its size. 0, -ENOMEM, or -EINVAL for an invalid
 * record.
 */
int gpu__add(struct gpu *gpu, struct stacks *stacks, const struct rec_hdr *record);
/*
 * Sorts, joins activities to calls, and drops the activities that were asked for outside the
 * window. CUPTI starts before a window of steps and stops after it, so it reports such activities.
 * window NULL: drops nothing. Does nothing when no record came since the last call. 0 or -ENOMEM.
 */
int gpu__join(struct gpu *gpu, const struct names *names, const struct rec_window *window);

/*
 * The functions below need gpu__join first. Their results are valid until the next record, and NULL
 * only with *cnt == 0.
 */

/* Sorted by pid. */
const struct gpu_process *gpu__processes(const struct gpu *gpu, size_t *cnt);
/* NULL: the process is not known to use CUDA. */
const struct gpu_process *gpu__process(const struct gpu *gpu, uint32_t pid);
const struct gpu_calls *gpu__totals(const struct gpu *gpu, size_t *cnt);
/*
 * Sorted by pid, tid and start. Calls of one thread do not overlap, unless the recording is
 * corrupt.
 */
const struct gpu_call *gpu__calls(const struct gpu *gpu, size_t *cnt);
/* Sorted by pid and start. */
const struct gpu_act *gpu__activities(const struct gpu *gpu, size_t *cnt);
/* Sorted by pid and time. */
const struct rec_gpu_step *gpu__steps(const struct gpu *gpu, size_t *cnt);
/* Sorted by pid and number; the last state of each. Names are NUL-terminated UTF-8. */
const struct rec_gpu_device *gpu__devices(const struct gpu *gpu, size_t *cnt);
/* Sorted by device and time; the last state of each. */
const struct rec_gpu_usage *gpu__usages(const struct gpu *gpu, size_t *cnt);

/* Whether NVML listed the process among those of a GPU of the host, numbered as in gpu__usages. */
bool gpu__uses(const struct gpu *gpu, uint32_t pid, uint32_t device);

/* Sorted by pid and index; the last state of each. start_ns <= end_ns, and end < GPU_WINDOW__COUNT. */
const struct rec_gpu_window *gpu__windows(const struct gpu *gpu, size_t *cnt);

/* The call on the CPU that asked for the activity, as CUPTI saw it; NULL: not joined. */
const struct gpu_act *gpu__asked_by(const struct gpu *gpu, const struct gpu_act *activity);
/* The same call as the probes saw it, with its operator, action, step and path; NULL: not joined. */
const struct gpu_call *gpu__call_of(const struct gpu *gpu, const struct gpu_act *activity);

/* Whether the activity is work on the GPU: a kernel, copy, set or graph. */
static inline bool gpu_act__is_work(const struct gpu_act *activity)
{
	return activity->kind >= GPU_ACTIVITY_KERNEL && activity->kind <= GPU_ACTIVITY_GRAPH;
}

static inline uint64_t gpu_act__end_ns(const struct gpu_act *activity)
{
	return activity->start_ns + activity->duration_ns;
}

const char *gpu_api__name(unsigned int api);        /* "cudaLaunchKernel"; "" for an invalid value */
const char *gpu_window__end_name(unsigned int end); /* "steps" */
/* A kind of overhead, as CUPTI numbers it. Returns a static text; "other" for an unknown one. */
const char *gpu_overhead__name(uint32_t kind);
const char *gpu_overhead__meaning(uint32_t kind);
bool gpu_overhead__is_profiling(uint32_t kind);          /* time that the process would not have lost without CUPTI */
enum gpu_class gpu_api__class(unsigned int api);         /* GPU_NONE for an invalid value */
const char *gpu_direction__name(unsigned int direction); /* "host to device" */
/*
 * Looks up a function name as CUPTI spells it ("cudaLaunchKernel_v7000",
 * "cuMemcpyHtoDAsync_v2_ptsz"). GPU_API_NONE: the function is not traced.
 */
enum gpu_api gpu_api__find(const char *name);

/* Drops calls, activities, steps and usages; keeps totals, processes and devices. */
void gpu__forget(struct gpu *gpu);
/* Frees all contents and leaves the struct empty. */
void gpu__free(struct gpu *gpu);

#endif
