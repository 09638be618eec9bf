// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The part of diff.h on GPUs: what they did in steps that CUPTI watched from begin to end; without
 * steps, in the time that CUPTI watched.
 */
#include "user/analysis/compare/diff_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/gpu/gpu_ops.h"
#include "user/analysis/gpu/gpu_time.h"
#include "user/lib/intern.h"
#include "user/lib/saturating.h"
#include "user/model/job.h"

/* The steps of main processes that CUPTI watched; without steps, their watched time. */
struct watched_work {
	struct diff_maker *m;
	const struct gpu_time *time;
	const struct step_track *tracks;
	size_t track_cnt;
	const struct blocks *blocks;
};

static bool is_watched_step(const struct watched_work *w, const struct step_track *track, const struct step *step)
{
	return gpu_time__watched(w->time, track->pid, step->start_ns, step->end_ns) >= step__ns(step) && step__ns(step);
}

/* Cuts the watched steps into blocks. 0 or -ENOMEM. */
static int cut_steps(struct watched_work *w, struct blocks *blocks)
{
	uint64_t *ends = calloc(w->m->diff->sides[w->m->side].steps + 1, sizeof(*ends));
	size_t cnt = 0;

	if (!ends)
		return -ENOMEM;
	for (size_t t = 0; t < w->track_cnt; t++)
		for (size_t i = 0; i < w->tracks[t].step_cnt; i++)
			if (is_watched_step(w, &w->tracks[t], &w->tracks[t].steps[i]))
				ends[cnt++] = w->tracks[t].steps[i].end_ns;
	blocks__of_instants(blocks, ends, cnt);
	free(ends);
	return 0;
}

/* Watched time of a GPU between its first and its last work. */
static double watched_s(const struct watched_work *w, const struct gpu_line *line, uint64_t from, uint64_t to)
{
	if (from < line->first_ns)
		from = line->first_ns;
	if (to > line->last_ns)
		to = line->last_ns;
	return to > from ? gpu_time__watched(w->time, line->pid, from, to) / 1e9 : 0;
}

/* Cuts the window into blocks of equal watched time. */
static void cut_time(struct watched_work *w, struct blocks *blocks)
{
	const struct rec_window *window = job__window(w->m->job);
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(w->time, &cnt);
	uint64_t from = window->start_ns;

	blocks__of_time(blocks, window->start_ns, window->end_ns);
	for (size_t b = 0; b < blocks->cnt; b++) {
		blocks->units[b] = 0;
		for (size_t i = 0; i < cnt; i++)
			if (job__is_main(w->m->job, lines[i].pid))
				blocks->units[b] += watched_s(w, &lines[i], from, blocks->end_ns[b]);
		from = blocks->end_ns[b];
	}
}

/* The block to which an activity counts; -1: to no block. */
static int block_of_activity(const struct watched_work *w, const struct gpu_act *act)
{
	if (!gpu_act__is_work(act) || !act->start_ns || !job__is_main(w->m->job, act->pid))
		return -1;
	for (size_t t = 0; t < w->track_cnt && w->m->diff->per_step; t++) {
		long at = w->tracks[t].pid == act->pid ? step_track__at(&w->tracks[t], act->start_ns) : -1;
		const struct step *step = at >= 0 ? &w->tracks[t].steps[at] : NULL;

		if (step)
			return is_watched_step(w, &w->tracks[t], step) ? blocks__at(w->blocks, step->end_ns) : -1;
	}
	return w->m->diff->per_step ? -1 : blocks__at(w->blocks, act->start_ns);
}

/* Names are hashes; small numbers identify work without a name. */
static uint64_t activity_key(const struct gpu_act *act)
{
	if (act->kind == GPU_ACTIVITY_KERNEL && act->name)
		return act->name;
	return 1 + (uint64_t)act->kind * GPU_DIRECTION__COUNT + act->direction;
}

/* One activity of each kind of work, and the time of all of its kind, by block. */
struct activity_work {
	const struct gpu_act *act;
	uint64_t ns[BLOCKS_MAX];
};

static int sum_works(const struct watched_work *w, struct intern *keys, struct array *works)
{
	size_t cnt;
	const struct gpu_act *acts = gpu__activities(job__gpu(w->m->job), &cnt);

	for (size_t i = 0; i < cnt; i++) {
		int block = block_of_activity(w, &acts[i]);
		struct activity_work *work;
		uint32_t number;

		if (block < 0)
			continue;
		if (intern__add(keys, activity_key(&acts[i]), &number) || array__grow(works, number + 1, sizeof(*work)))
			return -ENOMEM;
		work = &((struct activity_work *)works->items)[number];
		work->act = &acts[i];
		work->ns[block] = saturating__add(work->ns[block], acts[i].duration_ns);
	}
	return 0;
}

static void add_activity_works(const struct watched_work *w)
{
	struct intern keys = {0};
	struct array works = {0};
	const struct activity_work *work;
	int err = sum_works(w, &keys, &works);

	work = works.items;
	for (size_t i = 0; i < works.cnt && !err; i++) {
		const struct gpu_act *act = work[i].act;
		char *name = act ? gpu_work__text(w->m->job, act->kind, act->direction, act->name) : NULL;

		if (act && !name)
			err = -ENOMEM;
		for (size_t b = 0; b < w->blocks->cnt && name; b++)
			diff__add(w->m, DIFF_GPU_WORK, name, b, work[i].ns[b] / 1e9);
		free(name);
	}
	intern__free(&keys);
	free(works.items);
	if (err)
		w->m->err = err;
}

/* Adds the spans in watched steps (without steps: all spans) to the row of that name. */
static void add_gpu_spans(const struct watched_work *w, const char *name, const struct gpu_line *line,
			  const struct gpu_spans *spans)
{
	uint64_t from = job__window(w->m->job)->start_ns;

	for (size_t b = 0; b < w->blocks->cnt && !w->m->diff->per_step; b++) {
		diff__add(w->m, DIFF_GPU, name, b, gpu_spans__within(spans, from, w->blocks->end_ns[b]) / 1e9);
		from = w->blocks->end_ns[b];
	}
	for (size_t t = 0; t < w->track_cnt && w->m->diff->per_step; t++)
		for (size_t i = 0; w->tracks[t].pid == line->pid && i < w->tracks[t].step_cnt; i++) {
			const struct step *step = &w->tracks[t].steps[i];

			if (is_watched_step(w, &w->tracks[t], step))
				diff__add(w->m, DIFF_GPU, name, blocks__at(w->blocks, step->end_ns),
					  gpu_spans__within(spans, step->start_ns, step->end_ns) / 1e9);
		}
}

static void add_gpu_lines(const struct watched_work *w)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(w->time, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		if (!job__is_main(w->m->job, lines[i].pid))
			continue;
		add_gpu_spans(w, "busy", &lines[i], &lines[i].work);
		for (int idle = 0; idle < GPU_IDLE__COUNT; idle++) {
			char name[32];

			snprintf(name, sizeof(name), "idle, %s", gpu_idle__name(idle));
			add_gpu_spans(w, name, &lines[i], &lines[i].idle[idle]);
		}
	}
}

void diff__add_gpu(struct diff_maker *m, struct blocks *blocks)
{
	struct gpu_time *time = job__gpu(m->job) ? gpu_time__new(m->job, m->steps) : NULL;
	struct watched_work w = {.m = m, .time = time, .blocks = blocks};

	if (!time) {
		m->err = -ENOMEM;
		return;
	}
	w.tracks = steps__tracks(m->steps, &w.track_cnt);
	if (!m->diff->per_step)
		cut_time(&w, blocks);
	else if (cut_steps(&w, blocks))
		m->err = -ENOMEM;
	m->diff->sides[m->side].gpu_units = blocks__units(blocks);
	if (blocks__units(blocks) > 0) {
		add_activity_works(&w);
		add_gpu_lines(&w);
	}
	gpu_time__free(time);
}
