// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Each recording's call tree is merged into one: functions by their texts, frames by function and line, nodes by parent
 * and frame.
 */
#include "user/analysis/flame.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame_gpu.h"
#include "user/lib/saturating.h"
#include "user/model/processes.h"
#include "user/model/samples.h"

struct flame {
	struct array texts; /* char *, owned */
	void *text_tree;    /* struct text */
	struct array functions;
	void *function_tree; /* struct function */
	struct intern frame_keys, node_keys;
	struct array frames, nodes;
	struct array threads, tracks;
	uint32_t recording_cnt;
};

struct text {
	char *text;
	uint32_t number;
};

struct function {
	struct flame_function function;
	uint32_t number;
};

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/* ---- texts, functions, frames, nodes ---- */

static int compare_texts(const void *a, const void *b)
{
	return strcmp(((const struct text *)a)->text, ((const struct text *)b)->text);
}

static int compare_functions(const void *a, const void *b)
{
	const struct flame_function *x = &((const struct function *)a)->function;
	const struct flame_function *y = &((const struct function *)b)->function;

	if (x->kind != y->kind)
		return COMPARE(x->kind, y->kind);
	if (x->name != y->name)
		return COMPARE(x->name, y->name);
	return x->file != y->file ? COMPARE(x->file, y->file) : COMPARE(x->first_line, y->first_line);
}

/*
 * The item of a tree that is like `wanted`, or a copy of it, `bytes` long, with *number the one that it gets. NULL: no
 * memory.
 */
static void *find_or_add(void **tree, const void *wanted, size_t bytes, int (*compare)(const void *, const void *))
{
	void *const *found = tfind(wanted, tree, compare);
	void *item;

	if (found)
		return *found;
	item = malloc(bytes);
	if (item && tsearch(memcpy(item, wanted, bytes), tree, compare))
		return item;
	free(item);
	return NULL;
}

static int number_text(struct flame *flame, const char *text, uint32_t *number)
{
	struct text wanted = {.text = (char *)text, .number = flame->texts.cnt}, *item;
	char **slot;

	item = find_or_add(&flame->text_tree, &wanted, sizeof(wanted), compare_texts);
	if (!item)
		return -ENOMEM;
	*number = item->number;
	if (item->number < flame->texts.cnt)
		return 0;
	item->text = strdup(text);
	slot = item->text ? array__add(&flame->texts, sizeof(*slot)) : NULL;
	if (slot) {
		*slot = item->text;
		return 0;
	}
	/* Out of the tree, or it would be compared with a text that is gone. */
	free(item->text);
	item->text = (char *)text;
	tdelete(item, &flame->text_tree, compare_texts);
	free(item);
	return -ENOMEM;
}

static int number_function(struct flame *flame, const struct calltree_frame *frame, uint32_t *number)
{
	struct function wanted = {.function = {.kind = frame->kind, .first_line = frame->first_line},
				  .number = flame->functions.cnt},
			*item;
	struct flame_function *slot;
	int err = number_text(flame, frame->name ?: "", &wanted.function.name);

	if (!err)
		err = number_text(flame, frame->file ?: "", &wanted.function.file);
	if (err)
		return err;
	item = find_or_add(&flame->function_tree, &wanted, sizeof(wanted), compare_functions);
	if (!item)
		return -ENOMEM;
	*number = item->number;
	if (item->number < flame->functions.cnt)
		return 0;
	slot = array__add(&flame->functions, sizeof(*slot));
	if (!slot) {
		tdelete(item, &flame->function_tree, compare_functions);
		free(item);
		return -ENOMEM;
	}
	*slot = wanted.function;
	return 0;
}

/* The root's function, frame and node are 0, and have no key. */
static int number_frame(struct flame *flame, const struct calltree_frame *from, uint32_t *number)
{
	struct flame_frame frame = {.line = from->kind == CALLTREE_PYTHON ? from->line : 0};
	int err = number_function(flame, from, &frame.function);

	if (err)
		return err;
	if (intern__add(&flame->frame_keys, (uint64_t)frame.function << 32 | frame.line, number) ||
	    array__grow(&flame->frames, intern__end(&flame->frame_keys), sizeof(frame)))
		return -ENOMEM;
	((struct flame_frame *)flame->frames.items)[*number] = frame;
	return 0;
}

/* *numbers: of the tree's nodes here, by index there; malloc'ed. */
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
		err = number_frame(flame, &frames[i], &frame_numbers[i]);
	for (size_t i = 1; i < node_cnt && !err; i++) {
		struct flame_node node = {(*numbers)[nodes[i].parent], frame_numbers[nodes[i].frame]};

		if (intern__add(&flame->node_keys, (uint64_t)node.parent << 32 | node.frame, &(*numbers)[i]) ||
		    array__grow(&flame->nodes, intern__end(&flame->node_keys), sizeof(node)))
			err = -ENOMEM;
		else
			((struct flame_node *)flame->nodes.items)[(*numbers)[i]] = node;
	}
	free(frame_numbers);
	return err;
}

/* ---- steps ---- */

static struct rec_target find_target(const struct job *job, uint32_t pid)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (targets[i].pid == pid)
			return targets[i];
	return (struct rec_target){.pid = pid, .rank = -1};
}

static uint64_t us_since(uint64_t time_ns, uint64_t origin_ns)
{
	return time_ns > origin_ns ? (time_ns - origin_ns) / 1000 : 0;
}

/* An hour of 10 ms steps is much to hold. */
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
				     .rank = find_target(job, track->pid).rank,
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

/* The start of the recording, or of what it holds where it does not say. */
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

/* The track of a process, or of the nearest above it; of a recording with one track that one. */
static long find_track(const struct flame *flame, const struct job *job, uint32_t pid)
{
	const struct flame_track *tracks = flame->tracks.items;
	size_t cnt = 0;
	long last = -1;

	/* A recording that lies may make a ring of parents. */
	for (int hops = 0; hops < 16 && pid; hops++, pid = find_target(job, pid).parent_pid)
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
	struct rec_target target = find_target(job, pid);
	const struct flame_track *track;

	if (!thread)
		return -ENOMEM;
	*thread = (struct flame_thread){.recording = flame->recording_cnt,
					.pid = pid,
					.tid = tid,
					.role = target.role,
					.rank = target.rank,
					.track = find_track(flame, job, pid),
					.main = processes__is_main(job, pid)};
	if (thread->track < 0)
		return 0;
	track = &((const struct flame_track *)flame->tracks.items)[thread->track];
	thread->steps = track->pid == pid && track->tid == tid;
	if (thread->rank < 0)
		thread->rank = track->rank;
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	const struct flame_row *x = a, *y = b;

	return COMPARE(x->end_us, y->end_us);
}

/* Most come in order. */
static void sort_rows(struct flame_thread *thread)
{
	struct flame_row *rows = thread->rows.items;

	for (size_t i = 1; i < thread->rows.cnt; i++)
		if (rows[i].end_us < rows[i - 1].end_us) {
			qsort(rows, thread->rows.cnt, sizeof(*rows), compare_rows);
			return;
		}
}

static int add_row(struct array *rows, const struct flame_row *row)
{
	struct flame_row *slot = array__add(rows, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	*slot = *row;
	return 0;
}

/* Its row, or several where a GPU worked while it waited for it. Their nodes are still those of the tree. */
static int add_sample(struct array *rows, struct calltree *tree, struct flame_gpu *gpu, const struct sample *sample,
		      uint64_t origin_ns)
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
		err = add_row(rows, &part);
	}
	return err || (cnt && !row.weight_ns) ? err : add_row(rows, &row);
}

static int add_rows(struct flame *flame, struct job *job, struct calltree *tree, uint64_t origin_ns)
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
			err = add_sample(&threads[first + sample.thread - 1].rows, tree, gpu, &sample, origin_ns);
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
		sort_rows(&threads[t]);
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
		err = add_rows(flame, job, tree, origin_ns);
	if (!err)
		err = merge_tree(flame, tree, &numbers);
	if (!err)
		number_rows(flame, first_thread, numbers);
	flame->recording_cnt++;
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

static void merge_rows(struct flame_thread *thread, uint64_t grain_us)
{
	struct flame_row *rows = thread->rows.items;
	size_t kept = 0;

	if (thread->rows.cnt)
		qsort_r(rows, thread->rows.cnt, sizeof(*rows), compare_cells, &grain_us);
	for (size_t i = 0; i < thread->rows.cnt; i++) {
		struct flame_row *last = kept ? &rows[kept - 1] : NULL, row = rows[i];
		uint64_t start_us = row.end_us - (row.span_us < row.end_us ? row.span_us : row.end_us);

		if (!last || last->node != row.node || last->end_us / grain_us != row.end_us / grain_us) {
			rows[kept++] = row;
			continue;
		}
		if (start_us + last->span_us > last->end_us)
			start_us = last->end_us - (last->span_us < last->end_us ? last->span_us : last->end_us);
		last->end_us = row.end_us;
		last->span_us = short_us(row.end_us - start_us);
		last->weight_ns = saturating__add(last->weight_ns, row.weight_ns);
	}
	thread->rows.cnt = kept;
	sort_rows(thread);
}

static size_t count_rows(const struct flame *flame)
{
	const struct flame_thread *threads = flame->threads.items;
	size_t cnt = 0;

	for (size_t i = 0; i < flame->threads.cnt; i++)
		cnt += threads[i].rows.cnt;
	return cnt;
}

/* Merges more and more of the threads that make steps, or those that do not, up to what a person still takes for an instant. */
static uint64_t thin(struct flame *flame, size_t row_max, bool steps)
{
	struct flame_thread *threads = flame->threads.items;
	uint64_t grain_us = 0;

	for (uint64_t next_us = 50000; next_us <= 100000000 && count_rows(flame) > row_max; next_us *= 4) {
		for (size_t i = 0; i < flame->threads.cnt; i++)
			if (threads[i].steps == steps)
				merge_rows(&threads[i], next_us);
		grain_us = next_us;
	}
	return grain_us;
}

void flame__thin(struct flame *flame, size_t row_max, uint64_t *grain_us, uint64_t *step_grain_us)
{
	*grain_us = thin(flame, row_max, false);
	*step_grain_us = thin(flame, row_max, true);
}

/* ---- what is read ---- */

char *const *flame__texts(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->texts.cnt;
	return flame->texts.items;
}

const struct flame_function *flame__functions(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->functions.cnt;
	return flame->functions.items;
}

const struct flame_frame *flame__frames(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->frames.cnt;
	return flame->frames.items;
}

const struct flame_node *flame__nodes(const struct flame *flame, size_t *cnt)
{
	*cnt = flame->nodes.cnt;
	return flame->nodes.items;
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
	if (!number_function(flame, &root, &number) && array__add(&flame->frames, sizeof(struct flame_frame)) &&
	    array__add(&flame->nodes, sizeof(struct flame_node)))
		return flame;
	flame__free(flame);
	return NULL;
}

void flame__free(struct flame *flame)
{
	if (!flame)
		return;
	for (size_t i = 0; i < flame->texts.cnt; i++)
		free(((char **)flame->texts.items)[i]);
	for (size_t i = 0; i < flame->threads.cnt; i++)
		free(((struct flame_thread *)flame->threads.items)[i].rows.items);
	for (size_t i = 0; i < flame->tracks.cnt; i++) {
		free(((struct flame_track *)flame->tracks.items)[i].steps);
		free(((struct flame_track *)flame->tracks.items)[i].slow);
	}
	tdestroy(flame->text_tree, free);
	tdestroy(flame->function_tree, free);
	intern__free(&flame->frame_keys);
	intern__free(&flame->node_keys);
	free(flame->texts.items);
	free(flame->functions.items);
	free(flame->frames.items);
	free(flame->nodes.items);
	free(flame->threads.items);
	free(flame->tracks.items);
	free(flame);
}
