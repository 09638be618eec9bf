/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records about GPUs; records.h describes what all records share. */
#ifndef STEPFLAME_INCLUDE_GPU_RECORDS_H
#define STEPFLAME_INCLUDE_GPU_RECORDS_H

#include "include/gpu.h"
#include "include/records.h"
#include "include/row.h"

/* One per process that has CUDA. */
struct rec_gpu {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tier;          /* enum gpu_tier (include/gpu.h): the highest so far */
	__u64 cupti_ns;      /* how long CUPTI was active in its windows */
	__u64 lost;          /* activities lost by CUPTI, in the ring, or while reading the ring */
	__u32 cupti_version; /* 0: libcupti is not open */
	__u32 pad;
	char why[96]; /* why the tier is not higher, not 0-terminated when full; empty: it is the highest */
};

/*
 * A call nested in another one (the runtime calls the driver) is part of the outer call and is not
 * counted. A libcudart function without a symbol cannot be probed: the driver calls that it makes
 * are counted instead.
 */
struct gpu_calls_key {
	__u32 pid;
	__u16 api;      /* enum gpu_api */
	__u8 direction; /* enum gpu_direction */
	__u8 dtype;     /* ncclDataType_t, for NCCL collectives */
	__u64 action;   /* name id, as in struct op_key */
	__u64 op;       /* name id of the innermost operator or node around the call; 0: none, or operators are off */
	/*
	 * For a launch, the kernel: its host function or CUfunction; in files the REC_NAME id of
	 * its mangled name, 0: unknown. For NCCL, the communicator.
	 */
	__u64 object;
};

struct gpu_calls_val {
	__u64 calls;
	__u64 total_ns; /* on the CPU */
	__u64 max_ns;
	__u64 bytes;
};

/* A row of the open hash table in which BPF counts the calls. */
struct gpu_entry {
	struct row_head head;
	struct gpu_calls_val val;
	struct gpu_calls_key key;
};

#define GPU_ROWS 16384

struct rec_gpu_calls {
	struct rec_hdr hdr;
	struct gpu_calls_key key;
	struct gpu_calls_val val;
};

/* One call, emitted as it ends: launches, graphs, copies, sets, waits and collectives. */
struct rec_gpu_call {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 duration_ns;
	struct gpu_calls_key key; /* object is the address from BPF, also in files */
	__u64 bytes;
	__u64 path; /* REC_PATH id of the spans around the call; 0: none, or samples are off */
	__u32 tid;
	__u32 step; /* step boundaries in the process before the call */
};

/* An object of struct gpu_calls_key that BPF counts for the first time. */
struct rec_gpu_object {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 api; /* enum gpu_api */
	__u64 object;
};

/*
 * Sums over all threads of a process between two step boundaries of any rule; emitted with the
 * REC_STEP at the end.
 */
struct rec_gpu_step {
	struct rec_hdr hdr;
	__u64 time_ns; /* of the boundary at the end */
	__u64 from_ns; /* of the boundary before */
	__u32 pid;
	__u32 pad;
	__u64 launches; /* kernels and graphs */
	__u64 copies;
	__u64 copied_bytes;
	__u64 api_ns;  /* in calls other than waits */
	__u64 sync_ns; /* in waits */
};

/* As struct gpu_ring_activity, with times on CLOCK_MONOTONIC. */
struct rec_gpu_activity {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 duration_ns;
	__u64 name;  /* REC_NAME id of a kernel (mangled) or a function; 0: none */
	__u64 bytes; /* of a copy or set; for a kernel, its shared memory */
	__u32 pid;
	__u32 tid;         /* for CALL and OVERHEAD: the thread, as stepflame numbers it; else 0 */
	__u32 correlation; /* id of the CALL that requested the activity */
	__u16 kind;        /* enum gpu_activity */
	__u16 direction;   /* enum gpu_direction */
	__u32 device;
	__u32 context;
	__u32 stream;
	__u32 pad;
	__u32 detail[8]; /* as in struct gpu_ring_activity; for CALL the first is 0 */
};

/* X(id, name): why a CUPTI window ended. */
#define STEPFLAME_GPU_WINDOW_ENDS(X)                                                                                 \
	X(OPEN, "open")   /* it was still open when the recording was cut off: activities that ended are recorded */ \
	X(STEPS, "steps") /* the scheduled steps were over */                                                        \
	X(RECORDING, "recording") /* the recording ended */                                                          \
	X(EXIT, "exit")           /* the process ended, or called exec */                                            \
	X(BUSY, "busy")           /* it never began: another tool was using CUPTI */                                 \
	X(FAILED, "failed")       /* it never began: CUPTI failed, see error */                                      \
	X(LATE, "late")           /* it never began: the steps were over before CUPTI was active */

enum gpu_window_end {
#define X(id, name) GPU_WINDOW_##id,
	STEPFLAME_GPU_WINDOW_ENDS(X)
#undef X
		GPU_WINDOW__COUNT,
};

/*
 * The recording holds what the GPU did between start_ns and end_ns. BPF emits this record at the
 * boundaries of the schedule: index is the window's index in the schedule, start_ns is 0 during the
 * warm-up, end_ns is the end of the last step; user space fills in the rest.
 */
struct rec_gpu_window {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 index; /* 0, 1, ... */
	__u64 start_ns;
	__u64 end_ns; /* so far; equals start_ns when the window never began */
	__u32 end;    /* enum gpu_window_end */
	__u32 error;  /* CUptiResult, for FAILED */
};

struct rec_gpu_device {
	struct rec_hdr hdr;
	__u32 pid; /* process that gives the GPU this device number */
	__u32 device;
	__u64 memory_bytes;
	__u32 multiprocessors;
	__u32 compute; /* major << 16 | minor */
	char name[64];
};

#define GPU_UNKNOWN 0xffffffffu

/* Usage of the host's GPU number `device`, sampled once a second. */
struct rec_gpu_usage {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u64 memory_used_bytes;
	__u64 memory_bytes; /* 0: unknown, and so is memory_used_bytes */
	__u32 device;
	__u32 busy_percent; /* GPU_UNKNOWN: NVML does not say; likewise below */
	__u32 memory_busy_percent;
	__u32 power_mw;
	__u32 temperature_c;
	__u32 sm_mhz;
	char name[64];
};

/* A process has used the host's GPU number `device`, as REC_GPU_USAGE numbers it. */
struct rec_gpu_user {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 device;
};

#endif
