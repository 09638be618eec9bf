/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A verdict in the making: shared by verdict.c, which finds class and reasons, and verdict_next.c, which says what to try. */
#ifndef STEPFLAME_VERDICT_PRIVATE_H
#define STEPFLAME_VERDICT_PRIVATE_H

#include "blame.h"
#include "verdict.h"

#define MENTION_SHARE 0.02 /* of the time of all steps: worth a word */

/* Time in a phase, or by a cause in any other, that speaks for a class. */
struct verdict_rule {
	enum verdict_class class;
	double share;
	int phase, causes[3]; /* or NONE, as in verdict.c */
	const char *what;
};

struct judging {
	struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	const struct blame *blame;
	const struct gpu_steps *gpu;
	struct verdict *verdict;
	const struct verdict_rule *rule; /* the winner; or */
	const struct blame_group *group; /* the winner; or */
	bool busy;                       /* that the GPU works is; or none of them */
	double share;                    /* of it */
	size_t workers;
	int err;
};

/* Adds a text to the evidence, or to what to try next. */
void verdict__say(struct judging *j, struct array *list, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Does one process end most of the waits of the group? */
bool verdict__one_waker(const struct blame_group *group);
/* Did the process end, other than by exit(0)? */
bool verdict__failed(const struct job *job, uint32_t pid);
/* verdict_next.c: what to try. */
void verdict__advise(struct judging *j);

#endif
