// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The steps report: what bounds the steps of a job, where their time goes, and which steps were
 * slow and why. In: the model's steps. The times of the table add up to the time of the steps.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/profile.h"
#include "user/lib/digits.h"
#include "user/model/boundaries.h"
#include "user/recording/dropped_steps.h"
#include "user/report/common.h"
#include "user/report/io_rows.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"
#include "user/report/steps_report.h"

#define DEFAULT_LIMIT 10
#define SHOWN_SHARE   0.001 /* of the time: no mention of less */
#define LISTED_SHARE  0.005 /* of the time: groups of slow steps with less share one row */

const char *const steps_report__sort_keys[] = {"duration", "index", NULL};

/* ---- what is shown ---- */

int steps_view__new(struct job *job, const struct report_options *options, struct steps_view *view)
{
	*view = (struct steps_view){.job = job, .options = options, .steps = steps__new(job), .straggler.index = -1};
	view->gpu = view->steps ? job__gpu(job) : NULL;
	view->gpu_time = view->gpu ? gpu_time__new(job, view->steps) : NULL;
	if (!view->gpu_time) {
		steps_view__release(view);
		return -ENOMEM;
	}
	view->tracks = steps__tracks(view->steps, &view->track_cnt);
	view->ranks = ranks__new(job, view->tracks, view->track_cnt);
	if (view->ranks && !ranks__straggler(job, view->steps, view->ranks, view->track_cnt, &view->straggler))
		return 0;
	steps_view__release(view);
	return -ENOMEM;
}

void steps_view__release(struct steps_view *view)
{
	straggler__release(&view->straggler);
	free(view->ranks);
	gpu_time__free(view->gpu_time);
	steps__free(view->steps);
}

const struct step_track *steps_view__shown(const struct steps_view *view)
{
	size_t shown = 0;

	if (view->straggler.index >= 0)
		return &view->tracks[view->straggler.index];
	for (size_t i = 1; i < view->track_cnt; i++)
		if (view->ranks[i].rank < view->ranks[shown].rank)
			shown = i;
	return &view->tracks[shown];
}

static int compare_duration(const void *a, const void *b, void *ctx)
{
	const struct steps_of *of = ctx;
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	uint64_t x = of->blame.steps[i].over_ns, y = of->blame.steps[k].over_ns;

	return x != y ? (x < y) - (x > y) : (i > k) - (i < k);
}

int steps_of__new(const struct steps_view *view, const struct step_track *track, bool of_job, struct steps_of *of)
{
	const struct straggler *straggler = of_job ? &view->straggler : NULL;
	const char *sort = view->options->sort;
	int err;

	*of = (struct steps_of){.track = track, .order = calloc(track->slow_cnt + 1, sizeof(*of->order))};
	err = of->order ? blame__new(view->job, view->steps, track, &of->blame) : -ENOMEM;
	if (!err)
		err = gpu_steps__new(view->gpu, view->gpu_time, track, &of->gpu);
	if (!err)
		err = verdict__new(view->job, view->steps, track, &of->blame, &of->gpu, straggler, &of->verdict);
	if (!err)
		err = outside__find(view->job, view->steps, track, &of->outside);
	if (err) {
		steps_of__release(of);
		return err;
	}
	of->resources = resource_samples__of(view->job, track->pid);
	of->machine = machine_samples__of(view->job, track->pid);
	of->readings = gpu_readings__of(view->job, view->gpu);
	for (size_t i = 0; i < track->slow_cnt; i++)
		of->order[i] = i;
	if (!sort || !strcmp(sort, steps_report__sort_keys[0]))
		qsort_r(of->order, track->slow_cnt, sizeof(*of->order), compare_duration, of);
	return 0;
}

void steps_of__release(struct steps_of *of)
{
	verdict__release(&of->verdict);
	gpu_steps__release(&of->gpu);
	blame__release(&of->blame);
	free(of->order);
}

bool step_sum__cpu_share(const struct step_sum *sum, enum cpu_class class, double *share, double *error)
{
	double all = 0, cnt = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		cnt += sum->samples[phase][class];
		for (int c = 0; c < CPU__COUNT; c++)
			all += sum->samples[phase][c];
	}
	if (!all)
		return false;
	*share = cnt / all;
	/*
	 * Binomial error of a share. Even a share of 0 or 1 may be chance, so the error is at least
	 * that of one sample.
	 */
	*error = fmax(profile__error_ns(all * *share * (1 - *share)), 1) / all;
	return true;
}

#define CAUSE_ANY     -1 /* including no cause */
#define CAUSE_OTHER   -2 /* causes without a column */

#define WAIT_COLUMNS  4
#define COLUMNS_MAX   (4 + WAIT_COLUMNS)
#define COLUMN        10 /* width of a time per step */
#define FIXED_COLUMNS 31 /* terminal columns of phase, total and share */
#define SLOW_COLUMNS  4  /* ms/step, ms/slow, on CPU, others */

static json_t *share_text(uint64_t part, uint64_t whole)
{
	return json_sprintf("%.1f %%", 100.0 * part / whole);
}

static json_t *ms_text(uint64_t ns, size_t step_cnt)
{
	return ns && step_cnt ? json_real((double)ns / step_cnt / 1e6) : json_string("-");
}

/* ---- tables: phases ---- */

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

/* ---- tables: slow steps ---- */

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

static int add_slow_rows(struct job *job, const struct steps_of *of, size_t limit, struct table *table)
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

/* ---- tables: ranks ---- */

static int add_ranks_rows(const struct steps_view *view, struct table *table)
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

/* ---- text: time in torch.compile, and outside steps ---- */

#define SAID_SHARE    0.001 /* of the steps' time, or of time outside: omit a smaller share of compiles */
#define OUTSIDE_SHARE 0.02  /* share of the window */

/*
 * "2.31 s before the first (2.1 s of it in torch.compile; most of it in train.py:33 main)". 0 or
 * -ENOMEM.
 */
static int say_outside(struct job *job, const struct outside_part *part, const char *side, char **text)
{
	char *hotspot = part->hotspot.ns ? hotspot__text(job, &part->hotspot) : NULL, compile[64] = "";
	bool compiles = part->compile_ns >= SAID_SHARE * part->ns && part->compile_ns;
	int bytes;

	if (part->hotspot.ns && !hotspot)
		return -ENOMEM;
	if (compiles)
		snprintf(compile, sizeof(compile), "%s s of it in torch.compile%s", DIGITS(part->compile_ns / 1e9, 3),
			 hotspot ? "; " : "");
	bytes = asprintf(text, "%s s %s%s%s%s%s%s", DIGITS(part->ns / 1e9, 3), side, compiles || hotspot ? " (" : "",
			 compile, hotspot ? "most of it in " : "", hotspot ?: "", compiles || hotspot ? ")" : "");
	free(hotspot);
	return bytes < 0 ? -ENOMEM : 0;
}

/*
 * Prints nothing where the time outside steps is no more than that of the two steps that the window
 * cuts.
 */
static int steps_report__print_outside(struct job *job, const struct steps_of *of, FILE *out)
{
	const struct outside_part *parts = of->outside.parts;
	uint64_t usual_ns = 2 * of->track->rule_of_slow.median_ns, ns = parts[0].ns + parts[1].ns;
	char *before = NULL, *after = NULL;
	int err;

	if (ns <= usual_ns || ns < OUTSIDE_SHARE * (ns + of->track->total_ns))
		return 0;
	err = say_outside(job, &parts[OUTSIDE_BEFORE], "before the first boundary", &before)
		      ?: say_outside(job, &parts[OUTSIDE_AFTER], "after the last", &after);
	if (!err)
		text__paragraph(out, "in no step: %s, %s", before, after);
	free(before);
	free(after);
	return err;
}

/* Prints the line where there is something to say, as the next does. 0 or -ENOMEM. */
static int steps_report__print_compile(struct job *job, const struct steps_of *of, FILE *out)
{
	const struct compile_sum *compile = &of->blame.compile;
	char *hotspot;

	if (compile->ns < SAID_SHARE * of->track->total_ns)
		return 0;
	hotspot = compile->hotspot.ns ? hotspot__text(job, &compile->hotspot) : NULL;
	if (compile->hotspot.ns && !hotspot)
		return -ENOMEM;
	text__paragraph(out, "compile: %s s in torch.compile, in %zu step%s, %.1f %% of the time, included above%s%s",
			DIGITS(compile->ns / 1e9, 3), compile->step_cnt, compile->step_cnt == 1 ? "" : "s",
			100.0 * compile->ns / of->track->total_ns, hotspot ? "; called at " : "", hotspot ?: "");
	free(hotspot);
	return 0;
}

/* Their longest phases, "52 % forward, 20 % backward". */
static void list_phases(const struct rec_dropped_steps *dropped, char *text, size_t bytes)
{
	size_t at = 0;

	*text = 0;
	for (int p = 0; p < PHASE__COUNT; p++) {
		double share = 100.0 * dropped->phase_ns[p] / (dropped->total_ns ?: 1);

		if (share >= 1 && at < bytes)
			at += snprintf(text + at, bytes - at, "%s%.0f %% %s", at ? ", " : "; ", share, phase__name(p));
	}
}

/* What is known of the steps that record --max-size has dropped. */
static void steps_report__print_dropped(struct job *job, const struct step_track *track, FILE *out)
{
	const struct rec_dropped_steps *dropped = job__dropped_steps(job, track->pid, track->tid, track->rule);
	char phases[256];

	if (!dropped)
		return;
	list_phases(dropped, phases, sizeof(phases));
	text__paragraph(out,
			"before: %" PRIu64
			" steps, of which the recording has kept only this (--max-size, --last): median "
			"%s ms, p99 %s ms (within 1.1 %%), shortest %s ms, longest %s ms, %s s in all%s",
			(uint64_t)dropped->steps, DIGITS(dropped_steps__percentile_ns(dropped, 50) / 1e6, 4),
			DIGITS(dropped_steps__percentile_ns(dropped, 99) / 1e6, 4), DIGITS(dropped->min_ns / 1e6, 4),
			DIGITS(dropped->max_ns / 1e6, 4), DIGITS(dropped->total_ns / 1e9, 4), phases);
}

/* Says what a process did instead of steps. */
static int say_instead(struct job *job, const struct rec_target *target, FILE *out)
{
	struct outside_part part;
	char *text = NULL;
	int err = outside__all(job, target->pid, &part);

	if (err || (!part.hotspot.ns && !part.compile_ns))
		return err;
	err = say_outside(job, &part, "of its main thread", &text);
	if (!err)
		text__paragraph(out, "pid %u: %s", REC_PID(target->pid), text);
	free(text);
	return err;
}

/* Says why there are no steps, and what the processes did instead. */
static int steps_report__explain_empty(struct job *job, FILE *out)
{
	const struct rec_window *window = job__window(job);
	const struct rec_target *targets;
	size_t cnt;
	int err = 0;

	job__boundaries(job, &cnt);
	if (boundaries__has_parts(job))
		text__paragraph(out, "Steps: %s", BOUNDARIES_PARTS_TEXT);
	else if (cnt)
		text__paragraph(
			out, "No whole step is in this recording. Record for longer: stepflame record -p PID -d 30s");
	else if (window->steps)
		text__paragraph(out, "This recording counted its steps, but did not time them: record with samples, "
				     "without -F 0.");
	else
		text__paragraph(
			out, "No step was seen. Is the job training, past its set-up? Then record for longer, or say "
			     "what ends a step: stepflame record --step-at NAME");
	targets = job__targets(job, &cnt);
	for (size_t i = 0; i < cnt && !err; i++)
		if (targets[i].role == ROLE_MAIN)
			err = say_instead(job, &targets[i], out);
	return err;
}

/* ---- text: the verdict ---- */

static void print_list(const char *title, const struct array *list, FILE *out)
{
	char *const *texts = list->items;

	for (size_t i = 0; i < list->cnt; i++)
		text__paragraph(out, "%s: %s", title, texts[i]);
}

static void print_verdict(const struct verdict *verdict, FILE *out)
{
	text__paragraph(out, "verdict: %s: %s", verdict_class__name(verdict->class), verdict->why);
	print_list("evidence", &verdict->evidence, out);
	print_list("next", &verdict->next, out);
	fputc('\n', out);
}

/* ---- text: where the time of a step goes ---- */

static int print_phases(const struct steps_of *of, FILE *out)
{
	struct table table = {
		.out = out,
		.title = "Where the time of a step goes, in ms of a step on average",
		.rules = RULES_WIDE,
	};

	return steps_tables__phases(of, &of->blame.all, &table);
}

static void print_cpu(const char *title, const struct step_sum *sum, FILE *out)
{
	static const char *const names[] = {"Python", "operators", "other native code", "kernel"};
	double share, error, worst = 0;
	char parts[160] = "";
	size_t used = 0;
	uint64_t cnt = 0;

	for (int class = 0; class < CPU__COUNT; class ++) {
		if (!step_sum__cpu_share(sum, class, &share, &error))
			return;
		used += snprintf(parts + used, sizeof(parts) - used, "%s%.0f %% %s", used ? ", " : "", 100 * share,
				 names[class]);
		worst = fmax(worst, error);
		for (int phase = 0; phase < PHASE__COUNT; phase++)
			cnt += sum->samples[phase][class];
	}
	text__paragraph(out, "%s: %s (+-%.0f %%; of %" PRIu64 " sample%s)", title, parts, 100 * worst, cnt,
			cnt == 1 ? "" : "s");
}

static void print_gpu(const char *title, const struct gpu_step *sum, FILE *out)
{
	char calls[160] = "", busy[96] = "", profiling[64] = "";

	if (sum->known)
		snprintf(calls, sizeof(calls),
			 "%s launches, %s copies (%s MB) a step; %s ms of it in these calls, %s ms in waits",
			 DIGITS((double)sum->launches / sum->known, 4), DIGITS((double)sum->copies / sum->known, 4),
			 DIGITS(sum->copied_bytes / 1e6 / sum->known, 3), DIGITS(sum->api_ns / 1e6 / sum->known, 4),
			 DIGITS(sum->sync_ns / 1e6 / sum->known, 4));
	if (sum->watched_ns)
		snprintf(busy, sizeof(busy), "busy for %.1f %% of the %s s that CUPTI watched",
			 100 * gpu_step__busy(sum), DIGITS(sum->watched_ns / 1e9, 3));
	if (sum->profiling_ns)
		snprintf(profiling, sizeof(profiling), "; %s s of these steps lost to CUPTI",
			 DIGITS(sum->profiling_ns / 1e9, 3));
	if (*calls || *busy)
		text__paragraph(out, "%s: %s%s%s%s", title, calls, *calls && *busy ? "; " : "", busy, profiling);
}

static void print_below(const struct steps_of *of, FILE *out)
{
	const struct step_track *track = of->track;

	print_cpu("on CPU", &of->blame.all, out);
	if (track->slow_cnt)
		print_cpu("on CPU in slow steps", &of->blame.slow, out);
	print_gpu("GPU", &of->gpu.all, out);
	if (track->slow_cnt)
		print_gpu("GPU in slow steps", &of->gpu.slow, out);
	if (of->blame.all.gc_ns >= SHOWN_SHARE * track->total_ns)
		text__paragraph(out, "gc: %s s of collections, %.1f %% of the time, included above",
				DIGITS(of->blame.all.gc_ns / 1e9, 4), 100.0 * of->blame.all.gc_ns / track->total_ns);
	if (!track->thread)
		text__paragraph(
			out,
			"waits: not known, because the recording has no samples of the thread that makes the steps");
	if (!track->has_phases)
		text__paragraph(out, "phases: not known, so all time is in \"other\"");
	text__paragraph(out, "remainder: %.2f %% of the time was counted twice, or lies outside of its step or phase",
			100.0 * track->misfit_ns / track->total_ns);
}

/* ---- text: slow steps ---- */

static void print_steps_line(struct job *job, const struct steps_of *of, FILE *out)
{
	const struct step_track *track = of->track;
	const struct slow_rule *rule = &track->rule_of_slow;

	text__paragraph(out, "steps: %zu (%s): median %s ms, p99 %s ms, shortest %s ms, longest %s ms", track->step_cnt,
			common__step_rule(track->rule), DIGITS(rule->median_ns / 1e6, 4), DIGITS(rule->p99_ns / 1e6, 4),
			DIGITS(rule->min_ns / 1e6, 4), DIGITS(rule->max_ns / 1e6, 4));
	steps_report__print_dropped(job, track, out);
	if (track->lost)
		text__paragraph(out, "lost: %" PRIu64 " step%s, whose boundaries the recording lacks", track->lost,
				track->lost == 1 ? "" : "s");
	if (rule->limit_ns == UINT64_MAX)
		text__paragraph(out, "slow: not determined, because there are fewer than %d steps", SLOW_MIN_CNT);
	else
		text__paragraph(out, "slow: %zu step%s longer than %s ms (an ordinary one: %s ms)", track->slow_cnt,
				track->slow_cnt == 1 ? "" : "s", DIGITS(rule->limit_ns / 1e6, 4),
				DIGITS(rule->ordinary_ns / 1e6, 4));
	fputc('\n', out);
}

static int print_groups(struct job *job, const struct steps_of *of, FILE *out)
{
	struct table table = {
		.out = out,
		.title = "Slow steps, by what makes them longer than ordinary steps",
		.gap = "  ",
		.rules = RULES_NONE,
	};
	int err = steps_tables__groups(job, &of->blame, LISTED_SHARE, &table);

	fputc('\n', out);
	return err;
}

static int print_slow(struct job *job, const struct steps_of *of, const struct report_options *options, FILE *out)
{
	size_t limit = report_options__limit(options, DEFAULT_LIMIT), cnt = of->track->slow_cnt;
	struct table table = {.out = out, .gap = "  ", .rules = RULES_NONE};
	int err = add_slow_rows(job, of, limit, &table);

	if (limit < cnt)
		text__paragraph(out, "%zu more slow step%s (--limit 0: all)", cnt - limit, cnt - limit == 1 ? "" : "s");
	fputc('\n', out);
	return err;
}

/* ---- together ---- */

static int print_ranks(const struct steps_view *view, FILE *out)
{
	struct table table = {.out = out, .unknown = "-", .rules = RULES_NONE};
	int err = add_ranks_rows(view, &table);

	if (view->straggler.index >= 0)
		text__paragraph(out, "straggler: %s: %s", view->straggler.name, view->straggler.why);
	fputc('\n', out);
	return err;
}

static int print_track_text(const struct steps_view *view, const struct step_track *track, FILE *out)
{
	struct steps_of of;
	int err = steps_of__new(view, track, !view->options->per_rank, &of);

	if (err)
		return err;
	print_verdict(&of.verdict, out);
	print_steps_line(view->job, &of, out);
	err = print_phases(&of, out);
	print_below(&of, out);
	err = err ?: steps_report__print_compile(view->job, &of, out) ?: steps_report__print_outside(view->job, &of, out);
	fputc('\n', out);
	if (track->slow_cnt && !err)
		err = print_groups(view->job, &of, out) ?: print_slow(view->job, &of, view->options, out);
	steps_of__release(&of);
	return err;
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	struct steps_view view;
	int err = steps_view__new(job, options, &view);

	if (err)
		return err;
	fputs("Step Report\n\n", out);
	if (!view.track_cnt)
		err = steps_report__explain_empty(job, out);
	if (view.track_cnt > 1)
		err = print_ranks(&view, out);
	for (size_t i = 0; i < view.track_cnt && !err; i++) {
		const struct step_track *track = &view.tracks[i];
		struct rec_target target = common__target(job, track->pid);

		if (!options->per_rank && track != steps_view__shown(&view))
			continue;
		if (view.track_cnt > 1)
			common__process(&target, out);
		err = print_track_text(&view, track, out);
	}
	err = err ?: steps_resources__print(&view, out);
	steps_view__release(&view);
	return common__end(err, job, out);
}

const struct report_ops report_steps = {
	.name = "steps",
	.sort_keys = steps_report__sort_keys,
	.text = print_text,
	.json = steps_report__json,
};
