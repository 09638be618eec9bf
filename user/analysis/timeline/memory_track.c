// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/timeline/memory_track.h"

#include <errno.h>
#include <stdlib.h>

/* A row is cumulative until its process ends; another process may have its pid then. */
struct memory_row {
	struct op_key key;
	int64_t bytes[OP_MEMORY__COUNT]; /* that the process's sum has of it */
};

struct memory_process {
	uint32_t pid;
	bool changed; /* since its last point */
	struct memory_point now;
};

static int64_t wrapping_add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t wrapping_subtract(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* Adds a point for each process whose sum has changed. */
static int end_snapshot(struct memory_track *track)
{
	struct memory_process *processes = track->processes.items.items;

	for (size_t i = 0; i < track->processes.items.cnt && track->time_ns; i++) {
		struct memory_point *point;

		if (!processes[i].changed)
			continue;
		point = array__add(&track->points, sizeof(*point));
		if (!point)
			return -ENOMEM;
		*point = processes[i].now;
		point->time_ns = track->time_ns;
		processes[i].changed = false;
	}
	return 0;
}

static int add_row(struct memory_track *track, const struct rec_op *op)
{
	struct memory_row *row = MAP_FIND(&track->rows, struct memory_row, &op->key);
	struct memory_process *process;
	bool none = true;

	for (int i = 0; i < OP_MEMORY__COUNT; i++)
		none = none && !op->val.self_bytes[i];
	if (!row && none)
		return 0;
	row = row ?: MAP_ADD(&track->rows, struct memory_row, &op->key);
	process = row ? MAP_ADD(&track->processes, struct memory_process, &op->key.pid) : NULL;
	if (!process)
		return -ENOMEM;
	process->changed = true;
	process->now.pid = op->key.pid;
	process->now.device |= op->val.self_bytes[OP_MEMORY_DEVICE] != 0;
	for (int i = 0; i < OP_MEMORY__COUNT; i++) {
		int64_t more = wrapping_subtract(op->val.self_bytes[i], row->bytes[i]);

		process->now.bytes[i] = wrapping_add(process->now.bytes[i], more);
		row->bytes[i] = op->hdr.flags & REC_ENDED ? 0 : op->val.self_bytes[i];
	}
	return 0;
}

int memory_track__add(struct memory_track *track, const struct rec_hdr *record)
{
	int err = 0;

	if (record->type == REC_OP && record->size >= sizeof(struct rec_op))
		return add_row(track, (const struct rec_op *)record);
	if (record->type == REC_WINDOW && record->size >= sizeof(struct rec_window)) {
		err = end_snapshot(track);
		track->time_ns = ((const struct rec_window *)record)->end_ns;
	}
	return err;
}

int memory_track__finish(struct memory_track *track)
{
	return end_snapshot(track);
}

const struct memory_point *memory_track__points(const struct memory_track *track, size_t *cnt)
{
	*cnt = track->points.cnt;
	return track->points.items;
}

void memory_track__free(struct memory_track *track)
{
	map__free(&track->rows);
	map__free(&track->processes);
	free(track->points.items);
}
