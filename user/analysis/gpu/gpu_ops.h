/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Device time of operators: what GPUs did, credited to the innermost operator, node or label whose
 * call asked for it, and to the enclosing ones, as torch.profiler does; and what GPUs did by kind
 * of work. Covers what was asked for while operators were counted.
 */
#ifndef STEPFLAME_USER_ANALYSIS_GPU_GPU_OPS_H
#define STEPFLAME_USER_ANALYSIS_GPU_GPU_OPS_H

#include "user/model/gpu.h"
#include "user/model/job.h"

/* GPU time of the rows with one key in the operator table. */
struct gpu_op {
	struct op_key key; /* its group is the low half only; 0: no group, or the calls do not record it */
	uint64_t self_ns;
	uint64_t total_ns; /* including what is nested inside */
};

/* Kernels of one name, copies in one direction, and so on. */
struct gpu_work {
	const char *name; /* as Kineto names it; UTF-8, control characters unchanged; owned by the gpu_ops */
	uint32_t pid;
	enum gpu_activity kind;
	uint64_t action; /* of the call that asked for it; 0: no action, or not known */
	uint64_t cnt, total_ns;
};

struct gpu_ops {
	struct map ops;     /* struct gpu_op */
	struct array works; /* struct gpu_work, by their first start */
	struct array texts; /* char * */
	bool groups_known;  /* calls record groups; else each op covers all groups */
	bool without_paths; /* some calls lack the spans around their operator, so totals lack their time */
};

/* 0 or -ENOMEM. Free with gpu_ops__release. The job must not take records meanwhile. */
int gpu_ops__new(struct job *job, struct gpu_ops *out);
void gpu_ops__release(struct gpu_ops *ops);
/* NULL: GPUs did nothing for the row. */
const struct gpu_op *gpu_ops__find(const struct gpu_ops *ops, const struct op_row *row);

/*
 * What a GPU did, as Kineto names it: "at::native::reduce_kernel<ReduceOp sum_functor ...>",
 * "Memcpy HtoD", "Memset (Device)"; for a call, its function. The records do not say which kind of
 * memory a copy reads. name: REC_NAME id, 0: no name. malloc'ed; NULL: no memory.
 */
char *gpu_work__text(struct job *job, enum gpu_activity kind, enum gpu_direction direction, uint64_t name);

#endif
