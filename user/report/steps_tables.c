// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The tables of the steps report: the titles of their columns, and what the columns contain. */
#include <errno.h>
#include <stdlib.h>

#include "user/report/common.h"
#include "user/report/io_rows.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"
#include "user/report/steps_report.h"

#define CAUSE_ANY     -1 /* including no cause */
#define CAUSE_OTHER   -2 /* causes without a column */

#define WAIT_COLUMNS  4
#define COLUMNS_MAX   (4 + WAIT_COLUMNS)
#define COLUMN        10    /* width of a time per step */
#define FIXED_COLUMNS 31    /* terminal columns of phase, total and share */
#define SLOW_COLUMNS  4     /* ms/step, ms/slow, on CPU, others */
#define SHOWN_SHARE   0.001 /* of the time: a smaller share has no column */

static json_t *share_text(uint64_t part, uint64_t whole)
{
	return json_sprintf("%.1f %%", 100.0 * part / whole);
}

static json_t *ms_text(uint64_t ns, size_t step_cnt)
{
	return ns && step_cnt ? json_real((double)ns / step_cnt / 1e6) : json_string("-");
}

/* ---- phases ---- */

static uint64_t sum_of(const struct step_sum *sum, int phase, int cause)
{
	uint64_t ns = 0;

	for (int p = 0; p < PHASE__COUNT; p++)
		for (int c = 0; c < CAUSE__END; c++)
			if ((phase < 0 || p == phase) && (cause < 0 || c == cause))
				ns += sum->ns[p][c];
	return ns;
}

/* Chooses the causes that get columns, those with most time first. Returns their number. */
static int choose_columns(const struct step_sum *sum, unsigned int *columns)
{
	int cnt = 0;

	for (unsigned int cause = CAUSE_NONE + 1; cause < CAUSE__END; cause++) {
		uint64_t ns = sum_of(sum, -1, cause);
		unsigned int at = cnt;

		if (ns < SHOWN_SHARE * sum->total_ns)
			continue;
		for (; at > 0 && sum_of(sum, -1, columns[at - 1]) < ns; at--)
			if (at < WAIT_COLUMNS)
				columns[at] = columns[at - 1];
		if (at < WAIT_COLUMNS)
			columns[at] = cause;
		if (cnt < WAIT_COLUMNS)
			cnt++;
	}
	return cnt;
}

/* A column of the table of phases: mean ms per step. */
struct step_column {
	const char *head;
	const struct step_sum *sum;
	int cause;
};

/* On a narrow terminal, fewer causes have columns of their own, and slow steps only their own tables. */
static size_t make_columns(const struct steps_of *of, struct step_column *columns)
{
	const struct step_sum *all = &of->blame.all;
	unsigned int causes[WAIT_COLUMNS];
	size_t room = text__columns() > FIXED_COLUMNS ? (text__columns() - FIXED_COLUMNS) / (COLUMN + 1) : 0;
	size_t cause_cnt = choose_columns(all, causes), cnt = 0;
	uint64_t shown = sum_of(all, -1, CAUSE_NONE);
	bool slow = of->track->slow_cnt && room >= SLOW_COLUMNS + 1;
	size_t others = SLOW_COLUMNS - !slow;

	if (cause_cnt > room - (room < others ? room : others))
		cause_cnt = room - (room < others ? room : others);
	columns[cnt++] = (struct step_column){"ms/step", all, CAUSE_ANY};
	if (slow)
		columns[cnt++] = (struct step_column){"ms/slow", &of->blame.slow, CAUSE_ANY};
	if (of->track->thread)
		columns[cnt++] = (struct step_column){"on CPU", all, CAUSE_NONE};
	for (size_t i = 0; i < cause_cnt; i++) {
		columns[cnt++] = (struct step_column){sample_cause__name(causes[i]), all, causes[i]};
		shown += sum_of(all, -1, causes[i]);
	}
	if (shown < all->total_ns)
		columns[cnt++] = (struct step_column){"others", all, CAUSE_OTHER};
	return cnt;
}

/* Adds the row of a phase, or of all where it is -1. */
static int add_phase(const struct steps_of *of, const struct step_sum *sum, int phase, struct table *table)
{
	uint64_t ns = sum_of(sum, phase, CAUSE_ANY), others = ns - sum_of(sum, phase, CAUSE_NONE);
	struct step_column columns[COLUMNS_MAX];
	size_t cnt = make_columns(of, columns);
	bool waits = of->track->thread;
	struct cell cells[5 + COLUMNS_MAX] = {
		cell__new("name:s", 1, "phase", -11, 0, json_string(phase < 0 ? "all" : phase__name(phase))),
		cell__new("total_s:f", 2, "total s", COLUMN, -4, json_integer(ns)),
		cell__new(NULL, 3, "share", 8, 0, share_text(ns, sum->total_ns)),
		cell__json("oncpu_s:f?", waits ? json_integer(sum_of(sum, phase, CAUSE_NONE)) : json_null()),
		cell__json("waits:{f}?", waits ? steps_report__json_waits(sum, phase) : json_null()),
	};

	for (size_t i = 0; i < cnt; i++) {
		const struct step_column *column = &columns[i];
		uint64_t part = column->cause == CAUSE_OTHER ? others : sum_of(column->sum, phase, column->cause);

		if (column->cause > CAUSE_NONE)
			others -= part;
		cells[5 + i] = cell__new(NULL, 4 + i, column->head, COLUMN, 3, ms_text(part, column->sum->step_cnt));
	}
	return table__add(table, cells, 5 + cnt);
}

static int add_blank_phase(struct job *job, struct table *table)
{
	const struct step_track track = {0};

	return add_phase(&(struct steps_of){.track = &track}, &(struct step_sum){0}, 0, table);
}

SHAPE_ROW(phase_shape, "phase", add_blank_phase);

int steps_tables__phases(const struct steps_of *of, const struct step_sum *sum, struct table *table)
{
	int err = 0;

	for (int i = 0; i < PHASE__COUNT && !err; i++) {
		int phase = table->out ? (i + 1) % PHASE__COUNT : i; /* in text, PHASE_OTHER comes last */

		if (sum_of(sum, phase, CAUSE_ANY))
			err = add_phase(of, sum, phase, table);
	}
	table->ruled = true;
	return err || !table->out ? err : add_phase(of, sum, -1, table);
}

/* ---- slow steps ---- */

/* "gc generation 2", "data_wait in data". */
static json_t *cause_text(const struct blame_group *group)
{
	const char *name = blame_cause__name(group->cause);
	bool is_phase = group->cause == BLAME_CHECKPOINT || group->cause == BLAME_VALIDATION;

	if (group->cause == BLAME_GC)
		return json_sprintf("gc generation %u", group->gc_generation);
	if (is_phase && group->wait)
		return json_sprintf("%s (%s)", name, blame_cause__name(group->wait));
	if (group->phase < 0 || is_phase)
		return json_string(name);
	return json_sprintf("%s in %s", name, phase__name(group->phase));
}

/* NULL: no memory. */
static json_t *rhythm_text(const struct blame_group *group)
{
	char *text = rhythm__text(&group->rhythm, group->step_cnt);
	json_t *json = text ? json_string(*text ? text : "-") : NULL;

	free(text);
	return json;
}

/* malloc'ed; NULL: no memory. */
static char *hotspot_text(struct job *job, const struct hotspot *hotspot)
{
	char *code = hotspot->ns ? hotspot__text(job, hotspot) : NULL;
	char *path = hotspot->file ? io_rows__path_of_name(job, hotspot->file) : NULL, *text;
	int bytes = asprintf(&text, "%s%s%s", code ?: "", path ? ": " : "", path ?: "");

	free(code);
	free(path);
	return bytes < 0 ? NULL : text;
}

SHAPE(rhythm_shape, "rhythm", "shortest:I longest:I matched:I");

static json_t *json_rhythm(const struct rhythm *rhythm)
{
	if (!rhythm->shortest)
		return json_null();
	return SHAPE_PACK(rhythm_shape, json_integer(rhythm->shortest), json_integer(rhythm->longest),
			  json_integer(rhythm->matched));
}

SHAPE(waker_shape, "waker", "pid:I tid:I share:f");

static json_t *json_waker(const struct blame_group *group)
{
	if (!group->waker_ns)
		return json_null();
	return SHAPE_PACK(waker_shape, json_integer(group->waker_pid), json_integer(group->waker_tid),
			  json_real((double)group->waker_ns / group->wait_ns));
}

/* A row of a group, or with others of those that cost little, which has fewer cells. */
static int add_group(struct job *job, const struct blame_group *group, bool others, uint64_t total_ns,
		     struct table *table)
{
	const struct cell cells[] = {
		cell__new(NULL, 1, "because of", -28, 0, others ? json_string("others") : cause_text(group)),
		cell__json("cause:s", json_string(blame_cause__name(group->cause))),
		cell__json("phase:s?", group->phase < 0 ? json_null() : json_string(phase__name(group->phase))),
		cell__json("wait:s?", common__json_text(sample_cause__name(group->wait))),
		cell__new("count:I", 2, "steps", 7, 0, json_integer(group->step_cnt)),
		cell__new("over_s:f", 3, "lost s", 9, -4, json_integer(group->over_ns)),
		cell__new(NULL, 4, "share", 8, 0, share_text(group->over_ns, total_ns)),
		cell__json("cause_s:f", json_integer(group->cause_ns)),
		cell__json("gc_generation:I?",
			   group->cause == BLAME_GC ? json_integer(group->gc_generation) : json_null()),
		cell__if(!others, cell__new(NULL, 5, "rhythm", -20, 0, rhythm_text(group))),
		cell__json("rhythm:rhythm?", json_rhythm(&group->rhythm)),
		cell__json("waker:waker?", json_waker(group)),
		cell__json("where:[hotspot]", steps_report__json_hotspots(job, group->hotspots, BLAME_HOTSPOTS)),
		cell__if(!others, cell__last(6, "where", hotspot_text(job, &group->hotspots[0]))),
	};

	return TABLE_ADD(table, cells);
}

static int add_blank_group(struct job *job, struct table *table)
{
	return add_group(job, &(struct blame_group){.phase = -1}, false, 0, table);
}

SHAPE_ROW(cause_shape, "cause", add_blank_group);

int steps_tables__groups(struct job *job, const struct blame *blame, double listed_share, struct table *table)
{
	struct blame_group others = {.phase = -1};
	int err = 0;

	for (size_t i = 0; i < blame->group_cnt && !err; i++) {
		const struct blame_group *group = &blame->groups[i];

		if (!i || group->over_ns >= listed_share * blame->all.total_ns) {
			err = add_group(job, group, false, blame->all.total_ns, table);
			continue;
		}
		others.step_cnt += group->step_cnt;
		others.over_ns += group->over_ns;
	}
	return err || !others.step_cnt ? err : add_group(job, &others, true, blame->all.total_ns, table);
}

int steps_tables__slow(struct job *job, const struct steps_of *of, size_t limit, struct table *table)
{
	const struct step_track *track = of->track;
	uint64_t start_ns = job__window(job)->start_ns;
	int err = 0;

	for (size_t i = 0; i < track->slow_cnt && i < limit && !err; i++) {
		const struct blame_step *blamed = &of->blame.steps[of->order[i]];
		const struct step *step = &track->steps[blamed->step];
		double times = (double)step__ns(step) / track->rule_of_slow.ordinary_ns;
		const struct cell cells[] = {
			cell__new(NULL, 1, "step", 9, 0, json_integer(step->index)),
			cell__new(NULL, 2, "at s", 10, 3, json_real((int64_t)(step->start_ns - start_ns) / 1e9)),
			cell__new(NULL, 3, "ms", 12, 3, json_integer(step__ns(step))),
			cell__new(NULL, 4, "times", 7, 0, json_sprintf("%.1f", times)),
			cell__new(NULL, 5, "because of", -28, 0, cause_text(&of->blame.groups[blamed->group])),
			cell__new(NULL, 6, "ms of it", 9, 3, json_real(blamed->cause_ns / 1e6)),
			cell__last(7, "where", hotspot_text(job, &blamed->hotspot)),
		};

		err = TABLE_ADD(table, cells);
	}
	return err;
}

/* ---- ranks ---- */

int steps_tables__ranks(const struct steps_view *view, struct table *table)
{
	int err = 0;

	for (size_t i = 0; i < view->track_cnt && !err; i++) {
		const struct rank *rank = &view->ranks[i];
		const struct step_track *track = rank->track;
		const struct cell cells[] = {
			cell__new(NULL, 1, "pid", 9, 0, json_integer(REC_PID(track->pid))),
			cell__new(NULL, 2, "rank", 5, 0, rank->rank < 0 ? json_null() : json_integer(rank->rank)),
			cell__new(NULL, 3, "steps", 8, 0, json_integer(track->step_cnt)),
			cell__new(NULL, 4, "median ms", 11, 3, json_integer(track->rule_of_slow.median_ns)),
			cell__new(NULL, 5, "on CPU", 11, 3,
				  ms_text(sum_of(&rank->sum, -1, CAUSE_NONE), rank->sum.step_cnt)),
			cell__new(NULL, 6, "collectives", 11, 3, ms_text(rank->comm_ns, rank->sum.step_cnt)),
			cell__new(NULL, 7, "slow", 7, 0, json_integer(track->slow_cnt)),
		};

		err = TABLE_ADD(table, cells);
	}
	return err;
}
