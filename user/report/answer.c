// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/answer.h"

#include <stdlib.h>

#include "user/report/common.h"
#include "user/report/summary.h"

/* Takes text over, which is malloc'ed UTF-8; NULL: no memory. "" becomes null. */
static json_t *take_text(char *text)
{
	json_t *json = text ? common__json_text(text) : NULL;

	free(text);
	return json;
}

static json_t *json_limit(const struct steps_of *of)
{
	json_t *verdict = steps_report__json_verdict(&of->verdict);

	common__json_set(&verdict, "head", take_text(summary_text__limit(of)));
	return verdict;
}

static json_t *json_steps(const struct steps_of *of, size_t group)
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
	common__json_set(&words, "steps", json_steps(of, at));
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
	common__json_set(&object, "verdict", json_limit(&of));
	common__json_set(&object, "causes", json_causes(view->job, &of));
	steps_of__release(&of);
	return object;
}

json_t *answer__json(const struct steps_view *view)
{
	json_t *object = json_object(), *tracks = json_array();

	for (size_t i = 0; i < view->track_cnt; i++)
		common__json_append(&tracks, json_track(view, i));
	common__json_set(&object, "shown",
			 view->track_cnt ? json_integer(steps_view__shown(view) - view->tracks) : json_null());
	common__json_set(&object, "tracks", tracks);
	return object;
}
