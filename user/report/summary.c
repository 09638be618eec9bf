// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The summary: what a recording says, on one screen. In: what the other reports find. Out: at most
 * SCREEN_LINES lines of at most SCREEN_COLUMNS columns, in plain words, and the command that says
 * more.
 */
#include "user/report/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/resource_records.h"
#include "user/analysis/verdict/endings.h"
#include "user/lib/columns.h"
#include "user/lib/digits.h"
#include "user/model/boundaries.h"
#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/model/rests.h"
#include "user/report/common.h"
#include "user/report/ops_rows.h"
#include "user/report/print/lines.h"
#include "user/report/print/text.h"
#include "user/report/rows.h"

#define SCREEN_LINES   24
#define ENDINGS_SHOWN  3
#define SCREEN_COLUMNS 100
#define COLUMNS_MIN    40

#define GROUPS_SHOWN   3
#define GROUP_SHARE    0.002 /* of the time: groups of slow steps with less are not shown */
#define NOTES_SHOWN    2

#define STALL_NS       2000000000ull /* a job without a step for so long, and for so many steps, stands still */
#define STALL_STEPS    10

/* ---- what is known ---- */

int summary__new(struct job *job, const struct report_options *options, struct summary *out)
{
	int err;

	*out = (struct summary){.job = job, .options = options};
	err = steps_view__new(job, options, &out->view);
	if (err)
		return err;
	out->workers = workers__new(job, out->view.steps);
	if (!out->workers)
		err = -ENOMEM;
	else
		out->loaders = workers__loaders(out->workers, &out->loader_cnt);
	if (!err && out->view.track_cnt) {
		const struct step_track *track = steps_view__shown(&out->view);

		err = steps_of__new(&out->view, track, true, &out->of);
		if (!err)
			out->track = track;
		err = err ?: slowdown__find(job, out->view.steps, track, &out->slowdown);
	}
	if (err)
		summary__release(out);
	return err;
}

void summary__release(struct summary *summary)
{
	if (summary->track)
		steps_of__release(&summary->of);
	slowdown__release(&summary->slowdown);
	workers__free(summary->workers);
	steps_view__release(&summary->view);
}

double summary__steps_per_s(const struct summary *summary)
{
	const struct step_track *track = summary->track;

	return track && track->total_ns ? track->step_cnt / (track->total_ns / 1e9) : 0;
}

/* ---- the longest actions or operators, added up over the main processes ---- */

#define SHOWN_SHARE 0.001 /* of the time: rows with less are left out */
#define OWN_SHARE   0.2   /* of a row's time: one with less merely contains others */
#define WIDE        56    /* columns from which on calls and means have room */

static void add_row(struct summary_rows *rows, const char *name, const char *kind, uint64_t calls, uint64_t ns)
{
	if (calls && ns >= SHOWN_SHARE * rows->window_ns)
		rows->items[rows->cnt++] = (struct summary_row){name, kind, calls, ns};
}

static int collect_ops(struct job *job, size_t limit, struct summary_rows *out)
{
	const struct report_options options = {.sort = "self_cpu_time_total", .limit = -1};
	struct ops_rows ops;
	int err = ops_rows__collect(job, &options, PROCESSES_ALL_MAIN, false, &ops);
	double all_ns = 0;

	if (err)
		return err;
	for (size_t i = 0; i < ops.cnt; i++)
		all_ns += ops.items[i].val.self_ns;
	out->window_ns = all_ns;
	for (size_t i = 0; i < ops.cnt && out->cnt < limit; i++)
		if (ops.items[i].kind != SPAN_NONE)
			add_row(out, ops.items[i].name, "op", ops.items[i].val.calls, ops.items[i].val.self_ns);
	out->of_ops = out->cnt;
	ops_rows__release(&ops);
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	const struct summary_row *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

/* What the steps know to be data or other is no forward, although the kernel counted it as such. */
static void add_forward(const struct steps_view *view, const struct row *row, struct summary_rows *out)
{
	uint64_t ns = row->val.self_ns, moved_ns = 0, data_ns = 0;

	for (size_t i = 0; i < view->track_cnt; i++) {
		for (int phase = 0; phase < PHASE__COUNT; phase++)
			moved_ns += view->tracks[i].moved_ns[phase];
		data_ns += view->tracks[i].moved_ns[PHASE_DATA];
	}
	add_row(out, row->name, labels__kind(row->kind), row->val.calls, ns > moved_ns ? ns - moved_ns : 0);
	add_row(out, "data, in front of the model", "data", row->val.calls, data_ns);
}

static int collect_actions(struct job *job, const struct steps_view *view, size_t limit, struct summary_rows *out)
{
	const struct report_options options = {.all = true};
	struct rows rows;
	int err = rows__collect(job, &options, PROCESSES_ALL_MAIN, "self", &rows);

	if (err)
		return err;
	out->window_ns = 1e9 * rows__window_s(job) * (rows.processes ?: 1);
	for (size_t i = 0; i < rows.cnt && out->cnt <= limit; i++) {
		const struct row *row = &rows.items[i];

		if (row->kind == SPAN_FORWARD)
			add_forward(view, row, out);
		else if (row->val.self_ns >= OWN_SHARE * row->val.total_ns)
			add_row(out, row->name, labels__kind(row->kind), row->val.calls, row->val.self_ns);
	}
	rows__release(&rows);
	qsort(out->items, out->cnt, sizeof(*out->items), compare_rows);
	out->cnt = out->cnt < limit ? out->cnt : limit;
	return 0;
}

int summary_rows__collect(struct job *job, const struct steps_view *view, size_t limit, struct summary_rows *out)
{
	int err;

	*out = (struct summary_rows){.items = calloc(limit + 2, sizeof(*out->items))};
	if (!out->items)
		return -ENOMEM;
	err = collect_ops(job, limit, out);
	if (!err && !out->cnt)
		err = collect_actions(job, view, limit, out);
	if (err)
		summary_rows__release(out);
	return err;
}

void summary_rows__release(struct summary_rows *rows)
{
	free(rows->items);
	*rows = (struct summary_rows){0};
}

int summary_rows__print(const struct summary_rows *rows, size_t columns, struct table *table)
{
	bool wide = columns >= WIDE;
	int err = 0;

	for (size_t i = 0; i < rows->cnt && !err; i++) {
		const struct summary_row *row = &rows->items[i];
		double share = rows->window_ns ? 100 * row->ns / rows->window_ns : 0;
		const struct cell cells[] = {
			cell__json("name:s", json_string(row->name)),
			cell__json("kind:s", json_string(row->kind)),
			cell__if(wide || !table->out,
				 cell__new("count:I", 3, "calls", 8, 0, common__json_integer(row->calls))),
			cell__new("self_s:f", 1, "own s", 8, -4, json_integer(row->ns)),
			cell__new(NULL, 2, "share", 7, 0,
				  rows->window_ns ? json_sprintf("%.1f %%", share) : json_string("-")),
			cell__json("percent:f?", common__json_real(rows->window_ns, share)),
			cell__if(wide || !table->out,
				 cell__new("self_mean_s:f", 4, "each ms", 9, -4, json_integer(row->ns / row->calls))),
			cell__new(NULL, 5, rows->of_ops ? "operator" : "action", 0, 0, json_string(row->name)),
		};

		err = TABLE_ADD(table, cells);
	}
	return err;
}

/* ---- a job that rested, for --budget or since it was paused: its windows, its rests, and what it costs ---- */

/* NULL: it was not measured. */
static const struct rec_overhead *measured_of(const struct summary *summary, const struct seen *seen)
{
	const struct rec_overhead *overhead = rests__overhead(job__rests(summary->job), seen->pid);

	return overhead && overhead->pairs && seen->whole_ns ? overhead : NULL;
}

/* In summary_budget.c. Adds in how many parts of its time a job that rested was recorded, and what its rests say. */
static void say_budget(const struct summary *summary, const struct seen *seen, struct lines *lines)
{
	const struct line_text how = {seen->budget_micros ? "Budget" : "Paused", LINE_PLAIN, 2, 1, 0};
	const struct line_text more = {"", LINE_PLAIN, 2, 1, 0};
	const struct rec_overhead *overhead = measured_of(summary, seen);
	char budget[32] = "", whole[32], median[32], longest[32];
	struct rest_steps steps;

	if (seen->budget_micros)
		snprintf(budget, sizeof(budget), "%g %% of the time: ", seen->budget_micros / 1e4);
	lines__add(lines, &how, "%srecorded in %" PRIu32 " part%s of %s; all below is of %s", budget, seen->parts,
		   seen->parts == 1 ? "" : "s", summary_text__duration(seen->whole_ns, whole),
		   seen->parts == 1 ? "it" : "these");
	if (!job__rest_steps(summary->job, seen->pid, &steps) && steps.cnt)
		lines__add(lines, &more, "steps between them: %" PRIu64 ", median %s, longest %s", steps.cnt,
			   summary_text__duration(steps.median_ns, median),
			   summary_text__duration(steps.longest_ns, longest));
	if (overhead)
		lines__add(lines, &more, "recorded steps take %s %% longer than these (+-%s); their hits say %s %%",
			   DIGITS(overhead->measured_micros / 1e4, 2), DIGITS(overhead->error_micros / 1e4, 2),
			   DIGITS(overhead->accounted_micros / 1e4, 2));
}

/* What the rests say of the cost: "job 0.4 % slower (measured, +-0.1)". false: nothing. */
static bool say_measured(const struct summary *summary, char *out, size_t room)
{
	const struct seen seen = job__seen(summary->job);
	const struct rec_overhead *overhead = measured_of(summary, &seen);
	double part;

	if (!overhead)
		return false;
	part = (double)seen.ns / seen.whole_ns;
	snprintf(out, room, "job %s %% slower (measured, +-%s)",
		 DIGITS((overhead->measured_micros * part + overhead->rest_micros * (1 - part)) / 1e4, 2),
		 DIGITS(overhead->error_micros * part / 1e4, 2));
	return true;
}

/* ---- which rank has held the others up for some time, when the whole recording is too long to show it ---- */

/* The steps that begin then or later. */
static struct step_track track_since(const struct step_track *track, uint64_t from_ns)
{
	struct step_track part = *track;

	while (part.step_cnt && part.steps->start_ns < from_ns) {
		part.steps++;
		part.step_cnt--;
	}
	part.slow = NULL;
	part.slow_cnt = 0;
	return part;
}

/* As text; malloc'ed. NULL: no memory. */
static char *text_of(struct job *job, const struct straggler *straggler)
{
	char *place, *text = NULL;

	if (straggler->index < 0)
		return strdup("");
	place = straggler->place.outer.code ? place__text(job, &straggler->place) : NULL;
	if (asprintf(&text, "%s: %s%s%s", straggler->name, straggler->why, place ? ", at " : "", place ?: "") < 0)
		text = NULL;
	free(place);
	return text;
}

char *summary__straggler_since(const struct summary *summary, uint64_t from_ns)
{
	const struct steps_view *view = &summary->view;
	struct step_track *tracks = calloc(view->track_cnt + 1, sizeof(*tracks));
	struct straggler straggler = {.index = -1};
	struct rank *ranks = NULL;
	char *text = NULL;

	for (size_t i = 0; tracks && i < view->track_cnt; i++)
		tracks[i] = track_since(&view->tracks[i], from_ns);
	if (tracks)
		ranks = ranks__new(summary->job, tracks, view->track_cnt);
	if (ranks && !ranks__straggler(summary->job, view->steps, ranks, view->track_cnt, &straggler))
		text = text_of(summary->job, &straggler);
	straggler__release(&straggler);
	free(ranks);
	free(tracks);
	return text;
}

/* ---- steps that have become longer for good ---- */

const struct blame_group *summary__slowdown_group(const struct summary *summary)
{
	const struct blame *blame = &summary->slowdown.blame;
	uint64_t over_ns = 0;

	for (size_t i = 0; i < blame->group_cnt; i++)
		over_ns += blame->groups[i].over_ns;
	return blame->group_cnt && blame->groups[0].cause != CAUSE_UNKNOWN && 2 * blame->groups[0].over_ns >= over_ns
		       ? blame->groups
		       : NULL;
}

char *summary__slowdown_why(const struct summary *summary)
{
	const struct blame_group *group = summary__slowdown_group(summary);
	char *how, *place, *text = NULL;

	if (!group)
		return strdup("");
	how = summary_text__how(&summary->of, group);
	if (!how || summary_text__place(summary->job, group, &place)) {
		free(how);
		return NULL;
	}
	if (asprintf(&text, "%s%s%s", how, place ? ", at " : "", place ?: "") < 0)
		text = NULL;
	free(how);
	free(place);
	return text;
}

/* In summary_slowdown.c. Adds since when steps are longer, by how much, and why, if they are. 0 or -ENOMEM. */
static int say_slowdown(const struct summary *summary, struct lines *lines)
{
	const struct slowdown *slowdown = &summary->slowdown;
	const struct step *first, *last;
	char ago[32], before[32], after[32], *why;

	if (!slowdown->at)
		return 0;
	why = summary__slowdown_why(summary);
	if (!why)
		return -ENOMEM;
	first = &summary->track->steps[slowdown->at];
	last = &summary->track->steps[summary->track->step_cnt - 1];
	lines__add(lines, &(struct line_text){"Slower", LINE_HOT, 3, 0, 0},
		   "since step %" PRIu64 ", %s before the end: %s, %.0f %% longer than before (%s)%s%s", first->index,
		   summary_text__duration(last->end_ns - first->start_ns, ago),
		   summary_text__duration(slowdown->after_ns, after),
		   100. * slowdown->after_ns / slowdown->before_ns - 100,
		   summary_text__duration(slowdown->before_ns, before), *why ? ": " : "", why);
	free(why);
	return 0;
}

/* ---- DataLoaders with workers ---- */

#define LOADERS_SHOWN 2

/* Of several processes: the one that waits longest for its loaders. 0: there is one. */
static uint32_t longest_waiting(const struct summary *summary)
{
	uint64_t ns = 0, most_ns = 0;
	uint32_t pid = 0, most = 0;
	bool several = false;

	for (size_t i = 0; i < summary->loader_cnt; i++) {
		const struct loader *loader = &summary->loaders[i];

		if (!loader->worker_cnt)
			continue;
		several |= pid && pid != loader->pid;
		ns = (pid == loader->pid ? ns : 0) + loader->wait_ns;
		pid = loader->pid;
		if (!most || ns > most_ns) {
			most_ns = ns;
			most = pid;
		}
	}
	return several ? most : 0;
}

static void say_loader(const struct summary *summary, const struct loader *loader, bool one_of_many,
		       struct lines *lines)
{
	const struct rec_target target = common__target(summary->job, loader->pid);
	const char *which = "";
	char advice[SUMMARY_ADVICE_BYTES], waited[32], who[64] = "";
	uint64_t seen_ns = 0, idle_ns = 0;

	for (size_t i = 0; i < loader->worker_cnt; i++) {
		seen_ns += loader->workers[i].seen_ns;
		idle_ns += loader->workers[i].idle_ns;
	}
	if (one_of_many && target.rank >= 0)
		snprintf(who, sizeof(who), "rank %d waits longest: ", target.rank);
	else if (one_of_many)
		snprintf(who, sizeof(who), "process %u waits longest: ", REC_PID(loader->pid));
	if (loader->of_cnt > 1)
		which = loader->place.validation ? "validation: " : "training: ";
	lines__add(lines, &(struct line_text){"Workers", LINE_PLAIN, 2, 1, 0},
		   "%s%s%u DataLoader worker%s, busy %.0f %% of the time; waits for batches: %s (%.1f %%)%s", who,
		   which, loader->at_once, summary_text__plural(loader->at_once),
		   seen_ns ? 100.0 * (seen_ns - fmin(seen_ns, idle_ns)) / seen_ns : 0,
		   summary_text__duration(loader->wait_ns, waited),
		   loader->observed_ns ? 100.0 * loader->wait_ns / loader->observed_ns : 0,
		   summary_text__advice(loader, advice));
}

/* Adds what is said of DataLoaders that have workers, if there are some. */
static void say_workers(const struct summary *summary, struct lines *lines)
{
	size_t cnt, workers = 0, shown = 0;
	const struct rec_target *targets;
	uint32_t only = longest_waiting(summary);

	for (size_t i = 0; i < summary->loader_cnt; i++) {
		const struct loader *loader = &summary->loaders[i];

		if (loader->worker_cnt && (!only || loader->pid == only) && shown++ < LOADERS_SHOWN)
			say_loader(summary, loader, only, lines);
	}
	if (shown > LOADERS_SHOWN)
		lines__add(lines, &(struct line_text){"", LINE_PLAIN, 1, 6, 0}, "and %zu more DataLoaders",
			   shown - LOADERS_SHOWN);
	if (shown)
		return;
	targets = job__targets(summary->job, &cnt);
	for (size_t i = 0; i < cnt; i++)
		workers += targets[i].role == ROLE_WORKER;
	if (workers)
		lines__add(lines, &(struct line_text){"Workers", LINE_PLAIN, 1, 1, 0}, "%zu DataLoader worker%s",
			   workers, summary_text__plural(workers));
}

/* ---- what ended otherwise than well ---- */

/* 0 or -ENOMEM. */
static int say_endings(const struct summary *summary, struct lines *lines)
{
	struct endings endings;
	int err = endings__find(summary->job, &endings);

	for (size_t i = 0; !err && i < endings.cnt && i < ENDINGS_SHOWN; i++) {
		const struct ending *e = &endings.items[i];

		lines__add(lines, &(struct line_text){i ? "" : "Ended", LINE_HOT, 3, i ? 3 : 0, 0},
			   "%s %s after %.1f s%s%s%s%s", e->name, e->how, e->at_s, *e->why ? ": " : "", e->why,
			   *e->place ? "; last seen at " : "", e->place);
	}
	if (!err && endings.cnt > ENDINGS_SHOWN)
		lines__add(lines, &(struct line_text){"", LINE_HOT, 1, 4, 0}, "and %zu more, later: report --json",
			   endings.cnt - ENDINGS_SHOWN);
	if (!err)
		endings__release(&endings);
	return err;
}

/* ---- title and steps ---- */

static void say_title(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Recorded", LINE_PLAIN, 2, 4, 0};
	const struct rec_target *targets, *main = NULL;
	char python[64] = "", torch[64] = "", jax[64] = "", what[64], window[32] = "?";
	const struct seen seen = job__seen(summary->job);
	size_t cnt, mains = 0;

	targets = job__targets(summary->job, &cnt);
	for (size_t i = 0; i < cnt; i++) {
		mains += targets[i].role == ROLE_MAIN;
		if (targets[i].role == ROLE_MAIN && !main)
			main = &targets[i];
	}
	if (main && main->python[0])
		snprintf(python, sizeof(python), ", Python %s", main->python);
	if (main && main->torch[0])
		snprintf(torch, sizeof(torch), ", torch %s", main->torch);
	if (main && main->jax[0])
		snprintf(jax, sizeof(jax), ", JAX %s", main->jax);
	if (mains == 1)
		snprintf(what, sizeof(what), "process %u", REC_PID(main->pid));
	else
		snprintf(what, sizeof(what), "%zu processes", mains);
	if (job__window(summary->job)->hdr.type)
		summary_text__duration(seen.ns, window);
	lines__add(lines, &how, "%s of %s%s%s%s", window, what, python, torch, jax);
	if (seen.rests)
		say_budget(summary, &seen, lines);
	if (job__dropped(summary->job)->hdr.type)
		lines__add(lines, &(struct line_text){"Dropped", LINE_PLAIN, 2, 1, 0},
			   "%" PRIu64
			   " events of the first %s s (record --max-size, --last): steps and slow steps are of "
			   "the rest",
			   (uint64_t)job__dropped(summary->job)->events,
			   DIGITS((job__events_from(summary->job) - job__window(summary->job)->start_ns) / 1e9, 4));
}

static void say_steps(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Steps", LINE_PLAIN, 2, 0, 0};
	const struct step_track *track = summary->track;
	const struct slow_rule *rule = &track->rule_of_slow;
	const char *end = common__step_rule(track->rule);
	char median[32], p99[32], process[32] = "", text[192];

	if (summary->view.track_cnt > 1)
		snprintf(process, sizeof(process), " of process %u", REC_PID(track->pid));
	snprintf(text, sizeof(text), "%zu%s: median %s, p99 %s, %s a second", track->step_cnt, process,
		 summary_text__duration(rule->median_ns, median), summary_text__duration(rule->p99_ns, p99),
		 DIGITS(summary__steps_per_s(summary), 3));
	if (strlen(text) + strlen(" (each ends with )") + strlen(end) <= lines__room(lines)) {
		lines__add(lines, &how, "%s (each ends with %s)", text, end);
	} else {
		lines__add(lines, &how, "%s", text);
		lines__add(lines, &(struct line_text){"", LINE_PLAIN, 1, 7, 0}, "(each ends with %s)", end);
	}
}

/* No step for so long: the job stands still, unless it does something else. */
static bool is_long(const struct step_track *track, uint64_t ns)
{
	return ns >= STALL_NS && ns >= STALL_STEPS * track->rule_of_slow.median_ns;
}

const struct outside_part *summary__stall(const struct summary *summary)
{
	const struct outside_part *after = &summary->of.outside.parts[OUTSIDE_AFTER];
	const struct step_track *track = summary->track;

	return track && is_long(track, after->still_ns) && after->still_ns > after->longest_ns &&
			       !job__exit(summary->job, track->pid)
		       ? after
		       : NULL;
}

/* 0 or -ENOMEM. */
static int say_stall(const struct summary *summary, struct lines *lines)
{
	static const char *const works[] = {"", "labels and actions go on, ", "it evaluates, ", "it saves, "};
	const struct outside_part *after = &summary->of.outside.parts[OUTSIDE_AFTER];
	const struct step_track *track = summary->track;
	bool stalls = summary__stall(summary);
	char *place = NULL, ns[32];

	if (!is_long(track, after->ns) || job__exit(summary->job, track->pid))
		return 0;
	if (after->hotspot.ns) {
		place = hotspot__text(summary->job, &after->hotspot);
		if (!place)
			return -ENOMEM;
	}
	lines__add(lines, &(struct line_text){stalls ? "Stalled" : "No step", stalls ? LINE_HOT : LINE_PLAIN, 2, 0, 0},
		   "%s in the last %s, since step %" PRIu64 ": %smostly %s%s%s",
		   stalls ? "no step has ended" : "has ended", summary_text__duration(after->ns, ns),
		   track->steps[track->step_cnt - 1].index, stalls ? "" : works[after->work],
		   after->cause ? summary_text__cause(after->cause) : "running", place ? ", at " : "", place ?: "");
	free(place);
	return 0;
}

/* Where the first main process spent its time, as it made no steps. 0 or -ENOMEM. */
static int say_instead(const struct summary *summary, struct lines *lines)
{
	const struct rec_target *targets;
	struct outside_part part = {0};
	char *text = NULL, ns[32];
	size_t cnt, at = 0;
	int err;

	targets = job__targets(summary->job, &cnt);
	while (at < cnt && targets[at].role != ROLE_MAIN)
		at++;
	err = at < cnt ? outside__all(summary->job, targets[at].pid, &part) : 0;
	if (err || !part.hotspot.ns)
		return err;
	text = hotspot__text(summary->job, &part.hotspot);
	if (!text)
		return -ENOMEM;
	lines__add(lines, &(struct line_text){"Mostly", LINE_PLAIN, 2, 0, 0},
		   "the main thread of process %u was in %s for most of %s", REC_PID(targets[at].pid), text,
		   summary_text__duration(part.ns, ns));
	free(text);
	return 0;
}

static int say_no_steps(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Steps", LINE_PLAIN, 3, 0, 0};
	const struct rec_window *window = job__window(summary->job);
	size_t boundary_cnt;
	uint64_t steps = 0;
	uint32_t rule;

	job__boundaries(summary->job, &boundary_cnt);
	if (window->hdr.type)
		boundaries__count(summary->job, &steps, &rule);
	if (steps > 1) {
		lines__add(lines, &how, "%" PRIu64 " ended, %s a second (%s). %s", steps,
			   DIGITS(steps / rows__window_s(summary->job), 3), common__step_rule(rule),
			   job__dropped(summary->job)->hdr.type
				   ? "None of those that were kept is whole"
				   : "Only a file that was recorded with samples (without -F 0) has their times");
		return 0;
	}
	if (boundaries__has_parts(summary->job))
		lines__add(lines, &how, "%s", BOUNDARIES_PARTS_TEXT);
	else if (boundary_cnt)
		lines__add(lines, &how, "no whole step is in this recording: record for longer, such as -d 60s");
	else
		lines__add(lines, &how,
			   "none was seen. Is the job training, past its imports and set-up? Then record for longer, "
			   "or say what ends a step: record --step-at NAME");
	return say_instead(summary, lines);
}

/* ---- what limits the job ---- */

/* 0 or -ENOMEM. */
static int say_limit(const struct summary *summary, struct lines *lines)
{
	const struct verdict *verdict = &summary->of.verdict;
	const struct blame_group *group = summary_text__group(&summary->of);
	const struct line_text head = {"Limited by", LINE_HOT, 2, 0, 0}, why = {"", LINE_PLAIN, 3, 1, 0},
			       next = {"Try", LINE_PLAIN, 3, 2, 0};
	bool placed = verdict->place && verdict->why && !strstr(verdict->why, verdict->place);
	char *limit = summary_text__limit(&summary->of);

	if (!limit)
		return -ENOMEM;
	lines__add(lines, &head, "%s", limit);
	free(limit);
	if (verdict->why && (!group || group >= summary->of.blame.groups + GROUPS_SHOWN))
		lines__add(lines, &why, "%s%s%s", verdict->why, placed ? ": " : "", placed ? verdict->place : "");
	if (verdict->next.cnt)
		lines__add(lines, &next, "%s", ((char *const *)verdict->next.items)[0]);
	return 0;
}

/* ---- slow steps ---- */

/* "3.1 %  6 steps, every 37th: sleeping, in data, at train.py:67 load". 0 or -ENOMEM. */
static int say_group(const struct summary *summary, const struct blame_group *group, struct lines *lines)
{
	const struct line_text how = {"", LINE_PLAIN, 2, group == summary->of.blame.groups ? 1 : 5, 8};
	char *rhythm = rhythm__text(&group->rhythm, group->step_cnt), *words = summary_text__how(&summary->of, group),
	     *place;
	int err = summary_text__place(summary->job, group, &place) ?: (rhythm && words ? 0 : -ENOMEM);

	if (!err)
		lines__add(lines, &how, "%4.1f %%  %u step%s%s%s: %s%s%s",
			   100.0 * group->over_ns / (summary->track->total_ns ?: 1), group->step_cnt,
			   summary_text__plural(group->step_cnt), *rhythm ? ", " : "", rhythm, words,
			   place ? ", at " : "", place ?: "");
	free(rhythm);
	free(words);
	free(place);
	return err;
}

static int say_slow(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Slow steps", LINE_PLAIN, 2, 0, 0};
	const struct step_track *track = summary->track;
	const struct slow_rule *rule = &track->rule_of_slow;
	const struct blame *blame = &summary->of.blame;
	char limit[32], ordinary[32];
	uint64_t over_ns = 0;
	int err = 0;

	for (size_t i = 0; i < blame->group_cnt; i++)
		over_ns += blame->groups[i].over_ns;
	if (rule->limit_ns == UINT64_MAX)
		lines__add(lines, &how, "not determined: fewer than %d steps", SLOW_MIN_CNT);
	else if (!track->slow_cnt)
		lines__add(lines, &how, "none of %zu took longer than %s", track->step_cnt,
			   summary_text__duration(rule->limit_ns, limit));
	else
		lines__add(lines, &how, "%zu of %zu over %s (usual: %s) cost %.1f %% of the time", track->slow_cnt,
			   track->step_cnt, summary_text__duration(rule->limit_ns, limit),
			   summary_text__duration(rule->ordinary_ns, ordinary),
			   100.0 * over_ns / (track->total_ns ?: 1));
	for (size_t i = 0; i < blame->group_cnt && i < GROUPS_SHOWN && !err; i++)
		if (!i || blame->groups[i].over_ns >= GROUP_SHARE * track->total_ns)
			err = say_group(summary, &blame->groups[i], lines);
	return err;
}

/* ---- phases ---- */

static int compare_parts(const void *a, const void *b)
{
	const struct bar_part *x = a, *y = b;

	return (x->share < y->share) - (x->share > y->share);
}

static void say_phases(const struct summary *summary, struct lines *lines)
{
	const struct step_sum *all = &summary->of.blame.all;
	struct bar_part parts[PHASE__COUNT];
	size_t cnt = 0;

	if (!summary->track->has_phases || !all->total_ns)
		return;
	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		uint64_t ns = 0;

		for (unsigned int cause = 0; cause < CAUSE__END; cause++)
			ns += all->ns[phase][cause];
		if (ns)
			parts[cnt++] = (struct bar_part){phase__name(phase), (double)ns / all->total_ns};
	}
	qsort(parts, cnt, sizeof(*parts), compare_parts);
	lines__add_bar(lines, &(struct line_text){"Phases", LINE_PLAIN, 0, 3, 0}, parts, cnt);
}

/* ---- the longest ---- */

static int say_longest(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Longest", LINE_PLAIN, SUMMARY_ROWS + 1, 2, 0};
	size_t bytes, columns = text__columns();
	struct table table = {.gap = "  ", .rules = RULES_NONE};
	struct summary_rows rows;
	char *text = NULL;
	int err = summary_rows__collect(summary->job, &summary->view, SUMMARY_ROWS, &rows);

	if (err)
		return err;
	table.out = open_memstream(&text, &bytes);
	if (table.out) {
		text__use_columns(lines__room(lines));
		err = summary_rows__print(&rows, lines__room(lines), &table);
		text__use_columns(columns);
	}
	if (!table.out || fclose(table.out))
		err = -ENOMEM;
	if (!err && rows.cnt)
		lines__add_block(lines, &how, text);
	free(text);
	summary_rows__release(&rows);
	return err;
}

/* ---- ranks, workers, GPU ---- */

static void say_ranks(const struct summary *summary, struct lines *lines)
{
	const struct steps_view *view = &summary->view;
	const struct line_text how = {"Ranks", LINE_PLAIN, 2, 1, 0};
	const struct straggler *straggler = &view->straggler;
	uint64_t min_ns = UINT64_MAX, max_ns = 0;
	char shortest[32], longest[32], medians[128];

	if (view->track_cnt < 2)
		return;
	for (size_t i = 0; i < view->track_cnt; i++) {
		uint64_t ns = view->tracks[i].rule_of_slow.median_ns;

		min_ns = ns < min_ns ? ns : min_ns;
		max_ns = ns > max_ns ? ns : max_ns;
	}
	snprintf(medians, sizeof(medians), "%zu make steps; their medians are %s to %s", view->track_cnt,
		 summary_text__duration(min_ns, shortest), summary_text__duration(max_ns, longest));
	if (straggler->index >= 0)
		lines__add(lines, &how, "%s; %s: %s", medians, straggler->name, straggler->why);
	else if (straggler->turns.waits_ns)
		lines__add(lines, &how, "%s; they wait for each other in turn", medians);
	else
		lines__add(lines, &how, "%s%s", medians, straggler->compared ? "; no rank holds the others up" : "");
}

static void say_gpu(const struct summary *summary, struct lines *lines)
{
	const struct gpu_step *all = &summary->of.gpu.all;

	if (all->watched_ns)
		lines__add(lines, &(struct line_text){"GPU", LINE_PLAIN, 1, 1, 0}, "busy for %.0f %% of the time",
			   100 * gpu_step__busy(all));
}

/* One line, where something is wrong. 0 or -ENOMEM. */
static int say_resources(const struct summary *summary, struct lines *lines)
{
	char text[STEPS_TROUBLE_BYTES];
	int err = steps_resources__worst(&summary->view, text);

	if (!err && *text)
		lines__add(lines, &(struct line_text){"Resources", LINE_PLAIN, 2, 1, 0}, "%s", text);
	return err;
}

/* ---- cost, losses, notes ---- */

/* share: of the time of the process that paid most. */
static void say_slower(double share, char *out, size_t room)
{
	const double most = 0.9; /* or more threads than one paid it */

	if (share < most)
		snprintf(out, room, "job about %s %% slower", DIGITS(100 * share / (1 - share), 2));
	else
		snprintf(out, room, "job several times slower");
}

static void say_cost(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Cost", LINE_DIM, 2, 0, 0};
	double target = common__target_percent(summary->job), own = common__own_percent(summary->job);
	uint64_t malformed = job__malformed(summary->job);
	size_t cnt, kinds;
	const struct job_counter *counters = job__counters(summary->job, &cnt), *most = counters;
	char slower[64] = "not recorded", cpu[64] = "", lost[224] = "nothing lost";

	if (!say_measured(summary, slower, sizeof(slower)) && target >= 0)
		say_slower(target / 100, slower, sizeof(slower));
	if (own >= 0)
		snprintf(cpu, sizeof(cpu), ", stepflame %s %% of a core", DIGITS(own, 2));
	for (size_t i = 1; i < cnt; i++)
		if (counters[i].value > most->value)
			most = &counters[i];
	kinds = cnt + !!malformed;
	if (cnt)
		snprintf(lost, sizeof(lost), "lost: %s (%" PRIu64 ")",
			 common__counter_meaning(most->name) ?: most->name, most->value);
	else if (malformed)
		snprintf(lost, sizeof(lost), "lost: records that made no sense (%" PRIu64 ")", malformed);
	if (kinds > 1)
		snprintf(lost + strlen(lost), sizeof(lost) - strlen(lost), "; %zu more kind%s of loss", kinds - 1,
			 summary_text__plural(kinds - 1));
	lines__add(lines, &how, "%s%s; %s", slower, cpu, lost);
}

static void say_notes(const struct summary *summary, struct lines *lines)
{
	size_t cnt;
	const char *const *notes = job__notes(summary->job, &cnt);

	for (size_t i = 0; i < cnt && i < NOTES_SHOWN; i++)
		lines__add(lines, &(struct line_text){"Note", LINE_PLAIN, 2, 4, 0}, "%s", notes[i]);
	if (cnt > NOTES_SHOWN)
		lines__add(lines, &(struct line_text){"", LINE_PLAIN, 1, 7, 0}, "%zu more note%s: report --simple",
			   cnt - NOTES_SHOWN, summary_text__plural(cnt - NOTES_SHOWN));
}

/* ---- what next ---- */

/* A name as a shell reads it, malloc'ed: in quotes if it has to be. NULL: no memory. */
static char *shell_word(const char *name)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+:@%,=";
	size_t room = 4 * strlen(name) + 3;
	char *word, *to;

	if (*name && strspn(name, plain) == strlen(name))
		return strdup(name);
	word = malloc(room);
	if (!word)
		return NULL;
	to = word;
	*to++ = '\'';
	for (; *name; name++)
		to += sprintf(to, *name == '\'' ? "'\\''" : "%c", *name);
	strcpy(to, "'");
	return word;
}

static const char *next_options(const struct summary *summary)
{
	size_t cnt;

	if (summary->track)
		return "--steps";
	job__actions(summary->job, &cnt);
	return cnt ? "--simple --all" : "--per-rank --simple";
}

static const char *next_words(const struct summary *summary)
{
	size_t cnt;

	if (summary->track)
		return "each slow step, and what each phase waits for";
	job__actions(summary->job, &cnt);
	return cnt ? "all that was seen" : "what child processes did";
}

static int say_next(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Next", LINE_PLAIN, 1, 0, 0}, more = {"", LINE_PLAIN, 1, 7, 0};
	const char *options = next_options(summary), *words = next_words(summary);
	char *word = summary->options->file ? shell_word(summary->options->file) : strdup(""), *command = NULL;
	int err = -ENOMEM;

	/* A command that is cut does not run. */
	if (!word || asprintf(&command, "stepflame report%s%s %s", *word ? " " : "", word, options) < 0)
		goto out;
	if (columns__of_text(command) > lines__room(lines)) {
		free(command);
		if (asprintf(&command, "stepflame report FILE %s", options) < 0)
			goto out;
	}
	if (columns__of_text(command) + strlen(words) + strlen("   ()") <= lines__room(lines)) {
		lines__add(lines, &how, "%s   (%s)", command, words);
	} else {
		lines__add(lines, &how, "%s", command);
		lines__add(lines, &more, "(%s)", words);
	}
	err = 0;
out:
	free(command);
	free(word);
	return err;
}

/* ---- together ---- */

static int print_summary(const struct summary *summary, FILE *out)
{
	size_t columns = text__columns();
	struct lines lines = {
		.width = columns > SCREEN_COLUMNS ? SCREEN_COLUMNS
			 : columns < COLUMNS_MIN  ? COLUMNS_MIN
						  : columns,
		.colour = summary->options->colour,
		.utf8 = text__utf8(),
	};
	int err = say_endings(summary, &lines);

	say_title(summary, &lines);
	if (summary->track) {
		say_steps(summary, &lines);
		err = err ?: say_slowdown(summary, &lines) ?: say_stall(summary, &lines) ?: say_limit(summary, &lines)
			  ?: say_slow(summary, &lines);
		say_phases(summary, &lines);
	} else {
		err = err ?: say_no_steps(summary, &lines);
	}
	err = err ?: say_longest(summary, &lines);
	say_gpu(summary, &lines);
	say_ranks(summary, &lines);
	say_workers(summary, &lines);
	err = err ?: say_resources(summary, &lines);
	say_notes(summary, &lines);
	say_cost(summary, &lines);
	err = err ?: say_next(summary, &lines) ?: lines__print(&lines, SCREEN_LINES, out);
	lines__release(&lines);
	return err;
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	struct summary summary;
	int err = summary__new(job, options, &summary);

	if (err)
		return err;
	err = print_summary(&summary, out);
	summary__release(&summary);
	return err ?: common__flush(out);
}

static const char *const sort_keys[] = {NULL};

const struct report_ops report_summary = {
	.name = "summary",
	.sort_keys = sort_keys,
	.text = print_text,
	.json = summary__json,
};
