// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The summary as JSON; docs/summary.md describes the keys. */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "user/analysis/endings.h"
#include "user/model/labels.h"
#include "user/report/common.h"
#include "user/report/summary.h"

static json_t *json_steps(const struct summary *summary)
{
	const struct step_track *track = summary->track;

	if (!track)
		return json_null();
	return json_pack("{s:I, s:I, s:f, s:f, s:f}", "pid", (json_int_t)track->pid, "count",
			 (json_int_t)track->step_cnt, "median_s", track->rule_of_slow.median_ns / 1e9, "p99_s",
			 track->rule_of_slow.p99_ns / 1e9, "per_second", summary__steps_per_s(summary));
}

static json_t *json_stall(const struct summary *summary)
{
	const struct outside_part *stall = summary__stall(summary);
	const struct step_track *track = summary->track;

	if (!stall)
		return json_null();
	return json_pack("{s:f, s:I, s:s, s:o}", "seconds", stall->ns / 1e9, "since_step",
			 (json_int_t)track->steps[track->step_cnt - 1].index, "cause",
			 stall->cause ? sample_cause__name(stall->cause) : "running", "where",
			 steps_report__json_hotspots(summary->job, &stall->hotspot, 1));
}

static json_t *json_slowdown(const struct summary *summary)
{
	const struct slowdown *slowdown = &summary->slowdown;
	const struct blame_group *group = summary__slowdown_group(summary);
	const struct step *steps;
	json_t *object;
	char *place = NULL;

	if (!slowdown->at)
		return json_null();
	if (group && summary_words__place(summary->job, group, &place))
		return NULL;
	steps = summary->track->steps;
	object = json_pack("{s:I, s:f, s:f, s:f, s:o, s:o, s:o}", "since_step", (json_int_t)steps[slowdown->at].index,
			   "seconds", (steps[summary->track->step_cnt - 1].end_ns - steps[slowdown->at].start_ns) / 1e9,
			   "before_s", slowdown->before_ns / 1e9, "after_s", slowdown->after_ns / 1e9, "cause",
			   common__json_text(group ? blame_cause__name(group->cause) : NULL), "phase",
			   common__json_text(group && group->phase >= 0 ? phase__name(group->phase) : NULL), "place",
			   common__json_text(place));
	free(place);
	return object;
}

static json_t *json_limit(const struct summary *summary)
{
	const struct verdict *verdict = &summary->of.verdict;

	if (!summary->track)
		return json_null();
	return json_pack("{s:s, s:o, s:o, s:o, s:o}", "class", verdict_class__name(verdict->class), "share",
			 common__json_real(verdict->share, verdict->share), "why", common__json_text(verdict->why),
			 "place", common__json_text(verdict->place), "next",
			 common__json_text(verdict->next.cnt ? ((char *const *)verdict->next.items)[0] : NULL));
}

static json_t *json_slow(const struct summary *summary)
{
	json_t *object = json_object();
	struct table table = table__json(object, "causes");

	if (!summary->track) {
		json_decref(object);
		return json_null();
	}
	json_object_set_new(object, "count", json_integer(summary->track->slow_cnt));
	json_object_set_new(object, "limit_s",
			    common__json_real(summary->track->rule_of_slow.limit_ns != UINT64_MAX,
					      summary->track->rule_of_slow.limit_ns / 1e9));
	return common__json_unless_failed(
		object, !table.list || steps_tables__groups(summary->job, &summary->of.blame, 0, &table));
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

static json_t *json_ranks(const struct summary *summary)
{
	const struct steps_view *view = &summary->view;
	json_t *list = json_array();

	for (size_t i = 0; i < view->track_cnt; i++) {
		const struct rank *rank = &view->ranks[i];

		common__json_append(&list, json_pack("{s:I, s:o, s:I, s:f, s:b}", "pid", (json_int_t)rank->track->pid,
						     "rank", rank->rank < 0 ? json_null() : json_integer(rank->rank),
						     "steps", (json_int_t)rank->track->step_cnt, "median_s",
						     rank->track->rule_of_slow.median_ns / 1e9, "straggler",
						     view->straggler.index == (long)i));
	}
	return list;
}

static json_t *json_workers(const struct summary *summary)
{
	json_t *list = json_array();

	for (size_t i = 0; i < summary->loader_cnt; i++) {
		const struct loader *loader = &summary->loaders[i];

		if (loader->worker_cnt)
			common__json_append(&list,
					    json_pack("{s:I, s:I, s:f, s:o}", "pid", (json_int_t)loader->pid, "workers",
						      (json_int_t)loader->worker_cnt, "wait_s", loader->wait_ns / 1e9,
						      "needed",
						      loader->needed ? json_integer(loader->needed) : json_null()));
	}
	return list;
}

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

		common__json_append(&list,
				    json_pack("{s:I, s:s, s:o, s:f, s:o, s:o, s:o, s:o}", "pid",
					      (json_int_t)e->target->pid, "role", labels__role(e->role), "rank",
					      e->target->rank < 0 ? json_null() : json_integer(e->target->rank), "at_s",
					      e->at_s, "signal", signal ? json_integer(signal) : json_null(),
					      "exit_status", signal ? json_null() : json_integer(WEXITSTATUS(status)),
					      "why", common__json_text(*e->why ? e->why : NULL), "place",
					      common__json_text(*e->place ? e->place : NULL)));
	}
	endings__release(&endings);
	return list;
}

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_longest(void)
{
	struct summary_row row = {.name = "", .kind = "", .calls = 1};
	const struct summary_rows rows = {.items = &row, .cnt = 1};
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, summary_rows__print(&rows, 0, &table));
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
