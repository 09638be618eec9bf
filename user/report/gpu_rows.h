/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rows of the GPU report: added up over processes, and sorted. */
#ifndef STEPFLAME_USER_REPORT_GPU_ROWS_H
#define STEPFLAME_USER_REPORT_GPU_ROWS_H

#include "user/analysis/gpu/gpu_time.h"
#include "user/model/gpu.h"
#include "user/report/report.h"

struct gpu_key {
	uint64_t name; /* kernels: REC_NAME id of the mangled name; 0: unknown */
	uint64_t op;   /* REC_NAME ids; 0: none, or rows are not split by it */
	uint64_t action;
	uint64_t object;    /* collectives: the communicator */
	uint32_t api;       /* enum gpu_api; 0 for kernels and copies; cudaGraphLaunch for graphs */
	uint16_t direction; /* enum gpu_direction */
	uint16_t dtype;     /* collectives */
};

struct gpu_row {
	struct gpu_key key;
	uint64_t count; /* activities in CUPTI's windows where CUPTI watched the process, else calls */
	uint64_t bytes;
	uint64_t total_ns; /* time on the GPU of the `timed` kernels, copies and sets; else time on the CPU */
	uint64_t min_ns, max_ns;
	uint64_t timed;     /* how many of count have a time */
	uint64_t device_ns; /* collectives: time of their kernels */
	uint64_t device_cnt;
};

enum gpu_table_id {
	GPU_TABLE_KERNELS,
	GPU_TABLE_COPIES,
	GPU_TABLE_SETS,
	GPU_TABLE_APIS,
	GPU_TABLE_COLLECTIVES,
	GPU_TABLE_MEMORY,
	GPU_TABLE__COUNT
};

struct gpu_table {
	struct gpu_row *rows; /* malloc'ed */
	size_t cnt;
	struct gpu_row sum;
};

/* Everything that the report is made from. The job owns the texts. */
struct gpu_view {
	struct job *job;
	const struct report_options *options;
	const struct gpu *gpu;
	struct steps *steps;
	struct gpu_time *time;
};

/* Rows of one process, or of PROCESSES_ALL_MAIN. */
struct gpu_rows {
	uint32_t pid;
	struct gpu_table tables[GPU_TABLE__COUNT];
	enum gpu_tier tier; /* the best tier of the processes */
	size_t process_cnt;
	uint64_t work_ns;    /* time that GPUs were busy */
	uint64_t watched_ns; /* time that CUPTI watched them */
	uint64_t compute_ns, comm_ns, overlap_ns;
	uint64_t idle_ns[GPU_IDLE__COUNT];
	uint64_t elsewhere; /* with --action: GPU activities whose action is unknown */
};

extern const char *const gpu_rows__sort_keys[];

/* 0 or -ENOMEM. */
int gpu_view__open(struct gpu_view *view, struct job *job, const struct report_options *options);
void gpu_view__close(struct gpu_view *view);
/* Returns NULL where the recording does not describe the device. */
const struct rec_gpu_device *gpu_view__device(const struct gpu_view *view, uint32_t pid, uint32_t device);
/* 0 or -ENOMEM. */
int gpu_rows__collect(const struct gpu_view *view, uint32_t pid, struct gpu_rows *out);
void gpu_rows__release(struct gpu_rows *rows);
/* Lists the processes that have a table of their own with --per-rank; malloc'ed. 0 or -ENOMEM. */
int gpu_rows__processes(const struct gpu_view *view, struct rec_target **out, size_t *cnt);

/* Returns the name of a row of that table for people; malloc'ed. NULL: no memory. In gpu.c. */
char *gpu_row__name(const struct gpu_view *view, enum gpu_table_id id, const struct gpu_row *row);
/*
 * Returns the name of the row's operator, without the overload unless rows are split by overload;
 * malloc'ed. NULL: no memory.
 */
char *gpu_row__op_name(const struct gpu_view *view, const struct gpu_row *row);
/* Returns the name of an ncclDataType_t, such as "float32". */
const char *gpu_row__dtype(unsigned int dtype);

/* How busy a GPU of the host was, by all readings of it. */
struct gpu_usage {
	uint32_t device;
	const char *name;
	uint64_t samples;
	double busy_percent, memory_busy_percent, power_w, temperature_c, sm_mhz; /* means; below 0: not known */
	uint64_t memory_used_bytes;                                               /* the most */
	uint64_t memory_bytes;
};

/* Lists the GPUs in order of device; malloc'ed. 0 or -ENOMEM. */
int gpu_usage__list(const struct gpu *gpu, struct gpu_usage **out, size_t *cnt);

/* What one step calls: means over the whole steps of one process, or of all main processes. */
struct gpu_per_step {
	uint64_t steps;
	double launches, copies, copied_bytes, api_ns, sync_ns;
};

struct gpu_per_step gpu_per_step__of(const struct gpu_view *view, uint32_t pid);

#endif
