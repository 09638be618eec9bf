// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The summary's lines on steps that have become longer for good. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/report/print/lines.h"
#include "user/report/summary.h"

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
	how = summary_words__how(&summary->of, group);
	if (!how || summary_words__place(summary->job, group, &place)) {
		free(how);
		return NULL;
	}
	if (asprintf(&text, "%s%s%s", how, place ? ", at " : "", place ?: "") < 0)
		text = NULL;
	free(how);
	free(place);
	return text;
}

int summary__say_slowdown(const struct summary *summary, struct lines *lines)
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
		   summary_words__duration(last->end_ns - first->start_ns, ago),
		   summary_words__duration(slowdown->after_ns, after),
		   100. * slowdown->after_ns / slowdown->before_ns - 100,
		   summary_words__duration(slowdown->before_ns, before), *why ? ": " : "", why);
	free(why);
	return 0;
}
