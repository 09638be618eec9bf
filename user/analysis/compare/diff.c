// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Takes two jobs, and returns the rows that both or one of them have. Section and name identify a
 * row. A function is named by the base name of its file and its qualified name, because paths and
 * lines differ between versions of a program.
 *
 * Times from samples and steps are added up in blocks of time (blocks.h), by the step that contains
 * them; diff_rows.c handles what is counted.
 */
#include "user/analysis/compare/diff.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/compare/diff_rows.h"
#include "user/analysis/gpu/gpu_ops.h"
#include "user/analysis/gpu/gpu_time.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/lib/percentile.h"
#include "user/lib/saturating.h"
#include "user/model/job.h"
#include "user/model/processes.h"
#include "user/model/samples.h"

const char *diff__section_name(enum diff_section section)
{
	static const char *const names[] = {
#define X(id, name) name,
		STEPFLAME_DIFF_SECTIONS(X)
#undef X
	};

	return names[section];
}

/* ---- steps ---- */

static void diff__add_step(struct diff_maker *m, const struct step *step)
{
	uint64_t waits_ns[CAUSE__END] = {0};
	int block = blocks__at(&m->blocks, step->end_ns);

	diff__add(m, DIFF_STEP, "mean", block, step__ns(step) / 1e9);
	for (int i = 0; i < PHASE__COUNT; i++)
		if (step->phase_ns[i])
			diff__add(m, DIFF_PHASES, phase__name(i), block, step->phase_ns[i] / 1e9);
	for (uint32_t i = 0; i < step->part_cnt; i++)
		waits_ns[step->parts[i].cause] += step->parts[i].ns;
	for (unsigned int i = CAUSE_NONE + 1; i < CAUSE__END; i++)
		if (waits_ns[i])
			diff__add(m, DIFF_WAITS, sample_cause__name(i), block, waits_ns[i] / 1e9);
}

static double median_of(uint64_t *ns, size_t cnt)
{
	qsort(ns, cnt, sizeof(*ns), compare__u64);
	return ns[percentile__index(cnt, 50)] / 1e9;
}

/* The error of the median of all steps, from how the medians of the blocks differ. */
static double median_error(const struct diff_maker *m, const struct step_track *tracks, size_t track_cnt,
			   uint64_t *room)
{
	double medians[BLOCKS_MAX];

	for (size_t b = 0; b < m->blocks.cnt; b++) {
		size_t cnt = 0;

		for (size_t t = 0; t < track_cnt; t++)
			for (size_t i = 0; i < tracks[t].step_cnt; i++)
				if (blocks__at(&m->blocks, tracks[t].steps[i].end_ns) == (int)b)
					room[cnt++] = step__ns(&tracks[t].steps[i]);
		medians[b] = cnt ? median_of(room, cnt) : 0;
	}
	return block_values__error(medians, m->blocks.cnt);
}

/* Measures the durations of all steps, as if they came from one track. */
static void measure_steps(struct diff_maker *m, const struct step_track *tracks, size_t track_cnt, uint64_t *room)
{
	struct diff_side *side = &m->diff->sides[m->side];
	size_t cnt = 0;

	for (size_t t = 0; t < track_cnt; t++)
		for (size_t i = 0; i < tracks[t].step_cnt; i++) {
			room[cnt++] = step__ns(&tracks[t].steps[i]);
			side->mean_s += step__ns(&tracks[t].steps[i]) / 1e9 / side->steps;
		}
	side->median_s = median_of(room, cnt);
	side->p99_s = room[percentile__index(cnt, 99)] / 1e9;
	side->median_error_s = median_error(m, tracks, track_cnt, room);
}

/* Cuts the side's time into blocks. */
static void cut_into_blocks(struct diff_maker *m, const struct step_track *tracks, size_t track_cnt, uint64_t *room)
{
	size_t cnt = 0;

	if (!m->diff->per_step) {
		blocks__of_time(&m->blocks, job__events_from(m->job), job__window(m->job)->end_ns);
		return;
	}
	for (size_t t = 0; t < track_cnt; t++)
		for (size_t i = 0; i < tracks[t].step_cnt; i++)
			room[cnt++] = tracks[t].steps[i].end_ns;
	blocks__of_instants(&m->blocks, room, cnt);
}

static void diff__add_steps(struct diff_maker *m)
{
	struct diff_side *side = &m->diff->sides[m->side];
	size_t cnt;
	const struct step_track *tracks = steps__tracks(m->steps, &cnt);
	uint64_t *room = calloc(side->steps + 1, sizeof(*room));

	if (!room) {
		m->err = -ENOMEM;
		return;
	}
	cut_into_blocks(m, tracks, cnt, room);
	if (m->diff->per_step) {
		measure_steps(m, tracks, cnt, room);
		for (size_t t = 0; t < cnt; t++)
			for (size_t i = 0; i < tracks[t].step_cnt; i++)
				diff__add_step(m, &tracks[t].steps[i]);
	}
	free(room);
}

/* ---- functions ---- */

/*
 * The block in which a sample counts: with steps, samples of the thread that makes them, by step;
 * without steps, samples of the main thread, by time. -1: in no block.
 */
static int block_of_sample(const struct diff_maker *m, const struct sample *sample)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(m->steps, &cnt);

	for (size_t i = 0; i < cnt && m->diff->per_step; i++) {
		long at = tracks[i].pid == sample->pid && tracks[i].tid == sample->tid
				  ? step_track__at(&tracks[i], sample->time_ns)
				  : -1;

		if (at >= 0)
			return blocks__at(&m->blocks, tracks[i].steps[at].end_ns);
	}
	if (m->diff->per_step || sample->pid != sample->tid || !job__is_main(m->job, sample->pid))
		return -1;
	return blocks__at(&m->blocks, sample->time_ns);
}

/* "train.py:Net.forward"; malloc'ed. NULL: no memory. */
static char *file_and_function(struct job *job, const struct code *code)
{
	const char *file = job__name_or_lost(job, code->file), *name = job__name_or_lost(job, code->name);
	const char *slash = file ? strrchr(file, '/') : NULL;
	char *text;

	return file && name && asprintf(&text, "%s:%s", slash ? slash + 1 : file, name) >= 0 ? text : NULL;
}

/* Adds self time by the innermost Python function of each sample. */
static void diff__add_functions(struct diff_maker *m)
{
	const struct samples *samples = job__samples(m->job);
	const struct stacks *stacks = job__stacks(m->job);
	size_t code_end = stacks__code_end(stacks);
	double(*totals)[BLOCKS_MAX] = calloc(code_end, sizeof(*totals)), *chances = calloc(code_end, sizeof(*chances));

	if (!totals || !chances || !samples)
		m->err = -ENOMEM;
	for (size_t i = 0; !m->err && i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);
		struct stack stack = stacks__stack(stacks, sample.stack);
		int block = stack.cnt ? block_of_sample(m, &sample) : -1;

		if (block < 0)
			continue;
		totals[stack.frames[0].code][block] += sample.weight_ns / 1e9;
		if (sample.waits != 1)
			chances[stack.frames[0].code] += sample.weight_ns / 1e9 * (sample.weight_ns / 1e9);
	}
	for (size_t i = 0; !m->err && i < code_end; i++) {
		struct code code = stacks__code(stacks, i);
		struct diff_entry *entry;
		char *name = NULL;

		for (size_t b = 0; b < m->blocks.cnt && !m->err; b++) {
			if (totals[i][b] > 0 && !name && !(name = file_and_function(m->job, &code)))
				m->err = -ENOMEM;
			if (totals[i][b] > 0)
				diff__add(m, DIFF_FUNCTIONS, name, b, totals[i][b]);
		}
		entry = name ? diff__entry(m, DIFF_FUNCTIONS, name) : NULL;
		if (entry)
			entry->chance += chances[i];
		free(name);
	}
	free(chances);
	free(totals);
}

/* ---- GPUs: in steps that CUPTI watched from begin to end; without steps, in the time that CUPTI watched ---- */

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

/* Calls diff__add. Cuts the time that CUPTI watched into blocks. */
static void diff__add_gpu(struct diff_maker *m, struct blocks *blocks)
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

/* ---- all together ---- */

static void describe_side(struct job *job, const struct steps *steps, struct diff_side *side)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(steps, &cnt);
	const struct samples *samples = job__samples(job);

	side->ranks = cnt;
	for (size_t i = 0; i < cnt; i++) {
		side->steps += tracks[i].step_cnt;
		side->rule = tracks[i].rule;
	}
	side->window_s = job__seen(job).ns / 1e9;
	side->sampled = samples && samples__cnt(samples);
	side->dropped = job__dropped(job)->hdr.type;
}

static double row_change(const struct diff_row *row)
{
	return row->s[DIFF_B] - row->s[DIFF_A];
}

static int compare_changes(const void *a, const void *b)
{
	const struct diff_row *x = a, *y = b;
	double p = fabs(row_change(x)), q = fabs(row_change(y));

	return p != q ? (p < q) - (p > q) : strcmp(x->name, y->name);
}

/* Whether both recordings contain such data at all. If not, a missing row is not a change. */
static bool is_comparable(const struct diff *diff, enum diff_section section)
{
	const struct diff_side *a = &diff->sides[DIFF_A], *b = &diff->sides[DIFF_B];

	switch (section) {
	case DIFF_FUNCTIONS:
	case DIFF_WAITS:
		return a->sampled && b->sampled;
	case DIFF_ACTIONS:
		return a->action_units > 0 && b->action_units > 0;
	case DIFF_OPS:
		return a->op_units > 0 && b->op_units > 0;
	case DIFF_GPU:
	case DIFF_GPU_WORK:
		return a->gpu_units > 0 && b->gpu_units > 0;
	default:
		return true;
	}
}

/*
 * The least error of times from timer samples, in s^2: a side that the timer never or rarely
 * sampled varies as much as the other. One random sample has its weight as its standard deviation.
 */
static double sampling_square(const struct diff_maker *m, const struct diff_entry *entry)
{
	const double *units = m->units, each = entry->chance / (units[DIFF_A] + units[DIFF_B]);

	if (!entry->chance || units[DIFF_A] <= 0 || units[DIFF_B] <= 0)
		return 0;
	return SURE * SURE * each * (1 / units[DIFF_A] + 1 / units[DIFF_B]);
}

static void take_entry(struct diff_maker *m, const struct diff_entry *entry)
{
	struct diff_row *row;
	double least;

	if (!is_comparable(m->diff, entry->key.section))
		return;
	if (!entry->row.s[DIFF_A] && !entry->row.s[DIFF_B]) /* no such time in the compared part */
		return;
	row = array__add(&m->diff->rows[entry->key.section], sizeof(*row));
	if (row) {
		*row = entry->row;
		row->name = strdup(((char *const *)m->entry_names.items.items)[entry->key.name]);
	}
	if (!row || !row->name) {
		m->err = -ENOMEM;
		return;
	}
	least = sampling_square(m, entry);
	row->error_s = sqrt(least > entry->square ? least : entry->square);
	m->diff->common += row->in[DIFF_A] && row->in[DIFF_B] && entry->key.section != DIFF_STEP;
}

/*
 * Makes a row from what was added to an entry on this side. grids: by section, for entries with
 * rows of history.
 */
static void settle_entry(struct diff_maker *m, struct diff_entry *entry, struct grid *const *grids)
{
	enum diff_section section = entry->key.section;
	const struct blocks *blocks = section == DIFF_GPU || section == DIFF_GPU_WORK ? &m->watched : &m->blocks;
	double sum = 0, error_s;

	if (!entry->row.in[m->side])
		return;
	if (grids[section]) {
		grid__measure(grids[section], &entry->rows, &entry->val, &entry->row.s[m->side], &error_s);
	} else {
		for (size_t i = 0; i < blocks->cnt; i++)
			sum += entry->totals[i];
		entry->row.s[m->side] = blocks__units(blocks) > 0 ? sum / blocks__units(blocks) : 0;
		error_s = block_means__error(entry->totals, blocks->units, blocks->cnt);
	}
	entry->square += error_s * error_s;
	if (section == DIFF_STEP)
		m->diff->sides[m->side].mean_error_s = error_s;
	memset(entry->totals, 0, sizeof(entry->totals));
	entry->rows.cnt = 0;
	entry->val = (struct agg_val){0};
}

static void settle_rows(struct diff_maker *m)
{
	struct diff_entry *entries = m->entries.items.items;
	struct grid *grids[DIFF__SECTIONS] = {
		[DIFF_ACTIONS] = grid__new(m, DIFF_ACTIONS), [DIFF_OPS] = grid__new(m, DIFF_OPS)};

	m->units[m->side] = blocks__units(&m->blocks);
	if (grids[DIFF_ACTIONS] && grids[DIFF_OPS]) {
		m->diff->sides[m->side].action_units = grid__units(grids[DIFF_ACTIONS]);
		m->diff->sides[m->side].op_units = grid__units(grids[DIFF_OPS]);
		for (size_t i = 0; i < m->entries.items.cnt; i++)
			settle_entry(m, &entries[i], grids);
	} else {
		m->err = -ENOMEM;
	}
	grid__free(grids[DIFF_ACTIONS]);
	grid__free(grids[DIFF_OPS]);
}

static int make_diff(struct diff_maker *m, const struct diff_input inputs[DIFF__SIDES], struct steps *const steps[])
{
	for (m->side = 0; m->side < DIFF__SIDES && !m->err; m->side++) {
		m->job = inputs[m->side].job;
		m->history = inputs[m->side].history;
		m->steps = steps[m->side];
		diff__add_steps(m);
		diff__add_functions(m);
		diff__add_actions(m);
		diff__add_ops(m);
		if (!m->err)
			diff__add_gpu(m, &m->watched);
		if (!m->err)
			settle_rows(m);
	}
	for (size_t i = 0; i < m->entries.items.cnt && !m->err; i++)
		take_entry(m, &((const struct diff_entry *)m->entries.items.items)[i]);
	diff__free_entries(m);
	for (int i = 0; i < DIFF__SECTIONS; i++)
		if (m->diff->rows[i].cnt)
			qsort(m->diff->rows[i].items, m->diff->rows[i].cnt, sizeof(struct diff_row), compare_changes);
	return m->err;
}

int diff__make(const struct diff_input inputs[DIFF__SIDES], struct diff *diff)
{
	struct steps *const steps[] = {steps__new(inputs[DIFF_A].job), steps__new(inputs[DIFF_B].job)};
	struct diff_maker m = {.diff = diff};
	int err = -ENOMEM;

	*diff = (struct diff){0};
	if (steps[DIFF_A] && steps[DIFF_B]) {
		for (int i = 0; i < DIFF__SIDES; i++)
			describe_side(inputs[i].job, steps[i], &diff->sides[i]);
		diff->per_step = diff->sides[DIFF_A].steps && diff->sides[DIFF_B].steps;
		err = make_diff(&m, inputs, steps);
	}
	steps__free(steps[DIFF_A]);
	steps__free(steps[DIFF_B]);
	if (err)
		diff__release(diff);
	return err;
}

void diff__release(struct diff *diff)
{
	for (int i = 0; i < DIFF__SECTIONS; i++) {
		struct diff_row *rows = diff->rows[i].items;

		for (size_t r = 0; r < diff->rows[i].cnt; r++)
			free(rows[r].name);
		free(rows);
	}
	*diff = (struct diff){0};
}

bool diff__is_chance(const struct diff_row *row)
{
	return !(fabs(row_change(row)) > 2 * row->error_s);
}

bool diff__is_change(const struct diff *diff, const struct diff_row *row)
{
	double unit_s = diff->per_step ? diff->sides[DIFF_A].mean_s : 1;

	return !diff__is_chance(row) && fabs(row_change(row)) >= unit_s / 100;
}

double diff__slower_percent(const struct diff *diff, double *error)
{
	const struct diff_side *a = &diff->sides[DIFF_A], *b = &diff->sides[DIFF_B];

	*error = NAN;
	if (!diff->per_step || a->median_s <= 0)
		return NAN;
	*error = 100 * hypot(a->median_error_s, b->median_error_s) / a->median_s;
	return 100 * (b->median_s - a->median_s) / a->median_s;
}
