// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The summary as JSON, whose keys docs/summary.md describes, and the answer of a recording for views that draw it. */

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "user/analysis/verdict/endings.h"
#include "user/model/labels.h"
#include "user/report/common.h"
#include "user/report/print/shape.h"
#include "user/report/summary.h"

SHAPE(summary_steps_shape, "summary_steps", "pid:I count:I median_s:f p99_s:f per_second:f");

static json_t *json_steps(const struct summary *summary)
{
	const struct step_track *track = summary->track;

	if (!track)
		return json_null();
	return SHAPE_PACK(summary_steps_shape, json_integer(track->pid), json_integer(track->step_cnt),
			  json_real(track->rule_of_slow.median_ns / 1e9), json_real(track->rule_of_slow.p99_ns / 1e9),
			  json_real(summary__steps_per_s(summary)));
}

SHAPE(stall_shape, "stall", "seconds:f since_step:I cause:s where:[hotspot]");

static json_t *json_stall(const struct summary *summary)
{
	const struct outside_part *stall = summary__stall(summary);
	const struct step_track *track = summary->track;

	if (!stall)
		return json_null();
	return SHAPE_PACK(stall_shape, json_real(stall->ns / 1e9),
			  json_integer(track->steps[track->step_cnt - 1].index),
			  json_string(stall->cause ? sample_cause__name(stall->cause) : "running"),
			  steps_report__json_hotspots(summary->job, &stall->hotspot, 1));
}

SHAPE(slowdown_shape, "slowdown", "since_step:I seconds:f before_s:f after_s:f cause:s? phase:s? place:s?");

static json_t *json_slowdown(const struct summary *summary)
{
	const struct slowdown *slowdown = &summary->slowdown;
	const struct blame_group *group = summary__slowdown_group(summary);
	const struct step *steps;
	json_t *object;
	char *place = NULL;

	if (!slowdown->at)
		return json_null();
	if (group && summary_text__place(summary->job, group, &place))
		return NULL;
	steps = summary->track->steps;
	object =
		SHAPE_PACK(slowdown_shape, json_integer(steps[slowdown->at].index),
			   json_real((steps[summary->track->step_cnt - 1].end_ns - steps[slowdown->at].start_ns) / 1e9),
			   json_real(slowdown->before_ns / 1e9), json_real(slowdown->after_ns / 1e9),
			   common__json_text(group ? blame_cause__name(group->cause) : NULL),
			   common__json_text(group && group->phase >= 0 ? phase__name(group->phase) : NULL),
			   common__json_text(place));
	free(place);
	return object;
}

SHAPE(limit_shape, "limit", "class:s share:f? why:s? place:s? next:s?");

static json_t *json_limit(const struct summary *summary)
{
	const struct verdict *verdict = &summary->of.verdict;

	if (!summary->track)
		return json_null();
	return SHAPE_PACK(limit_shape, json_string(verdict_class__name(verdict->class)),
			  common__json_real(verdict->share, verdict->share), common__json_text(verdict->why),
			  common__json_text(verdict->place),
			  common__json_text(verdict->next.cnt ? ((char *const *)verdict->next.items)[0] : NULL));
}

SHAPE(slow_shape, "slow", "causes:[cause] count:I limit_s:f?");

static json_t *json_slow(const struct summary *summary)
{
	const struct step_track *track = summary->track;
	json_t *causes;
	struct table table;
	int failed;

	if (!track)
		return json_null();
	causes = json_array();
	table = (struct table){.list = causes};
	failed = steps_tables__groups(summary->job, &summary->of.blame, 0, &table);
	return SHAPE_PACK(
		slow_shape, common__json_unless_failed(causes, failed), json_integer(track->slow_cnt),
		common__json_real(track->rule_of_slow.limit_ns != UINT64_MAX, track->rule_of_slow.limit_ns / 1e9));
}

static json_t *json_phases(const struct summary *summary)
{
	json_t *list = json_array();
	struct table table = {.list = list};

	if (!summary->track)
		return list;
	return common__json_unless_failed(list, steps_tables__phases(&summary->of, &summary->of.blame.all, &table));
}

static json_t *json_longest(const struct summary *summary)
{
	json_t *list = json_array();
	struct table table = {.list = list};
	struct summary_rows rows;

	if (summary_rows__collect(summary->job, &summary->view, SUMMARY_ROWS, &rows)) {
		json_decref(list);
		return NULL;
	}
	list = common__json_unless_failed(list, summary_rows__print(&rows, 0, &table));
	summary_rows__release(&rows);
	return list;
}

SHAPE(rank_shape, "rank", "pid:I rank:I? steps:I median_s:f straggler:b");

static json_t *json_ranks(const struct summary *summary)
{
	const struct steps_view *view = &summary->view;
	json_t *list = json_array();

	for (size_t i = 0; i < view->track_cnt; i++) {
		const struct rank *rank = &view->ranks[i];

		common__json_append(&list, SHAPE_PACK(rank_shape, json_integer(rank->track->pid),
						      rank->rank < 0 ? json_null() : json_integer(rank->rank),
						      json_integer(rank->track->step_cnt),
						      json_real(rank->track->rule_of_slow.median_ns / 1e9),
						      json_boolean(view->straggler.index == (long)i)));
	}
	return list;
}

SHAPE(summary_loader_shape, "summary_loader", "pid:I workers:I wait_s:f needed:I?");

static json_t *json_workers(const struct summary *summary)
{
	json_t *list = json_array();

	for (size_t i = 0; i < summary->loader_cnt; i++) {
		const struct loader *loader = &summary->loaders[i];

		if (loader->worker_cnt)
			common__json_append(
				&list, SHAPE_PACK(summary_loader_shape, json_integer(loader->pid),
						  json_integer(loader->worker_cnt), json_real(loader->wait_ns / 1e9),
						  loader->needed ? json_integer(loader->needed) : json_null()));
	}
	return list;
}

SHAPE(ending_shape, "ending", "pid:I role:s rank:I? at_s:f signal:I? exit_status:I? why:s? place:s?");

static json_t *json_endings(const struct summary *summary)
{
	json_t *list = json_array();
	struct endings endings;

	if (endings__find(summary->job, &endings)) {
		json_decref(list);
		return NULL;
	}
	for (size_t i = 0; i < endings.cnt; i++) {
		const struct ending *e = &endings.items[i];
		int status = e->exit->exit_code, signal = WTERMSIG(status);

		common__json_append(&list, SHAPE_PACK(ending_shape, json_integer(e->target->pid),
						      json_string(labels__role(e->role)),
						      e->target->rank < 0 ? json_null() : json_integer(e->target->rank),
						      json_real(e->at_s), signal ? json_integer(signal) : json_null(),
						      signal ? json_null() : json_integer(WEXITSTATUS(status)),
						      common__json_text(*e->why ? e->why : NULL),
						      common__json_text(*e->place ? e->place : NULL)));
	}
	endings__release(&endings);
	return list;
}

static int add_blank_row(struct job *job, struct table *table)
{
	struct summary_row row = {.name = "", .kind = "", .calls = 1};
	const struct summary_rows rows = {.items = &row, .cnt = 1};

	return summary_rows__print(&rows, 0, table);
}

SHAPE_ROW(longest_shape, "longest", add_blank_row);
SHAPE_REPORT(summary_shape, "summary", "summary",
	     "@report ended:[ending] steps:summary_steps? slowdown:slowdown? stall:stall? limit:limit? slow:slow? "
	     "phases:[phase] longest:[longest] ranks:[rank] loaders:[summary_loader] resources:s?");

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_longest(void)
{
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, add_blank_row(NULL, &table));
}

int summary__json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "longest", NULL};
	struct summary summary;
	int err = summary__new(job, options, &summary);
	char trouble[STEPS_TROUBLE_BYTES];
	json_t *object;

	if (err)
		return err;
	err = steps_resources__worst(&summary.view, trouble);
	if (err) {
		summary__release(&summary);
		return err;
	}
	object = common__json(job, report_summary.name);
	common__json_set(&object, "ended", json_endings(&summary));
	common__json_set(&object, "steps", json_steps(&summary));
	common__json_set(&object, "slowdown", json_slowdown(&summary));
	common__json_set(&object, "stall", json_stall(&summary));
	common__json_set(&object, "limit", json_limit(&summary));
	common__json_set(&object, "slow", json_slow(&summary));
	common__json_set(&object, "phases", json_phases(&summary));
	common__json_set(&object, "longest", json_longest(&summary));
	common__json_set(&object, "ranks", json_ranks(&summary));
	common__json_set(&object, "loaders", json_workers(&summary));
	common__json_set(&object, "resources", common__json_text(trouble));
	summary__release(&summary);
	return common__print_object(object, options, path, blank_longest(), out);
}

/* ---- the answer, for views that draw it ---- */

/* Takes text over, which is malloc'ed UTF-8; NULL: no memory. "" becomes null. */
static json_t *take_text(char *text)
{
	json_t *json = text ? common__json_text(text) : NULL;

	free(text);
	return json;
}

static json_t *json_verdict_of(const struct steps_of *of)
{
	json_t *verdict = steps_report__json_verdict(&of->verdict);

	common__json_set(&verdict, "head", take_text(summary_text__limit(of)));
	return verdict;
}

static json_t *json_steps_of(const struct steps_of *of, size_t group)
{
	json_t *list = json_array();

	for (size_t i = 0; i < of->track->slow_cnt; i++)
		if (of->blame.steps[i].group == group)
			common__json_append(&list,
					    common__json_integer(of->track->steps[of->blame.steps[i].step].index));
	return list;
}

static json_t *json_place(struct job *job, const struct blame_group *group)
{
	char *place;
	int err = summary_text__place(job, group, &place);

	if (err)
		return NULL;
	return place ? take_text(place) : json_null();
}

/* Adds the words of a group to its row. 0 or -1. */
static int set_words(struct job *job, const struct steps_of *of, size_t at, json_t *row)
{
	const struct blame_group *group = &of->blame.groups[at];
	uint64_t total_ns = of->blame.all.total_ns;
	json_t *words = json_object();

	common__json_set(&words, "words", json_string(summary_text__cause(group->cause)));
	common__json_set(&words, "how", take_text(summary_text__how(of, group)));
	common__json_set(&words, "every", take_text(rhythm__text(&group->rhythm, group->step_cnt)));
	common__json_set(&words, "place", json_place(job, group));
	common__json_set(&words, "share", common__json_real(total_ns, (double)group->over_ns / (total_ns ?: 1)));
	common__json_set(&words, "steps", json_steps_of(of, at));
	return json_object_update_new(row, words);
}

static json_t *json_causes(struct job *job, const struct steps_of *of)
{
	json_t *list = json_array();
	struct table table = {.list = list};
	int failed = steps_tables__groups(job, &of->blame, 0, &table);

	for (size_t i = 0; i < json_array_size(list) && i < of->blame.group_cnt && !failed; i++)
		failed = set_words(job, of, i, json_array_get(list, i));
	return common__json_unless_failed(list, failed);
}

static json_t *json_track(const struct steps_view *view, size_t track)
{
	bool shown = &view->tracks[track] == steps_view__shown(view);
	struct steps_of of;
	json_t *object;

	if (steps_of__new(view, &view->tracks[track], shown, &of))
		return NULL;
	object = json_object();
	common__json_set(&object, "limit_s",
			 common__json_real(of.track->rule_of_slow.limit_ns != UINT64_MAX,
					   of.track->rule_of_slow.limit_ns / 1e9));
	common__json_set(&object, "ordinary_s", json_real(of.track->rule_of_slow.ordinary_ns / 1e9));
	common__json_set(&object, "verdict", json_verdict_of(&of));
	common__json_set(&object, "causes", json_causes(view->job, &of));
	steps_of__release(&of);
	return object;
}

json_t *summary__answer_json(const struct steps_view *view)
{
	json_t *object = json_object(), *tracks = json_array();

	for (size_t i = 0; i < view->track_cnt; i++)
		common__json_append(&tracks, json_track(view, i));
	common__json_set(&object, "shown",
			 view->track_cnt ? json_integer(steps_view__shown(view) - view->tracks) : json_null());
	common__json_set(&object, "tracks", tracks);
	return object;
}
