/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Device time of operators: what GPUs did, given to the innermost operator, node or label whose call asked for it, and
 * to those around it, as torch.profiler has it; and what they did by itself. Of what was asked for while operators were
 * counted.
 */
#ifndef STEPFLAME_USER_ANALYSIS_GPU_OPS_H
#define STEPFLAME_USER_ANALYSIS_GPU_OPS_H

#include "user/model/gpu.h"
#include "user/model/job.h"

/* What was done for the rows of the operator table of one key. */
struct gpu_op {
	struct op_key key; /* of its group the low half, 0: none, or the calls do not tell */
	uint64_t self_ns;
	uint64_t total_ns; /* with what is inside */
};

/* Kernels of one name, copies of one direction, ... */
struct gpu_work {
	const char *name; /* as Kineto names it; UTF-8, control characters as they came; owned by the gpu_ops */
	uint32_t pid;
	enum gpu_activity kind;
	uint64_t action; /* of the call that asked for it; 0: none, not known */
	uint64_t cnt, total_ns;
};

struct gpu_ops {
	struct map ops;     /* struct gpu_op */
	struct array works; /* struct gpu_work, in the order of their first start */
	struct array texts; /* char * */
	bool groups_told;   /* calls tell groups; else each op is of all groups */
	bool without_paths; /* some calls are known without what is around their operator: totals lack it */
};

/* 0 or -ENOMEM. Free with gpu_ops__release. The job takes no record meanwhile. */
int gpu_ops__new(struct job *job, struct gpu_ops *out);
void gpu_ops__release(struct gpu_ops *ops);
/* NULL: nothing was done for it. */
const struct gpu_op *gpu_ops__find(const struct gpu_ops *ops, const struct op_row *row);

/*
 * What a GPU did, as Kineto names it: "at::native::reduce_kernel<ReduceOp sum_functor ...>", "Memcpy HtoD",
 * "Memset (Device)"; of a call its function. Of which kind of memory a copy is from is not known. name: REC_NAME id,
 * 0: none. malloc'ed; NULL: no memory.
 */
char *gpu_work__text(struct job *job, enum gpu_activity kind, enum gpu_direction direction, uint64_t name);

#endif
