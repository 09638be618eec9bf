/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Divides the time that a thread waited for GPUs among what the GPUs did meanwhile. */
#ifndef STEPFLAME_USER_ANALYSIS_FLAME_FLAME_GPU_H
#define STEPFLAME_USER_ANALYSIS_FLAME_FLAME_GPU_H

#include "user/analysis/flame/calltree.h"
#include "user/model/gpu.h"

struct flame_gpu;

/* A part of a sample's weight. */
struct flame_part {
	uint32_t node;
	uint64_t ns;
};

struct flame_gpu *flame_gpu__new(struct job *job); /* NULL: no memory */
void flame_gpu__free(struct flame_gpu *gpu);       /* accepts NULL */
/*
 * Splits a sample that ends at `node` into the parts during which a GPU of its process worked, as
 * child nodes. For a wait in a synchronisation, this splits its duration; for a sample on the CPU
 * in one (a thread that spins), all its weight. The rest stays with `node`. *parts is valid until
 * the next call. 0 or -ENOMEM.
 */
int flame_gpu__split(struct flame_gpu *gpu, struct calltree *tree, const struct sample *sample, uint32_t node,
		     const struct flame_part **parts, size_t *cnt);

#endif
