/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Samples as a tree: process and thread, or instead of them the phase; Python frames by line; and below them what the sample
 * was in: operators (below a phase), native code, a system call, the kernel, a wait. Its texts are those of the job, so it ends before the job does, and takes no record in
 * between.
 */
#ifndef STEPFLAME_USER_ANALYSIS_CALLTREE_H
#define STEPFLAME_USER_ANALYSIS_CALLTREE_H

#include "include/gpu.h"
#include "user/analysis/steps.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct calltree;

enum calltree_kind {
	CALLTREE_ROOT,
	CALLTREE_PROCESS,
	CALLTREE_THREAD,
	CALLTREE_PHASE,
	CALLTREE_MARK, /* instead of Python frames: why there are none */
	CALLTREE_PYTHON,
	CALLTREE_OP, /* an operator, autograd node, collective, synchronisation or collection of garbage */
	CALLTREE_NATIVE,
	CALLTREE_SYSCALL,
	CALLTREE_KERNEL,
	CALLTREE_WAIT,
	CALLTREE_GPU,   /* below a wait for the GPU: what that did meanwhile */
	CALLTREE_WAKER, /* below a phase, below a wait: who ended it */
};

struct calltree_frame {
	enum calltree_kind kind;
	const char *name; /* of Python the qualified name, "{waiting: gil}"; UTF-8, control characters as they came */
	const char *file; /* of Python; else NULL */
	uint32_t line;    /* of Python, the one at hand; 0: not known */
	uint32_t first_line; /* of Python, the function's */
	uint32_t function;   /* the same number for frames that differ by line alone; from 1 */
};

struct calltree_node {
	uint32_t parent; /* index of a node; that of the root is 0, its own */
	uint32_t frame;  /* index of a frame */
	/* Of samples that end here. */
	uint64_t samples, cpu_ns, wait_ns;
};

/*
 * steps: of the same job, which then tells the phases; NULL: by process and thread. native: the interpreter's own functions are
 * frames, too, and not part of the Python function that they run. NULL: no memory.
 */
struct calltree *calltree__new(struct job *job, const struct steps *steps, bool native);
void calltree__free(struct calltree *tree); /* accepts NULL */
/* *node: where it ends. 0 or -ENOMEM. */
int calltree__add(struct calltree *tree, const struct sample *sample, uint32_t *node);
/*
 * *node becomes that of what a GPU did while a sample that ends in it waited. work: a number below 2^28 of its own for
 * each kind, direction and name (gpu_work__text). 0 or -ENOMEM.
 */
int calltree__add_work(struct calltree *tree, uint32_t work, enum gpu_activity kind, enum gpu_direction direction,
		       uint64_t name, uint32_t *node);
/* The first is the root, and parents come before their children. */
const struct calltree_node *calltree__nodes(const struct calltree *tree, size_t *cnt);
const struct calltree_frame *calltree__frames(const struct calltree *tree, size_t *cnt);
/*
 * The frames between two nodes, `top` itself not among them, down to `node`, which is below it: malloc'ed, NULL: no
 * memory.
 */
uint32_t *calltree__path(const struct calltree *tree, uint32_t top, uint32_t node, size_t *cnt);

#endif
