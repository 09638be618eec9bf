// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which rank has held the others up for some time, when the whole recording is too long to show it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/report/summary.h"

/* The steps that begin then or later. */
static struct step_track since(const struct step_track *track, uint64_t from_ns)
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
		tracks[i] = since(&view->tracks[i], from_ns);
	if (tracks)
		ranks = ranks__new(summary->job, tracks, view->track_cnt);
	if (ranks && !ranks__straggler(summary->job, view->steps, ranks, view->track_cnt, &straggler))
		text = text_of(summary->job, &straggler);
	straggler__release(&straggler);
	free(ranks);
	free(tracks);
	return text;
}
