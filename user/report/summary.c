// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The summary: what a recording says, on one screen. In: what the other reports find. Out: at most
 * SCREEN_LINES lines of at most SCREEN_COLUMNS columns, in plain words, and the command that says
 * more.
 */
#include "user/report/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/verdict/endings.h"
#include "user/lib/columns.h"
#include "user/model/boundaries.h"
#include "user/model/seen.h"
#include "user/report/common.h"
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
		summary_words__duration(seen.ns, window);
	lines__add(lines, &how, "%s of %s%s%s%s", window, what, python, torch, jax);
	if (seen.rests)
		summary__say_budget(summary, &seen, lines);
	if (job__dropped(summary->job)->hdr.type)
		lines__add(lines, &(struct line_text){"Dropped", LINE_PLAIN, 2, 1, 0},
			   "%" PRIu64
			   " events of the first %.4g s (record --max-size, --last): steps and slow steps are of "
			   "the rest",
			   (uint64_t)job__dropped(summary->job)->events,
			   (job__events_from(summary->job) - job__window(summary->job)->start_ns) / 1e9);
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
	snprintf(text, sizeof(text), "%zu%s: median %s, p99 %s, %.3g a second", track->step_cnt, process,
		 summary_words__duration(rule->median_ns, median), summary_words__duration(rule->p99_ns, p99),
		 summary__steps_per_s(summary));
	if (strlen(text) + strlen(" (each ends with )") + strlen(end) <= lines__room(lines)) {
		lines__add(lines, &how, "%s (each ends with %s)", text, end);
	} else {
		lines__add(lines, &how, "%s", text);
		lines__add(lines, &(struct line_text){"", LINE_PLAIN, 1, 7, 0}, "(each ends with %s)", end);
	}
}

const struct outside_part *summary__stall(const struct summary *summary)
{
	const struct outside_part *after = &summary->of.outside.parts[OUTSIDE_AFTER];
	const struct step_track *track = summary->track;

	return track && after->ns >= STALL_NS && after->ns >= STALL_STEPS * track->rule_of_slow.median_ns &&
			       !job__exit(summary->job, track->pid)
		       ? after
		       : NULL;
}

/* 0 or -ENOMEM. */
static int say_stall(const struct summary *summary, struct lines *lines)
{
	const struct outside_part *after = summary__stall(summary);
	const struct step_track *track = summary->track;
	char *place = NULL, ns[32];

	if (!after)
		return 0;
	if (after->hotspot.ns) {
		place = hotspot__text(summary->job, &after->hotspot);
		if (!place)
			return -ENOMEM;
	}
	lines__add(lines, &(struct line_text){"Stalled", LINE_HOT, 2, 0, 0},
		   "no step has ended in the last %s, since step %" PRIu64 ": mostly %s%s%s",
		   summary_words__duration(after->ns, ns), track->steps[track->step_cnt - 1].index,
		   after->cause ? summary_words__cause(after->cause) : "running", place ? ", at " : "", place ?: "");
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
		   summary_words__duration(part.ns, ns));
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
		lines__add(lines, &how, "%" PRIu64 " ended, %.3g a second (%s). %s", steps,
			   steps / rows__window_s(summary->job), common__step_rule(rule),
			   job__dropped(summary->job)->hdr.type
				   ? "None of those that were kept is whole"
				   : "Only a file that was recorded with samples (without -F 0) has their times");
		return 0;
	}
	if (boundary_cnt)
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
	const struct blame_group *group = summary_words__group(&summary->of);
	const struct line_text head = {"Limited by", LINE_HOT, 2, 0, 0}, why = {"", LINE_PLAIN, 3, 1, 0},
			       next = {"Try", LINE_PLAIN, 3, 2, 0};
	bool placed = verdict->place && verdict->why && !strstr(verdict->why, verdict->place);
	char *limit = summary_words__limit(&summary->of);

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
	char *rhythm = rhythm__text(&group->rhythm, group->step_cnt), *words = summary_words__how(&summary->of, group),
	     *place;
	int err = summary_words__place(summary->job, group, &place) ?: (rhythm && words ? 0 : -ENOMEM);

	if (!err)
		lines__add(lines, &how, "%4.1f %%  %u step%s%s%s: %s%s%s",
			   100.0 * group->over_ns / (summary->track->total_ns ?: 1), group->step_cnt,
			   summary_words__plural(group->step_cnt), *rhythm ? ", " : "", rhythm, words,
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
			   summary_words__duration(rule->limit_ns, limit));
	else
		lines__add(lines, &how, "%zu of %zu over %s (usual: %s) cost %.1f %% of the time", track->slow_cnt,
			   track->step_cnt, summary_words__duration(rule->limit_ns, limit),
			   summary_words__duration(rule->ordinary_ns, ordinary),
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
		 summary_words__duration(min_ns, shortest), summary_words__duration(max_ns, longest));
	if (straggler->index >= 0)
		lines__add(lines, &how, "%s; %s: %s", medians, straggler->name, straggler->why);
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

static void say_cost(const struct summary *summary, struct lines *lines)
{
	const struct line_text how = {"Cost", LINE_DIM, 2, 0, 0};
	double target = common__target_percent(summary->job), own = common__own_percent(summary->job);
	uint64_t malformed = job__malformed(summary->job);
	size_t cnt, kinds;
	const struct job_counter *counters = job__counters(summary->job, &cnt), *most = counters;
	char slower[64] = "not recorded", cpu[64] = "", lost[224] = "nothing lost";

	if (!summary__measured(summary, slower, sizeof(slower)) && target >= 0)
		snprintf(slower, sizeof(slower), "job at least %.2g %% slower", target);
	if (own >= 0)
		snprintf(cpu, sizeof(cpu), ", stepflame %.2g %% of a core", own);
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
			 summary_words__plural(kinds - 1));
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
			   cnt - NOTES_SHOWN, summary_words__plural(cnt - NOTES_SHOWN));
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
		err = err ?: summary__say_slowdown(summary, &lines) ?: say_stall(summary, &lines) ?: say_limit(summary, &lines)
			  ?: say_slow(summary, &lines);
		say_phases(summary, &lines);
	} else {
		err = err ?: say_no_steps(summary, &lines);
	}
	err = err ?: say_longest(summary, &lines);
	say_gpu(summary, &lines);
	say_ranks(summary, &lines);
	summary__say_workers(summary, &lines);
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
