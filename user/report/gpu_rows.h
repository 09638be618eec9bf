/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rows of the GPU report: of some processes, added up, in order. */
#ifndef STEPFLAME_USER_REPORT_GPU_ROWS_H
#define STEPFLAME_USER_REPORT_GPU_ROWS_H

#include "user/analysis/gpu_time.h"
#include "user/model/gpu.h"
#include "user/report/report.h"

struct gpu_key {
	uint64_t name; /* of kernels: REC_NAME id of the mangled name, 0: not known */
	uint64_t op;   /* REC_NAME ids; 0: none, or not told apart */
	uint64_t action;
	uint64_t object;    /* of collectives: the communicator */
	uint32_t api;       /* enum gpu_api; 0 of kernels and copies; of graphs cudaGraphLaunch */
	uint16_t direction; /* enum gpu_direction */
	uint16_t dtype;     /* of collectives */
};

struct gpu_row {
	struct gpu_key key;
	uint64_t count; /* of a process that CUPTI watched what ran in its windows, else calls */
	uint64_t bytes;
	uint64_t total_ns; /* on the GPU for kernels, copies and sets, of those `timed`; else on the CPU */
	uint64_t min_ns, max_ns;
	uint64_t timed;     /* of count */
	uint64_t device_ns; /* of collectives: of their kernels */
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

/* All that the report is made of; texts are the job's. */
struct gpu_view {
	struct job *job;
	const struct report_options *options;
	const struct gpu *gpu;
	struct steps *steps;
	struct gpu_time *time;
};

/* Of one process, or of PROCESSES_ALL_MAIN. */
struct gpu_rows {
	uint32_t pid;
	struct gpu_table tables[GPU_TABLE__COUNT];
	enum gpu_tier tier; /* the best of them */
	size_t process_cnt;
	uint64_t work_ns;    /* that GPUs were busy */
	uint64_t watched_ns; /* of so much */
	uint64_t compute_ns, comm_ns, overlap_ns;
	uint64_t idle_ns[GPU_IDLE__COUNT];
	uint64_t elsewhere; /* with --action: activities of the GPU whose action is not known */
};

extern const char *const gpu_rows__sort_keys[];

/* 0 or -ENOMEM. */
int gpu_view__open(struct gpu_view *view, struct job *job, const struct report_options *options);
void gpu_view__close(struct gpu_view *view);
/* NULL: the recording does not describe it. */
const struct rec_gpu_device *gpu_view__device(const struct gpu_view *view, uint32_t pid, uint32_t device);
/* 0 or -ENOMEM. */
int gpu_rows__collect(const struct gpu_view *view, uint32_t pid, struct gpu_rows *out);
void gpu_rows__release(struct gpu_rows *rows);
/* Processes that have a table of their own with --per-rank, malloc'ed. 0 or -ENOMEM. */
int gpu_rows__processes(const struct gpu_view *view, struct rec_target **out, size_t *cnt);

/* Of a kernel or graph for people: demangled. malloc'ed; NULL: no memory. */
char *gpu_row__kernel_name(struct job *job, const struct gpu_row *row);
/* Of its operator, without the overload unless that is told apart; malloc'ed, NULL: no memory. */
char *gpu_row__op_name(const struct gpu_view *view, const struct gpu_row *row);
/* "float32" of an ncclDataType_t. */
const char *gpu_row__dtype(unsigned int dtype);

/* The last readings of a GPU of the host, or means over all of them. */
struct gpu_usage {
	uint32_t device;
	const char *name;
	uint64_t samples;
	double busy_percent, memory_busy_percent, power_w, temperature_c, sm_mhz; /* means; below 0: not known */
	uint64_t memory_used_bytes;                                               /* the most */
	uint64_t memory_bytes;
};

/* By device, malloc'ed. 0 or -ENOMEM. */
int gpu_usage__list(const struct gpu *gpu, struct gpu_usage **out, size_t *cnt);

/* What calls come to in a step: means over the whole steps of main processes, or of one. */
struct gpu_per_step {
	uint64_t steps;
	double launches, copies, copied_bytes, api_ns, sync_ns;
};

struct gpu_per_step gpu_per_step__of(const struct gpu_view *view, uint32_t pid);

#endif
