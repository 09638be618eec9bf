/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records about GPUs; see records.h for what all records have. */
#ifndef STEPFLAME_INCLUDE_GPU_RECORDS_H
#define STEPFLAME_INCLUDE_GPU_RECORDS_H

#include "include/gpu.h"
#include "include/records.h"
#include "include/row.h"

/* Of a process that has CUDA. */
struct rec_gpu {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tier;          /* enum gpu_tier (include/gpu.h): the best so far */
	__u64 cupti_ns;      /* how long CUPTI was at work in its windows */
	__u64 lost;          /* activities that were lost: by CUPTI, in the ring, in reading it */
	__u32 cupti_version; /* 0: not opened */
	__u32 pad;
	char why[96]; /* why it is not a better one, not 0-terminated if as long; empty: it is the best */
};

/*
 * Calls that lie inside of another one (the runtime's of the driver's) are not counted: they are part of it. Calls of
 * libcudart that are no symbol of it, and so cannot be seen, count as those of the driver that they make.
 */
struct gpu_calls_key {
	__u32 pid;
	__u16 api;      /* enum gpu_api */
	__u8 direction; /* enum gpu_direction */
	__u8 dtype;     /* ncclDataType_t, of the collectives of NCCL */
	__u64 action;   /* name id, as in struct op_key */
	__u64 op;       /* name id of the innermost operator or node around it; 0: none, or they are not recorded */
	/*
	 * Of a launch the kernel: its host function or CUfunction, in files the REC_NAME id of its mangled name, 0 not
	 * known. Of NCCL the communicator.
	 */
	__u64 object;
};

struct gpu_calls_val {
	__u64 calls;
	__u64 total_ns; /* on the CPU */
	__u64 max_ns;
	__u64 bytes;
};

/* A row of the table in which BPF counts: an open hash table. */
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

/* Told when it ended, of launches, graphs, copies, sets, waits and collectives. */
struct rec_gpu_call {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 duration_ns;
	struct gpu_calls_key key; /* object as BPF has it, also in files: an address */
	__u64 bytes;
	__u64 path; /* REC_PATH id of the spans around it, 0: none, or there are no samples */
	__u32 tid;
	__u32 step; /* boundaries in the process before it */
};

/* An object of struct gpu_calls_key that has its first row. */
struct rec_gpu_object {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 api; /* enum gpu_api */
	__u64 object;
};

/* Of all threads of the process between two boundaries, of whichever; comes with the REC_STEP that ends it. */
struct rec_gpu_step {
	struct rec_hdr hdr;
	__u64 time_ns; /* of the boundary at its end */
	__u64 from_ns; /* of the boundary before */
	__u32 pid;
	__u32 pad;
	__u64 launches; /* kernels and graphs */
	__u64 copies;
	__u64 copied_bytes;
	__u64 api_ns;  /* in calls, but for waits */
	__u64 sync_ns; /* in waits */
};

/* As struct gpu_ring_activity, with times of CLOCK_MONOTONIC. */
struct rec_gpu_activity {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 duration_ns;
	__u64 name;  /* REC_NAME id: of a kernel (mangled), of a function; 0: none */
	__u64 bytes; /* of a copy or set; of a kernel its shared memory */
	__u32 pid;
	__u32 tid;         /* of CALL: the thread, as stepflame sees it; else 0 */
	__u32 correlation; /* that of the CALL which asked for it */
	__u16 kind;        /* enum gpu_activity */
	__u16 direction;   /* enum gpu_direction */
	__u32 device;
	__u32 context;
	__u32 stream;
	__u32 pad;
	__u32 detail[8]; /* as in struct gpu_ring_activity; of CALL the first is 0 */
};

/* X(id, name): why a window of CUPTI's ended. */
#define STEPFLAME_GPU_WINDOW_ENDS(X)                                                                             \
	X(OPEN, "open")           /* it had not when the recording was cut off: up to here is told what ended */ \
	X(STEPS, "steps")         /* the schedule's steps were over */                                           \
	X(RECORDING, "recording") /* the recording was */                                                        \
	X(EXIT, "exit")           /* the process ended, or called exec */                                        \
	X(BUSY, "busy")           /* none began: another tool had CUPTI */                                       \
	X(FAILED, "failed")       /* none began: CUPTI could not be had, see error */                            \
	X(LATE, "late")           /* none began: the steps were over before CUPTI was at work */

enum gpu_window_end {
#define X(id, name) GPU_WINDOW_##id,
	STEPFLAME_GPU_WINDOW_ENDS(X)
#undef X
		GPU_WINDOW__COUNT,
};

/*
 * What a GPU did between the two instants is told. BPF sends it at the boundaries of the schedule: index is that of the
 * window there, start_ns 0 for its warm-up, end_ns that of its last step; the rest is user space's.
 */
struct rec_gpu_window {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 index; /* 0, 1, ... */
	__u64 start_ns;
	__u64 end_ns; /* so far; of one that did not begin start_ns */
	__u32 end;    /* enum gpu_window_end */
	__u32 error;  /* CUptiResult, of FAILED */
};

struct rec_gpu_device {
	struct rec_hdr hdr;
	__u32 pid; /* that numbers it so */
	__u32 device;
	__u64 memory_bytes;
	__u32 multiprocessors;
	__u32 compute; /* major << 16 | minor */
	char name[64];
};

#define GPU_UNKNOWN 0xffffffffu

/* Of the host's GPU of that number, sampled once a second. */
struct rec_gpu_usage {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u64 memory_used_bytes;
	__u64 memory_bytes; /* 0: not told, as memory_used_bytes */
	__u32 device;
	__u32 busy_percent; /* GPU_UNKNOWN: not told; so below */
	__u32 memory_busy_percent;
	__u32 power_mw;
	__u32 temperature_c;
	__u32 sm_mhz;
	char name[64];
};

#endif
