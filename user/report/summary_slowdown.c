// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The summary's lines on steps that have become longer for good. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/report/lines.h"
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

/* "sleeping in data, at train.py:67 load", or ""; malloc'ed. NULL: no memory. */
static char *why(const struct summary *summary)
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

char *summary__slowdown_text(const struct summary *summary)
{
	const struct slowdown *slowdown = &summary->slowdown;
	const struct step *steps = summary->track->steps, *last = &steps[summary->track->step_cnt - 1];
	char ago[32], before[32], after[32], *cause = why(summary), *text = NULL;

	if (cause &&
	    asprintf(&text, "since step %" PRIu64 ", %s before the end: %s, %.0f %% longer than before (%s)%s%s",
		     steps[slowdown->at].index,
		     summary_words__duration(last->end_ns - steps[slowdown->at].start_ns, ago),
		     summary_words__duration(slowdown->after_ns, after),
		     100. * slowdown->after_ns / slowdown->before_ns - 100,
		     summary_words__duration(slowdown->before_ns, before), *cause ? ": " : "", cause) < 0)
		text = NULL;
	free(cause);
	return text;
}

int summary__say_slowdown(const struct summary *summary, struct lines *lines)
{
	char *text;

	if (!summary->slowdown.at)
		return 0;
	text = summary__slowdown_text(summary);
	if (!text)
		return -ENOMEM;
	lines__add(lines, &(struct line_text){"Slower", LINE_HOT, 3, 0, 0}, "%s", text);
	free(text);
	return 0;
}
