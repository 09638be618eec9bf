// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Merges the call tree of each recording into one: functions by their texts, frames by function and
 * line, nodes by parent and frame.
 */
#include "user/analysis/flame/flame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/flame_gpu.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct flame {
	struct map texts, functions, frames, nodes;
	struct array threads, tracks;
	uint32_t recording_cnt;
	uint64_t origin_ns; /* of the last one */
};

/* ---- texts, functions, frames, nodes ---- */

/* NULL: no memory. */
static struct flame_function *flame__add_function(struct flame *flame, const struct calltree_frame *frame)
{
	struct flame_function function = {.kind = frame->kind, .first_line = frame->first_line};

	if (map__add_text(&flame->texts, frame->name ?: "", &function.name) ||
	    map__add_text(&flame->texts, frame->file ?: "", &function.file))
		return NULL;
	return MAP_ADD(&flame->functions, struct flame_function, &function);
}

static int flame__number_frame(struct flame *flame, const struct calltree_frame *from, uint32_t *number)
{
	const struct flame_function *function = flame__add_function(flame, from);
	struct flame_frame frame = {.line = from->kind == CALLTREE_PYTHON ? from->line : 0}, *added = NULL;

	if (function) {
		frame.function = MAP_INDEX(&flame->functions, function);
		added = MAP_ADD(&flame->frames, struct flame_frame, &frame);
	}
	*number = added ? MAP_INDEX(&flame->frames, added) : 0;
	return added ? 0 : -ENOMEM;
}

/* *numbers: maps the index of a tree node to its merged number; malloc'ed. */
static int merge_tree(struct flame *flame, const struct calltree *tree, uint32_t **numbers)
{
	size_t frame_cnt, node_cnt;
	const struct calltree_frame *frames = calltree__frames(tree, &frame_cnt);
	const struct calltree_node *nodes = calltree__nodes(tree, &node_cnt);
	uint32_t *frame_numbers = calloc(frame_cnt, sizeof(*frame_numbers));
	int err = 0;

	*numbers = calloc(node_cnt, sizeof(**numbers));
	if (!frame_numbers || !*numbers)
		err = -ENOMEM;
	for (size_t i = 0; i < frame_cnt && !err; i++)
		err = flame__number_frame(flame, &frames[i], &frame_numbers[i]);
	for (size_t i = 1; i < node_cnt && !err; i++) {
		const struct flame_node node = {(*numbers)[nodes[i].parent], frame_numbers[nodes[i].frame]};
		const struct flame_node *added = MAP_ADD(&flame->nodes, struct flame_node, &node);

		if (added)
			(*numbers)[i] = MAP_INDEX(&flame->nodes, added);
		else
			err = -ENOMEM;
	}
	free(frame_numbers);
	return err;
}

/* ---- steps ---- */

static struct rec_target target_of(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);

	return target ? *target : (struct rec_target){.pid = pid, .rank = -1};
}

static uint64_t us_since(uint64_t time_ns, uint64_t origin_ns)
{
	return time_ns > origin_ns ? (time_ns - origin_ns) / 1000 : 0;
}

/* 32 bits: an hour of 10 ms steps takes much memory. */
static uint32_t short_us(uint64_t us)
{
	return us < UINT32_MAX ? us : UINT32_MAX;
}

static void copy_step(const struct step *step, uint64_t origin_ns, struct flame_step *copy)
{
	*copy = (struct flame_step){
		.start_us = us_since(step->start_ns, origin_ns),
		.end_us = us_since(step->end_ns, origin_ns),
		.index = step->index,
		.gc_us = short_us(step->gc_ns / 1000),
	};
	for (int i = 0; i < PHASE__COUNT; i++)
		copy->phase_us[i] = short_us(step->phase_ns[i] / 1000);
}

static int add_track(struct flame *flame, const struct job *job, const struct step_track *track, uint64_t origin_ns)
{
	struct flame_track *copy = array__add(&flame->tracks, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = (struct flame_track){.recording = flame->recording_cnt,
				     .pid = track->pid,
				     .tid = track->tid,
				     .rank = target_of(job, track->pid).rank,
				     .rule = track->rule};
	copy->steps = calloc(track->step_cnt + 1, sizeof(*copy->steps));
	copy->slow = calloc(track->slow_cnt + 1, sizeof(*copy->slow));
	if (!copy->steps || !copy->slow)
		return -ENOMEM;
	copy->step_cnt = track->step_cnt;
	copy->slow_cnt = track->slow_cnt;
	for (size_t i = 0; i < track->step_cnt; i++)
		copy_step(&track->steps[i], origin_ns, &copy->steps[i]);
	if (track->slow_cnt)
		memcpy(copy->slow, track->slow, track->slow_cnt * sizeof(*copy->slow));
	return 0;
}

/* The start of the recording; if that is not recorded, of its contents. */
static uint64_t find_origin(struct job *job, const struct step_track *tracks, size_t track_cnt)
{
	const struct rec_window *window = job__window(job);
	const struct samples *samples = job__samples(job);
	uint64_t origin_ns = UINT64_MAX;

	if (window->hdr.type)
		return window->start_ns;
	for (size_t i = 0; i < track_cnt; i++)
		if (tracks[i].step_cnt && tracks[i].steps->start_ns < origin_ns)
			origin_ns = tracks[i].steps->start_ns;
	for (size_t i = 0; samples && i < samples__cnt(samples); i++) {
		uint64_t time_ns = samples__get(samples, i).time_ns;

		if (time_ns < origin_ns)
			origin_ns = time_ns;
	}
	return origin_ns;
}

/* ---- threads and rows ---- */

/*
 * The track of a process, or of its nearest ancestor that has one; in a recording with a single
 * track, that one.
 */
static long find_track(const struct flame *flame, const struct job *job, uint32_t pid)
{
	const struct flame_track *tracks = flame->tracks.items;
	size_t cnt = 0;
	long last = -1;

	/* The parents in a corrupt recording may form a cycle. */
	for (int hops = 0; hops < 16 && pid; hops++, pid = target_of(job, pid).parent_pid)
		for (size_t i = 0; i < flame->tracks.cnt; i++)
			if (tracks[i].recording == flame->recording_cnt && tracks[i].pid == pid)
				return i;
	for (size_t i = 0; i < flame->tracks.cnt; i++) {
		if (tracks[i].recording != flame->recording_cnt)
			continue;
		last = i;
		cnt++;
	}
	return cnt == 1 ? last : -1;
}

static int add_thread(struct flame *flame, const struct job *job, uint32_t pid, uint32_t tid)
{
	struct flame_thread *thread = array__add(&flame->threads, sizeof(*thread));
	struct rec_target target = target_of(job, pid);
	const struct flame_track *track;

	if (!thread)
		return -ENOMEM;
	*thread = (struct flame_thread){.recording = flame->recording_cnt,
					.pid = pid,
					.tid = tid,
					.role = target.role,
					.rank = target.rank,
					.track = find_track(flame, job, pid),
					.main = job__is_main(job, pid)};
	if (thread->track < 0)
		return 0;
	track = &((const struct flame_track *)flame->tracks.items)[thread->track];
	thread->steps = track->pid == pid && track->tid == tid;
	if (thread->rank < 0)
		thread->rank = track->rank;
	return 0;
}

static int compare_row_times(const void *a, const void *b)
{
	const struct flame_row *x = a, *y = b;

	return COMPARE(x->end_us, y->end_us);
}

/* Most rows arrive in order. */
static void sort_thread_rows(struct flame_thread *thread)
{
	struct flame_row *rows = thread->rows.items;

	for (size_t i = 1; i < thread->rows.cnt; i++)
		if (rows[i].end_us < rows[i - 1].end_us) {
			qsort(rows, thread->rows.cnt, sizeof(*rows), compare_row_times);
			return;
		}
}

static int append_row(struct array *rows, const struct flame_row *row)
{
	struct flame_row *slot = array__add(rows, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	*slot = *row;
	return 0;
}

/*
 * Adds the row of a sample, or several rows if a GPU worked while the thread waited for it. Their
 * nodes are still those of the tree.
 */
static int add_sample_rows(struct array *rows, struct calltree *tree, struct flame_gpu *gpu,
			   const struct sample *sample, uint64_t origin_ns)
{
	struct flame_row row = {.end_us = us_since(sample->time_ns, origin_ns), .weight_ns = sample->weight_ns};
	const struct flame_part *parts;
	size_t cnt = 0;
	int err = calltree__add(tree, sample, &row.node);

	if (sample->kind == SAMPLE_WAIT && sample->waits <= 1)
		row.span_us = short_us(sample->weight_ns / 1000);
	if (!err)
		err = flame_gpu__split(gpu, tree, sample, row.node, &parts, &cnt);
	for (size_t i = 0; i < cnt && !err; i++) {
		struct flame_row part = row;

		part.node = parts[i].node;
		part.weight_ns = parts[i].ns;
		row.weight_ns -= parts[i].ns;
		err = append_row(rows, &part);
	}
	return err || (cnt && !row.weight_ns) ? err : append_row(rows, &row);
}

static int add_all_rows(struct flame *flame, struct job *job, struct calltree *tree, uint64_t origin_ns)
{
	const struct samples *samples = job__samples(job);
	struct flame_gpu *gpu = samples ? flame_gpu__new(job) : NULL;
	size_t first = flame->threads.cnt;
	int err = gpu ? 0 : -ENOMEM;

	for (uint32_t i = 1; !err && i < samples__thread_end(samples); i++) {
		uint32_t pid, tid;

		samples__thread(samples, i, &pid, &tid);
		err = add_thread(flame, job, pid, tid);
	}
	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);
		struct flame_thread *threads = flame->threads.items;

		if (sample.thread)
			err = add_sample_rows(&threads[first + sample.thread - 1].rows, tree, gpu, &sample, origin_ns);
	}
	flame_gpu__free(gpu);
	return err;
}

static void number_rows(struct flame *flame, size_t first_thread, const uint32_t *numbers)
{
	struct flame_thread *threads = flame->threads.items;

	for (size_t t = first_thread; t < flame->threads.cnt; t++) {
		struct flame_row *rows = threads[t].rows.items;

		for (size_t i = 0; i < threads[t].rows.cnt; i++)
			rows[i].node = numbers[rows[i].node];
		sort_thread_rows(&threads[t]);
	}
}

int flame__add(struct flame *flame, struct job *job, const struct steps *steps, bool native)
{
	size_t track_cnt, first_thread = flame->threads.cnt;
	const struct step_track *tracks = steps__tracks(steps, &track_cnt);
	uint64_t origin_ns = find_origin(job, tracks, track_cnt);
	struct calltree *tree = calltree__new(job, steps, native);
	uint32_t *numbers = NULL;
	int err = tree ? 0 : -ENOMEM;

	for (size_t i = 0; i < track_cnt && !err; i++)
		err = add_track(flame, job, &tracks[i], origin_ns);
	if (!err)
		err = add_all_rows(flame, job, tree, origin_ns);
	if (!err)
		err = merge_tree(flame, tree, &numbers);
	if (!err)
		number_rows(flame, first_thread, numbers);
	flame->recording_cnt++;
	flame->origin_ns = origin_ns;
	free(numbers);
	calltree__free(tree);
	return err;
}

/* ---- thinning ---- */

static int compare_cells(const void *a, const void *b, void *grain_us)
{
	const struct flame_row *x = a, *y = b;
	uint64_t grain = *(uint64_t *)grain_us, x_cell = x->end_us / grain, y_cell = y->end_us / grain;

	if (x_cell != y_cell)
		return COMPARE(x_cell, y_cell);
	return x->node != y->node ? COMPARE(x->node, y->node) : COMPARE(x->end_us, y->end_us);
}

static void merge_thread_rows(struct flame_thread *thread, uint64_t grain_us)
{
	struct flame_row *rows = thread->rows.items;
	size_t unique_cnt = 0;

	if (thread->rows.cnt)
		qsort_r(rows, thread->rows.cnt, sizeof(*rows), compare_cells, &grain_us);
	for (size_t i = 0; i < thread->rows.cnt; i++) {
		struct flame_row *last = unique_cnt ? &rows[unique_cnt - 1] : NULL, row = rows[i];
		uint64_t start_us = row.end_us - (row.span_us < row.end_us ? row.span_us : row.end_us);

		if (!last || last->node != row.node || last->end_us / grain_us != row.end_us / grain_us) {
			rows[unique_cnt++] = row;
			continue;
		}
		if (start_us + last->span_us > last->end_us)
			start_us = last->end_us - (last->span_us < last->end_us ? last->span_us : last->end_us);
		last->end_us = row.end_us;
		last->span_us = short_us(row.end_us - start_us);
		last->weight_ns = saturating__add(last->weight_ns, row.weight_ns);
	}
	thread->rows.cnt = unique_cnt;
	sort_thread_rows(thread);
}

static size_t count_flame_rows(const struct flame *flame)
{
	const struct flame_thread *threads = flame->threads.items;
	size_t cnt = 0;

	for (size_t i = 0; i < flame->threads.cnt; i++)
		cnt += threads[i].rows.cnt;
	return cnt;
}

/*
 * Merges rows of the threads that make steps, or of the others, at a growing grain, up to one that
 * a person still perceives as an instant.
 */
static uint64_t thin_to_grain(struct flame *flame, size_t row_max, bool steps)
{
	struct flame_thread *threads = flame->threads.items;
	uint64_t grain_us = 0;

	for (uint64_t next_us = 50000; next_us <= 100000000 && count_flame_rows(flame) > row_max; next_us *= 4) {
		for (size_t i = 0; i < flame->threads.cnt; i++)
			if (threads[i].steps == steps)
				merge_thread_rows(&threads[i], next_us);
		grain_us = next_us;
	}
	return grain_us;
}

void flame__thin(struct flame *flame, size_t row_max, uint64_t *grain_us, uint64_t *step_grain_us)
{
	*grain_us = thin_to_grain(flame, row_max, false);
	*step_grain_us = thin_to_grain(flame, row_max, true);
}

/* ---- what is read ---- */

uint64_t flame__origin_ns(const struct flame *flame)
{
	return flame->origin_ns;
}

char *const *flame__texts(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->texts.items.cnt;
	return flame->texts.items.items;
}

const struct flame_function *flame__functions(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->functions.items.cnt;
	return flame->functions.items.items;
}

const struct flame_frame *flame__frames(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->frames.items.cnt;
	return flame->frames.items.items;
}

const struct flame_node *flame__nodes(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->nodes.items.cnt;
	return flame->nodes.items.items;
}

const struct flame_thread *flame__threads(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->threads.cnt;
	return flame->threads.items;
}

const struct flame_track *flame__tracks(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->tracks.cnt;
	return flame->tracks.items;
}

struct flame *flame__new(void)
{
	struct flame *flame = calloc(1, sizeof(*flame));
	const struct calltree_frame root = {.kind = CALLTREE_ROOT};
	uint32_t number;

	if (!flame)
		return NULL;
	/* These are number 0. */
	if (!flame__number_frame(flame, &root, &number) &&
	    MAP_ADD(&flame->nodes, struct flame_node, &(struct flame_node){0}))
		return flame;
	flame__free(flame);
	return NULL;
}

void flame__free(struct flame *flame)
{
	if (!flame)
		return;
	for (size_t i = 0; i < flame->threads.cnt; i++)
		free(((struct flame_thread *)flame->threads.items)[i].rows.items);
	for (size_t i = 0; i < flame->tracks.cnt; i++) {
		free(((struct flame_track *)flame->tracks.items)[i].steps);
		free(((struct flame_track *)flame->tracks.items)[i].slow);
	}
	map__free_texts(&flame->texts);
	map__free(&flame->functions);
	map__free(&flame->frames);
	map__free(&flame->nodes);
	free(flame->threads.items);
	free(flame->tracks.items);
	free(flame);
}
