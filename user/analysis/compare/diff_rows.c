// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The part of diff.h that compares counted rows: actions and operators, which a recording stores as
 * totals at each snapshot. The comparison runs from the first snapshot after the first step began
 * to the last before the last step ended, where totals and steps cover the same time. A short
 * recording has too little between these, and is compared as a whole, if it has all of its steps.
 *
 * A snapshot may fall anywhere in a step, so it is chance which calls of that step are in the
 * totals. This does not matter for a row that has equally many calls in each step (all counts
 * agree, to within the calls of a step): its time per step is that number of calls times their
 * mean. For any other row it is the sum divided by the steps that passed, where a partial step
 * counts by the share of its time.
 */
#include "user/analysis/compare/diff_rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/compare/diff.h"
#include "user/lib/map.h"
#include "user/lib/search.h"
#include "user/model/job.h"

/* ---- how rows grew from snapshot to snapshot ---- */

/* How much a row grew. */
struct growth {
	uint32_t snapshot; /* the snapshot that recorded it: an index into history__snapshots */
	uint64_t ns;       /* total time of an action, self time of an operator */
	uint64_t calls;
};

struct history_row {
	struct history_key {
		uint64_t type;     /* REC_AGG or REC_OP */
		struct op_key row; /* also for actions; fields are 0 that the row sums over */
	} key;
	struct array growths; /* struct growth, by snapshot */
};

/*
 * A snapshot begins with its REC_WINDOW. Rows before the first one count towards the first; merged
 * recordings, which have only one, contain such rows.
 */

#define SNAPSHOTS_MAX 1024 /* a day has 310, a week 890; later snapshots count as the last one */

/* The last state of a row; for an action, the key includes the enclosing action. */
struct row_state {
	struct history_key key;
	uint64_t ns, calls;
};

struct history {
	struct map states, rows; /* struct row_state, struct history_row */
	struct array snapshots;  /* uint64_t */
};

struct history *history__new(void)
{
	return calloc(1, sizeof(struct history));
}

void history__free(struct history *history)
{
	struct history_row *rows;

	if (!history)
		return;
	rows = history->rows.items.items;
	for (size_t i = 0; i < history->rows.items.cnt; i++)
		free(rows[i].growths.items);
	map__free(&history->rows);
	map__free(&history->states);
	free(history->snapshots.items);
	free(history);
}

static struct growth *growth_at(struct history_row *row, uint32_t snapshot)
{
	struct growth *growths = row->growths.items;

	if (row->growths.cnt && growths[row->growths.cnt - 1].snapshot == snapshot)
		return &growths[row->growths.cnt - 1];
	growths = array__add(&row->growths, sizeof(*growths));
	if (growths)
		growths->snapshot = snapshot;
	return growths;
}

static int history__add_row(struct history *history, uint64_t type, const struct op_key *key, uint64_t ns,
			    uint64_t calls)
{
	const struct history_key own = {type, *key},
				 of = {type, {.pid = key->pid, .kind = key->kind, .name = key->name}};
	struct row_state *state = MAP_ADD(&history->states, struct row_state, &own);
	struct history_row *row = MAP_ADD(&history->rows, struct history_row, &of);
	struct growth *growth =
		state && row ? growth_at(row, history->snapshots.cnt ? history->snapshots.cnt - 1 : 0) : NULL;

	if (!growth)
		return -ENOMEM;
	growth->ns += ns > state->ns ? ns - state->ns : 0;
	growth->calls += calls > state->calls ? calls - state->calls : 0;
	state->ns = ns;
	state->calls = calls;
	return 0;
}

/* In a corrupt recording, times may go back; the snapshot is then merged with the previous one. */
static int add_snapshot(struct history *history, const struct rec_window *window)
{
	uint64_t *last = history->snapshots.items;

	if (window->end_ns < window->start_ns)
		return 0;
	if (history->snapshots.cnt && window->end_ns <= last[history->snapshots.cnt - 1])
		return 0;
	last = history->snapshots.cnt < SNAPSHOTS_MAX ? array__add(&history->snapshots, sizeof(*last))
						      : &last[history->snapshots.cnt - 1];
	if (!last)
		return -ENOMEM;
	*last = window->end_ns;
	return 0;
}

int history__add(struct history *history, const struct rec_hdr *record)
{
	const struct rec_agg *agg = (const void *)record;
	const struct rec_op *op = (const void *)record;

	if (record->type == REC_WINDOW && record->size >= sizeof(struct rec_window))
		return add_snapshot(history, (const void *)record);
	if (record->type == REC_AGG && record->size >= sizeof(*agg))
		return history__add_row(
			history, REC_AGG,
			&(struct op_key){agg->key.pid, agg->key.kind, agg->key.name, agg->key.parent, 0},
			agg->val.total_ns, agg->val.calls);
	if (record->type == REC_OP && record->size >= sizeof(*op))
		return history__add_row(history, REC_OP, &op->key, op->val.self_ns, op->val.calls);
	return 0;
}

/*
 * uint64_t: the time of each snapshot, in order. All growths refer to these. NULL only with *cnt ==
 * 0.
 */
static const uint64_t *history__snapshots(const struct history *history, size_t *cnt)
{
	*cnt = history->snapshots.cnt;
	return history->snapshots.items;
}

/* NULL: the row never came. */
static const struct history_row *history__find(const struct history *history, uint16_t type, uint32_t pid,
					       uint32_t kind, uint64_t name)
{
	const struct history_key key = {type, {.pid = pid, .kind = kind, .name = name}};

	return MAP_FIND(&history->rows, struct history_row, &key);
}

/* ---- entries: times by section and name ---- */

struct diff_entry *diff__entry(struct diff_maker *m, enum diff_section section, const char *name)
{
	struct entry_key key = {.section = section};
	struct diff_entry *entry;

	if (m->err || !name)
		return NULL;
	entry = map__add_text(&m->entry_names, name, &key.name) ? NULL : MAP_ADD(&m->entries, struct diff_entry, &key);
	if (entry)
		entry->row.in[m->side] = true;
	else
		m->err = -ENOMEM;
	return entry;
}

void diff__add(struct diff_maker *m, enum diff_section section, const char *name, int block, double seconds)
{
	struct diff_entry *entry = block >= 0 ? diff__entry(m, section, name) : NULL;

	if (entry)
		entry->totals[block] += seconds;
}

/* Adds a row from its history instead. val: the final total, or NULL: not known. */
static void diff__add_row(struct diff_maker *m, enum diff_section section, const char *name,
			  const struct history_row *row, const struct agg_val *val)
{
	struct diff_entry *entry = row ? diff__entry(m, section, name) : NULL;
	const struct history_row **slot;

	for (size_t i = 0; entry && i < entry->rows.cnt; i++)
		if (((const struct history_row **)entry->rows.items)[i] == row)
			return;
	slot = entry ? array__add(&entry->rows, sizeof(*slot)) : NULL;
	if (slot)
		*slot = row;
	else if (entry)
		m->err = -ENOMEM;
	if (slot && val)
		job__add_val(&entry->val, val);
}

void diff__free_entries(struct diff_maker *m)
{
	struct diff_entry *entries = m->entries.items.items;

	for (size_t i = 0; i < m->entries.items.cnt; i++)
		free(entries[i].rows.items);
	map__free(&m->entries);
	map__free_texts(&m->entry_names);
}

#define LEAST_SHARE   0.5 /* of the steps */
#define STEPS_A_BLOCK 4   /* at least: chance at the ends of a block must not dominate it */

/* An instant at which the totals are known: a snapshot, or the beginning of the window. */
struct grid_point {
	double units; /* units that had passed by then */
	uint32_t snapshot;
	int block; /* of the time since the previous point; -1: not compared */
	double ns, calls;
};

struct grid {
	struct grid_point *points;
	size_t cnt;
	size_t first, last; /* the compared part lies between these points */
	double more;        /* units to add when all is compared: shares of steps that began or ended outside */
	size_t track_cnt;   /* processes that make steps; 0: units are seconds */
	size_t block_cnt;
};

/* ---- time to units ---- */

static double index_of(const struct step_track *track, double index)
{
	return index - ((double)track->steps[0].index - 1);
}

/*
 * How many steps of a track had passed, counted from its first; includes steps whose boundaries
 * were lost.
 */
static double steps_at(const struct step_track *track, uint64_t time_ns)
{
	const struct step *step, *next;
	double gap;
	size_t low = SEARCH(i, 0, track->step_cnt, track->steps[i].start_ns <= time_ns);
	if (!low)
		return 0;
	step = &track->steps[low - 1];
	next = low < track->step_cnt ? step + 1 : NULL;
	if (time_ns < step->end_ns)
		return index_of(track, step->index - 1) + (double)(time_ns - step->start_ns) / step__ns(step);
	gap = next ? (double)next->index - 1 - step->index : 0;
	if (gap <= 0)
		return index_of(track, step->index);
	return index_of(track, step->index) + gap * (time_ns - step->end_ns) / (next->start_ns - step->end_ns);
}

static double units_between(const struct diff_maker *m, const struct step_track *track, uint64_t from, uint64_t to)
{
	if (to <= from)
		return 0;
	return m->diff->per_step ? steps_at(track, to) - steps_at(track, from) : (to - from) / 1e9;
}

/* For operators, only the time in their windows counts. */
static double op_units_at(struct diff_maker *m, const struct step_track *tracks, size_t track_cnt, uint64_t time_ns)
{
	size_t cnt;
	const struct rec_op_window *windows = job__op_windows(m->job, &cnt);
	double units = 0;

	for (size_t i = 0; i < cnt; i++) {
		uint64_t to = time_ns < windows[i].end_ns ? time_ns : windows[i].end_ns;

		if (!m->diff->per_step)
			units += units_between(m, NULL, windows[i].start_ns, to);
		for (size_t t = 0; t < track_cnt && m->diff->per_step; t++)
			if (tracks[t].pid == windows[i].pid)
				units += units_between(m, &tracks[t], windows[i].start_ns, to);
	}
	return units;
}

static double units_at(struct diff_maker *m, enum diff_section section, uint64_t time_ns)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(m->steps, &cnt);
	double units = 0;

	if (section == DIFF_OPS)
		return op_units_at(m, tracks, cnt, time_ns);
	if (!m->diff->per_step)
		return units_between(m, NULL, job__window(m->job)->start_ns, time_ns);
	for (size_t t = 0; t < cnt; t++)
		units += steps_at(&tracks[t], time_ns);
	return units;
}

/* ---- the grid ---- */

struct time_range {
	uint64_t from, to;
};

/* From the begin of the first step to the end of the last; without steps, all time. */
static struct time_range steps_time_range(const struct diff_maker *m)
{
	struct time_range all = {UINT64_MAX, 0};
	size_t cnt;
	const struct step_track *tracks = steps__tracks(m->steps, &cnt);

	if (!m->diff->per_step)
		return (struct time_range){0, UINT64_MAX};
	for (size_t t = 0; t < cnt; t++) {
		uint64_t from = tracks[t].steps[0].start_ns, to = tracks[t].steps[tracks[t].step_cnt - 1].end_ns;

		all.from = from < all.from ? from : all.from;
		all.to = to > all.to ? to : all.to;
	}
	return all;
}

/* The time in which operators were counted. */
static struct time_range op_time_range(struct diff_maker *m)
{
	size_t cnt;
	const struct rec_op_window *windows = job__op_windows(m->job, &cnt);
	struct time_range all = {UINT64_MAX, 0};

	for (size_t i = 0; i < cnt; i++) {
		all.from = windows[i].start_ns < all.from ? windows[i].start_ns : all.from;
		all.to = windows[i].end_ns > all.to ? windows[i].end_ns : all.to;
	}
	return all;
}

/*
 * With too little between snapshots, compares all that was counted, including the shares of the
 * steps at both ends.
 */
static void take_all(struct grid *grid, const struct diff_maker *m, struct time_range whole)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(m->steps, &cnt);

	grid->first = 0;
	grid->last = grid->cnt - 1;
	for (size_t t = 0; t < cnt && m->diff->per_step; t++) {
		const struct step *first = &tracks[t].steps[0], *last = &tracks[t].steps[tracks[t].step_cnt - 1];
		double mean_ns = (double)tracks[t].total_ns / tracks[t].step_cnt;

		if (whole.from < first->start_ns)
			grid->more += fmin(1, (first->start_ns - whole.from) / mean_ns);
		if (whole.to > last->end_ns)
			grid->more += fmin(1, (whole.to - last->end_ns) / mean_ns);
	}
}

/*
 * Where record --max-size or --last has dropped steps, the totals are also of those: without two snapshots in the
 * steps that were kept, nothing can be compared.
 */
static void choose_part(struct grid *grid, const struct diff_maker *m, struct time_range whole)
{
	bool none = grid->first == SIZE_MAX;
	double all = grid->points[grid->cnt - 1].units - grid->points[0].units;

	if (!m->diff->per_step || !job__dropped(m->job)->hdr.type) {
		if (none || grid__units(grid) < LEAST_SHARE * all || grid__units(grid) <= 0)
			take_all(grid, m, whole);
	} else if (none) {
		grid->first = grid->last = 0;
	}
}

/* Makes blocks of about equal units, long enough that chance does not dominate them. */
static void cut_blocks(struct grid *grid, const struct diff_maker *m)
{
	double begin = grid->points[grid->first].units, units = grid->points[grid->last].units - begin;
	double wanted = m->diff->per_step ? units / STEPS_A_BLOCK : BLOCKS_MAX;
	int block = -1, last = -1;

	wanted = fmin(fmax(floor(wanted), 2), BLOCKS_MAX);
	for (size_t i = 0; i < grid->cnt; i++) {
		struct grid_point *point = &grid->points[i];
		int at;

		point->block = -1;
		if (i <= grid->first || i > grid->last || point->units <= point[-1].units)
			continue;
		at = fmin(((point->units + point[-1].units) / 2 - begin) / units * wanted, wanted - 1);
		block += at != last;
		last = at;
		point->block = block;
	}
	grid->block_cnt = block + 1;
}

struct grid *grid__new(struct diff_maker *m, enum diff_section section)
{
	const struct rec_window *window = job__window(m->job);
	size_t snapshot_cnt;
	const uint64_t *snapshots = history__snapshots(m->history, &snapshot_cnt);
	struct grid *grid = calloc(1, sizeof(*grid));
	struct time_range steps = steps_time_range(m), whole = {window->start_ns, window->end_ns};

	if (grid)
		grid->points = calloc(snapshot_cnt + 2, sizeof(*grid->points));
	if (!grid || !grid->points) {
		free(grid);
		return NULL;
	}
	if (section == DIFF_OPS)
		whole = op_time_range(m);
	grid->first = grid->last = SIZE_MAX;
	for (size_t i = 0; i <= snapshot_cnt || i <= 1; i++) {
		double before = grid->cnt ? grid->points[grid->cnt - 1].units : 0, units;
		uint64_t at = !i ? whole.from : i >= snapshot_cnt ? window->end_ns : snapshots[i - 1];
		struct grid_point *point = &grid->points[grid->cnt];

		if (i && i < snapshot_cnt && at <= whole.from)
			continue;
		at = at < whole.to ? at : whole.to;
		/* A file may hold steps that overlap or end before they begin: its units do not fall, either. */
		units = fmax(units_at(m, section, at), before);
		*point = (struct grid_point){.units = units, .snapshot = i ? i - 1 : 0, .block = -1};
		if (grid->first == SIZE_MAX && at >= steps.from && at <= steps.to)
			grid->first = grid->cnt;
		if (at >= steps.from && at <= steps.to)
			grid->last = grid->cnt;
		grid->cnt++;
	}
	choose_part(grid, m, whole);
	if (m->diff->per_step)
		steps__tracks(m->steps, &grid->track_cnt);
	cut_blocks(grid, m);
	return grid;
}

void grid__free(struct grid *grid)
{
	if (grid)
		free(grid->points);
	free(grid);
}

double grid__units(const struct grid *grid)
{
	return grid->points[grid->last].units - grid->points[grid->first].units + grid->more;
}

/* ---- rows ---- */

/* Sums the rows at each point: 0 at the beginning of the window, and the total at its end. */
static void grid__add_rows(struct grid *grid, const struct array *rows)
{
	const struct history_row *const *row = rows->items;

	for (size_t i = 0; i < grid->cnt; i++)
		grid->points[i].ns = grid->points[i].calls = 0;
	for (size_t r = 0; r < rows->cnt; r++) {
		const struct growth *growth = row[r]->growths.items;
		size_t at = 0;

		for (size_t i = 1; i < grid->cnt; i++)
			for (; at < row[r]->growths.cnt &&
			       (i + 1 == grid->cnt || growth[at].snapshot <= grid->points[i].snapshot);
			     at++) {
				grid->points[i].ns += growth[at].ns;
				grid->points[i].calls += growth[at].calls;
			}
	}
	for (size_t i = 1; i < grid->cnt; i++) {
		grid->points[i].ns += grid->points[i - 1].ns;
		grid->points[i].calls += grid->points[i - 1].calls;
	}
}

/*
 * How often the rows are called in each step; 0: not equally often. *over: calls by which the
 * counts differ beyond those of one step per process, for example because a snapshot took long to
 * read.
 */
static double calls_a_step(const struct grid *grid, double *over)
{
	const struct grid_point *points = grid->points, *first = &points[grid->first], *last = &points[grid->last];
	double steps = grid__units(grid), each = round((last->calls - first->calls) / steps), low = 0, high = 0;

	*over = 0;
	if (!grid->track_cnt || each < 1)
		return 0;
	for (size_t i = grid->first; i <= grid->last; i++) {
		double more = i == grid->last ? grid->more : 0;
		double off = points[i].calls - first->calls - each * (points[i].units - first->units + more);

		low = fmin(low, off);
		high = fmax(high, off);
	}
	*over = fmax(0, high - low - each * grid->track_cnt);
	return *over <= each * grid->track_cnt ? each : 0;
}

/* The variance of durations, from a histogram that is taken as uniform within each bucket. In ns^2. */
static double variance_of(const struct agg_val *val)
{
	double mean = (double)val->total_ns / val->calls, sum = 0, cnt = 0;

	for (int i = 0; i < AGG_BUCKETS; i++) {
		double low = fmax(i ? ldexp(1, i) : 0, val->min_ns);
		double high = fmin(i + 1 < AGG_BUCKETS ? ldexp(1, i + 1) : INFINITY, val->max_ns);

		if (!val->hist[i])
			continue;
		cnt += val->hist[i];
		if (high > low)
			sum += val->hist[i] * (pow(high - mean, 3) - pow(low - mean, 3)) / 3 / (high - low);
		else
			sum += val->hist[i] * (high - mean) * (high - mean);
	}
	return cnt ? sum / cnt : NAN;
}

/*
 * The error of the sum, in ns, when there are no snapshots to derive it from. Assumes independent
 * calls, which come at random unless each step has equally many.
 */
static double error_by_histogram(const struct agg_val *val, double calls, bool regular)
{
	double mean = val->calls ? (double)val->total_ns / val->calls : 0;

	if (calls < 2 || !val->calls)
		return NAN;
	return SURE * sqrt(calls * (variance_of(val) + (regular ? 0 : mean * mean)));
}

void grid__measure(struct grid *grid, const struct array *rows, const struct agg_val *val, double *s, double *error_s)
{
	double ns[BLOCKS_MAX] = {0}, per[BLOCKS_MAX] = {0}, units = grid__units(grid), each, over, calls, sum;

	grid__add_rows(grid, rows);
	each = calls_a_step(grid, &over);
	for (size_t i = grid->first + 1; i <= grid->last; i++) {
		const struct grid_point *point = &grid->points[i];

		if (point->block < 0)
			continue;
		ns[point->block] += point->ns - point[-1].ns;
		per[point->block] += each > 0 ? point->calls - point[-1].calls : point->units - point[-1].units;
	}
	sum = grid->points[grid->last].ns - grid->points[grid->first].ns;
	calls = grid->points[grid->last].calls - grid->points[grid->first].calls;
	*s = 0;
	*error_s = 0;
	if (units <= 0 || calls <= 0)
		return;
	*error_s = block_means__error(ns, per, grid->block_cnt) / 1e9;
	if (isnan(*error_s))
		*error_s = error_by_histogram(val, calls, each > 0) / (each > 0 ? calls : units) / 1e9;
	*s = sum / units / 1e9;
	if (each > 0) {
		*s = sum / calls * each / 1e9;
		*error_s = *error_s * each + over / units * sum / calls / 1e9;
	}
}

void diff__add_actions(struct diff_maker *m)
{
	size_t cnt;
	const struct job_action *actions = job__actions(m->job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (job__is_main(m->job, actions[i].pid))
			diff__add_row(
				m, DIFF_ACTIONS, actions[i].name,
				history__find(m->history, REC_AGG, actions[i].pid, actions[i].kind, actions[i].name_id),
				&actions[i].val);
}

void diff__add_ops(struct diff_maker *m)
{
	size_t cnt;
	const struct op_row *ops = job__ops(m->job, &cnt);

	/* Several rows here may share a name, and then form one row there, which counts once. */
	for (size_t i = 0; i < cnt; i++)
		diff__add_row(m, DIFF_OPS, ops[i].name,
			      history__find(m->history, REC_OP, ops[i].pid, ops[i].kind, ops[i].name_id), NULL);
}
