// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Merges the call tree of each recording into one: functions by their texts, frames by function and
 * line, nodes by parent and frame.
 */
#include "user/analysis/flame/flame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/calltree.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/gpu.h"
#include "user/model/job.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"

/* ---- what GPUs did while a thread waited for them ---- */

/* A part of a sample's weight. */
struct flame_part {
	uint32_t node;
	uint64_t ns;
};

/*
 * Each instant of a process belongs to the one GPU activity, of those running then on any GPU, that
 * began first. So the parts of a wait never exceed the wait.
 */

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

static void flame_gpu__free(struct flame_gpu *gpu)
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

static struct flame_gpu *flame_gpu__new(struct job *job)
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

/*
 * Splits a sample that ends at `node` into the parts during which a GPU of its process worked, as
 * child nodes. For a wait in a synchronisation, this splits its duration; for a sample on the CPU
 * in one (a thread that spins), all its weight. The rest stays with `node`. *parts is valid until
 * the next call. 0 or -ENOMEM.
 */
static int flame_gpu__split(struct flame_gpu *gpu, struct calltree *tree, const struct sample *sample, uint32_t node,
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

/* ---- choosing a part ---- */

/*
 * Chooses a part of a flame graph: some steps, some threads. The page (user/page/select.js) weighs
 * in the same way.
 */

/* The steps of a track that are chosen. */
struct chosen_steps {
	const struct flame_track *track;
	bool *steps;         /* by index */
	uint64_t *before_us; /* by index: chosen time before it starts */
	size_t cnt;
};

static uint64_t step_duration_us(const struct flame_step *step)
{
	return step->end_us - step->start_us;
}

/* The longest step first; of equal steps, the earlier one. */
static int compare_slowest_first(const void *a, const void *b, void *steps)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	uint64_t x_us = step_duration_us((const struct flame_step *)steps + x);
	uint64_t y_us = step_duration_us((const struct flame_step *)steps + y);

	return x_us != y_us ? COMPARE(y_us, x_us) : COMPARE(x, y);
}

static int choose_slowest(struct chosen_steps *chosen, uint64_t number)
{
	size_t cnt = chosen->track->step_cnt;
	uint32_t *order = calloc(cnt + 1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		order[i] = i;
	if (cnt)
		qsort_r(order, cnt, sizeof(*order), compare_slowest_first, chosen->track->steps);
	for (size_t i = 0; i < cnt && i < number; i++)
		chosen->steps[order[i]] = true;
	free(order);
	return 0;
}

static int choose_steps(const struct flame_choice *choice, struct chosen_steps *chosen)
{
	const struct flame_step *steps = chosen->track->steps;
	uint64_t before_us = 0;
	int err = 0;

	chosen->steps = calloc(chosen->track->step_cnt + 1, sizeof(*chosen->steps));
	chosen->before_us = calloc(chosen->track->step_cnt + 1, sizeof(*chosen->before_us));
	if (!chosen->steps || !chosen->before_us)
		return -ENOMEM;
	if (choice->steps == FLAME_SLOWEST)
		err = choose_slowest(chosen, choice->number);
	for (size_t i = 0; i < chosen->track->step_cnt && !err; i++) {
		if (choice->steps == FLAME_STEP)
			chosen->steps[i] = steps[i].index == choice->number;
		chosen->before_us[i] = before_us;
		before_us += chosen->steps[i] ? step_duration_us(&steps[i]) : 0;
		chosen->cnt += chosen->steps[i];
	}
	return err;
}

/* The last step that starts at or before an instant; -1: no step. */
static long find_step(const struct flame_track *track, uint64_t time_us)
{
	size_t low = SEARCH(i, 0, track->step_cnt, track->steps[i].start_us <= time_us);
	return (long)low - 1;
}

/* Chosen time before an instant. */
static uint64_t chosen_before(const struct chosen_steps *chosen, uint64_t time_us)
{
	long at = find_step(chosen->track, time_us);
	const struct flame_step *step;

	if (at < 0)
		return 0;
	step = &chosen->track->steps[at];
	if (!chosen->steps[at])
		return chosen->before_us[at];
	return chosen->before_us[at] + (time_us < step->end_us ? time_us - step->start_us : step_duration_us(step));
}

static double weigh_row(const struct chosen_steps *chosen, const struct flame_row *row)
{
	uint64_t start_us = row->end_us - (row->span_us < row->end_us ? row->span_us : row->end_us);
	long at;

	if (row->span_us)
		return (double)row->weight_ns * (chosen_before(chosen, row->end_us) - chosen_before(chosen, start_us)) /
		       row->span_us;
	at = find_step(chosen->track, row->end_us);
	if (at < 0 || !chosen->steps[at] || row->end_us >= chosen->track->steps[at].end_us)
		return 0;
	return row->weight_ns;
}

bool flame__chooses(const struct flame *flame, const struct flame_choice *choice, const struct flame_thread *thread)
{
	size_t cnt;
	const struct flame_track *tracks = flame__tracks(flame, &cnt);
	bool has_track = false;

	if (thread->recording != choice->recording || (choice->pid && thread->pid != choice->pid))
		return false;
	for (size_t i = 0; i < cnt; i++)
		has_track |= tracks[i].recording == choice->recording && (!choice->pid || tracks[i].pid == choice->pid);
	return choice->all_threads || (has_track ? thread->steps : choice->pid || thread->main);
}

static void weigh_thread(const struct flame_thread *thread, const struct chosen_steps *chosen, double *ns)
{
	const struct flame_row *rows = thread->rows.items;

	for (size_t i = 0; i < thread->rows.cnt; i++)
		ns[rows[i].node] += chosen ? weigh_row(chosen, &rows[i]) : rows[i].weight_ns;
}

int flame__weigh(const struct flame *flame, const struct flame_choice *choice, double *ns, size_t *step_cnt)
{
	size_t thread_cnt, track_cnt;
	const struct flame_thread *threads = flame__threads(flame, &thread_cnt);
	const struct flame_track *tracks = flame__tracks(flame, &track_cnt);
	struct chosen_steps *chosen = calloc(track_cnt + 1, sizeof(*chosen));
	int err = chosen ? 0 : -ENOMEM;

	*step_cnt = 0;
	for (size_t i = 0; i < track_cnt && !err && choice->steps != FLAME_ALL_TIME; i++) {
		chosen[i].track = &tracks[i];
		err = choose_steps(choice, &chosen[i]);
		if (tracks[i].recording == choice->recording && (!choice->pid || tracks[i].pid == choice->pid))
			*step_cnt += chosen[i].cnt;
	}
	for (size_t i = 0; i < thread_cnt && !err; i++) {
		if (!flame__chooses(flame, choice, &threads[i]))
			continue;
		if (choice->steps == FLAME_ALL_TIME)
			weigh_thread(&threads[i], NULL, ns);
		else if (threads[i].track >= 0)
			weigh_thread(&threads[i], &chosen[threads[i].track], ns);
	}
	for (size_t i = 0; chosen && i < track_cnt; i++) {
		free(chosen[i].steps);
		free(chosen[i].before_us);
	}
	free(chosen);
	return err;
}
