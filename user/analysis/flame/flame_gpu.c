// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Each instant of a process belongs to the one GPU activity, of those running then on any GPU, that
 * began first. So the parts of a wait never exceed the wait.
 */
#include "user/analysis/flame/flame_gpu.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/compare.h"
#include "user/lib/search.h"
#include "user/model/stacks.h"

/*
 * A time that belongs to work of one name. The pieces of a process do not overlap, and are in time
 * order.
 */
struct piece {
	uint64_t start_ns, end_ns;
	uint32_t pid;
	uint32_t work; /* number in works */
};

struct flame_gpu {
	const struct stacks *stacks;
	const struct gpu_act *activities;
	struct array pieces;
	struct intern works;  /* keys that identify work */
	struct array samples; /* uint32_t by work: index of one of its activities */
	uint64_t *ns;         /* by work: its part of the current sample */
	struct array parts;   /* struct flame_part, of the current sample; node holds the work at first */
};

/* Names are hashes; copies and sets, which have no names, get small numbers. */
static uint64_t gpu_work_key(const struct gpu_act *activity)
{
	if (activity->kind == GPU_ACTIVITY_COPY || activity->kind == GPU_ACTIVITY_SET || !activity->name)
		return 1 + activity->kind * GPU_DIRECTION__COUNT +
		       (activity->kind == GPU_ACTIVITY_COPY ? activity->direction : 0);
	return activity->name ^ (uint64_t)activity->kind << 56;
}

static int add_piece(struct flame_gpu *gpu, size_t index)
{
	const struct gpu_act *activity = &gpu->activities[index];
	struct piece *last = gpu->pieces.cnt ? (struct piece *)gpu->pieces.items + gpu->pieces.cnt - 1 : NULL, *piece;
	uint64_t start_ns = activity->start_ns, end_ns = gpu_act__end_ns(activity);
	uint32_t work;

	if (last && last->pid == activity->pid && last->end_ns > start_ns)
		start_ns = last->end_ns;
	if (!activity->start_ns || end_ns <= start_ns)
		return 0;
	if (intern__add(&gpu->works, gpu_work_key(activity), &work) ||
	    array__grow(&gpu->samples, work + 1, sizeof(uint32_t)))
		return -ENOMEM;
	((uint32_t *)gpu->samples.items)[work] = index;
	piece = array__add(&gpu->pieces, sizeof(*piece));
	if (!piece)
		return -ENOMEM;
	*piece = (struct piece){start_ns, end_ns, activity->pid, work};
	return 0;
}

struct flame_gpu *flame_gpu__new(struct job *job)
{
	const struct gpu *of = job__gpu(job);
	struct flame_gpu *gpu = of ? calloc(1, sizeof(*gpu)) : NULL;
	size_t cnt;
	int err = 0;

	if (!gpu)
		return NULL;
	gpu->stacks = job__stacks(job);
	gpu->activities = gpu__activities(of, &cnt);
	for (size_t i = 0; i < cnt && !err; i++)
		if (gpu_act__is_work(&gpu->activities[i]))
			err = add_piece(gpu, i);
	gpu->ns = calloc(gpu->samples.cnt + 1, sizeof(*gpu->ns));
	if (!err && gpu->ns)
		return gpu;
	flame_gpu__free(gpu);
	return NULL;
}

void flame_gpu__free(struct flame_gpu *gpu)
{
	if (!gpu)
		return;
	intern__free(&gpu->works);
	free(gpu->samples.items);
	free(gpu->pieces.items);
	free(gpu->parts.items);
	free(gpu->ns);
	free(gpu);
}

/* Whether the innermost waiting span is a synchronisation. */
static bool is_sync(const struct flame_gpu *gpu, uint32_t path_number)
{
	struct path path = stacks__path(gpu->stacks, path_number);

	for (uint32_t i = path.cnt; i > 0; i--)
		if (path.spans[i - 1].kind == SPAN_SYNC || path.spans[i - 1].kind == SPAN_COMM)
			return path.spans[i - 1].kind == SPAN_SYNC;
	return false;
}

/* The first piece of a process that ends after an instant; the count if there is no such piece. */
static size_t find_piece(const struct flame_gpu *gpu, uint32_t pid, uint64_t time_ns)
{
	const struct piece *pieces = gpu->pieces.items;
	size_t low = SEARCH(i, 0, gpu->pieces.cnt,
			    pieces[i].pid < pid || (pieces[i].pid == pid && pieces[i].end_ns <= time_ns));
	return low;
}

static int flame_gpu__add_part(struct flame_gpu *gpu, uint32_t work, uint64_t ns)
{
	struct flame_part *part;

	if (!gpu->ns[work]) {
		part = array__add(&gpu->parts, sizeof(*part));
		if (!part)
			return -ENOMEM;
		part->node = work;
	}
	gpu->ns[work] += ns;
	return 0;
}

/* Finds the work running in [start_ns, end_ns), by its number. */
static int find_parts(struct flame_gpu *gpu, uint32_t pid, uint64_t start_ns, uint64_t end_ns)
{
	const struct piece *pieces = gpu->pieces.items;
	int err = 0;

	for (size_t i = find_piece(gpu, pid, start_ns);
	     i < gpu->pieces.cnt && pieces[i].pid == pid && pieces[i].start_ns < end_ns && !err; i++) {
		uint64_t from = pieces[i].start_ns > start_ns ? pieces[i].start_ns : start_ns;
		uint64_t to = pieces[i].end_ns < end_ns ? pieces[i].end_ns : end_ns;

		err = flame_gpu__add_part(gpu, pieces[i].work, to - from);
	}
	return err;
}

int flame_gpu__split(struct flame_gpu *gpu, struct calltree *tree, const struct sample *sample, uint32_t node,
		     const struct flame_part **parts, size_t *cnt)
{
	bool spins = sample->kind == SAMPLE_CPU;
	uint64_t end_ns = sample->time_ns + spins;
	uint64_t wanted_ns = spins ? 1 : sample->weight_ns;
	struct flame_part *part;
	int err = 0;

	gpu->parts.cnt = *cnt = 0;
	/* A sample that stands for several short waits does not show when those were. */
	if (gpu->pieces.cnt && end_ns &&
	    (spins ? is_sync(gpu, sample->path) : sample->cause == CAUSE_GPU_SYNC && sample->waits <= 1))
		err = find_parts(gpu, sample->pid, end_ns > wanted_ns ? end_ns - wanted_ns : 0, end_ns);
	part = gpu->parts.items;
	for (size_t i = 0; i < gpu->parts.cnt; i++) {
		const struct gpu_act *activity = &gpu->activities[((const uint32_t *)gpu->samples.items)[part[i].node]];
		uint32_t work = part[i].node;

		part[i].node = node;
		part[i].ns = spins ? sample->weight_ns : gpu->ns[work];
		gpu->ns[work] = 0;
		err = err
			      ?: calltree__add_work(tree, work, activity->kind, activity->direction, activity->name,
						    &part[i].node);
	}
	*parts = part;
	*cnt = gpu->parts.cnt;
	return err;
}
