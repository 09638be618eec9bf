/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A verdict in the making: verdict.c finds class and reasons, verdict_evidence.c what speaks for them, and verdict_next.c says
 * what to try.
 */
#ifndef STEPFLAME_USER_ANALYSIS_VERDICT_PRIVATE_H
#define STEPFLAME_USER_ANALYSIS_VERDICT_PRIVATE_H

#include "user/analysis/blame.h"
#include "user/analysis/verdict.h"

#define ANY           (-1) /* phase */
#define NONE          (-2) /* phase, or cause */

#define MENTION_SHARE 0.02 /* of the time of all steps: worth a word */

/* Time in a phase, or by a cause in any other, that speaks for a class. */
struct verdict_rule {
	enum verdict_class class;
	double share;
	int phase, causes[3]; /* or NONE */
	const char *what;
};

struct judging {
	struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	const struct blame *blame;
	const struct gpu_steps *gpu;
	const struct straggler *straggler; /* or NULL */
	struct verdict *verdict;
	const struct verdict_rule *rule; /* the winner; or */
	const struct blame_group *group; /* the winner; or */
	bool busy;                       /* that the GPU works is; or none of them */
	double share;                    /* of it */
	size_t workers;
	uint32_t slow_worker; /* pid of one that works for longer than the others, and is waited for; 0: none */
	int err;
};

/* Adds a text to the evidence, or to what to try next. */
void verdict__say(struct judging *j, struct array *list, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Does one process end most of the waits of the group? */
bool verdict__one_waker(const struct blame_group *group);
/* Did the process end, other than by exit(0)? */
bool verdict__failed(const struct job *job, uint32_t pid);
/* Is time in that phase, by that cause (CAUSE_NONE: on the CPU), the rule's? */
bool verdict_rule__has(const struct verdict_rule *rule, int phase, unsigned int cause);
/* Of the time that CUPTI watched; -1: too little. */
double verdict__busy_share(const struct judging *j);
/* verdict_evidence.c: the place, and the evidence. */
void verdict__give_evidence(struct judging *j);
/* verdict_input.c: where the workers work that the steps wait for; false: they wait for none, or it is not known. */
bool verdict__say_workers(struct judging *j);
/* verdict_next.c: what to try. */
void verdict__advise(struct judging *j);

#endif
