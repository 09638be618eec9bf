/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Samples as a tree: process and thread, or the phase in their place; Python frames by line; and
 * below them what the sample was in: operators (below a phase), native code, a system call, the
 * kernel, a wait. Uses the texts of the job, so free it before the job; the job must not take
 * records meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_FLAME_CALLTREE_H
#define STEPFLAME_USER_ANALYSIS_FLAME_CALLTREE_H

#include "include/gpu.h"
#include "user/analysis/steps/steps.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct calltree;

enum calltree_kind {
	CALLTREE_ROOT,
	CALLTREE_PROCESS,
	CALLTREE_THREAD,
	CALLTREE_PHASE,
	CALLTREE_MARK, /* in place of Python frames: why there are no frames */
	CALLTREE_PYTHON,
	CALLTREE_OP, /* an operator, autograd node, collective, synchronisation or garbage collection */
	CALLTREE_NATIVE,
	CALLTREE_SYSCALL,
	CALLTREE_KERNEL,
	CALLTREE_WAIT,
	CALLTREE_GPU,   /* below a wait for the GPU: what the GPU did meanwhile */
	CALLTREE_WAKER, /* below a wait, below a phase: who ended the wait */
};

struct calltree_frame {
	enum calltree_kind kind;
	const char *name;    /* for Python the qualified name; "{waiting: gil}"; UTF-8, control characters unchanged */
	const char *file;    /* for Python; else NULL */
	uint32_t line;       /* for Python, the current line; 0: not known */
	uint32_t first_line; /* for Python, the first line of the function */
	uint32_t function;   /* equal for frames that differ only by line; from 1 */
};

struct calltree_node {
	uint32_t parent; /* index of a node; the root is its own parent, 0 */
	uint32_t frame;  /* index of a frame */
	/* Totals of the samples that end in this node. */
	uint64_t samples, cpu_ns, wait_ns;
};

/*
 * steps: of the same job, to group by phase; NULL: to group by process and thread. native: the
 * interpreter's own functions become frames, instead of counting as the Python function that they
 * run. NULL: no memory.
 */
struct calltree *calltree__new(struct job *job, const struct steps *steps, bool native);
void calltree__free(struct calltree *tree); /* accepts NULL */
/* *node becomes the node in which the sample ends. 0 or -ENOMEM. */
int calltree__add(struct calltree *tree, const struct sample *sample, uint32_t *node);
/*
 * Replaces *node, in which a waiting sample ends, by its child for what a GPU did meanwhile. work:
 * a number below 2^28, unique for each kind, direction and name (gpu_work__text). 0 or -ENOMEM.
 */
int calltree__add_work(struct calltree *tree, uint32_t work, enum gpu_activity kind, enum gpu_direction direction,
		       uint64_t name, uint32_t *node);
/* The root comes first, and parents come before their children. */
const struct calltree_node *calltree__nodes(const struct calltree *tree, size_t *cnt);
const struct calltree_frame *calltree__frames(const struct calltree *tree, size_t *cnt);
/*
 * The frames from below `top` down to `node`, inclusive; `node` must be below `top`. malloc'ed;
 * NULL: no memory.
 */
uint32_t *calltree__path(const struct calltree *tree, uint32_t top, uint32_t node, size_t *cnt);

#endif
