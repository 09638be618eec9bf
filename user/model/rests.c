// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/rests.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/saturating.h"
#include "user/model/job.h"

struct last_rest {
	uint64_t pid;
	size_t at; /* 1 + index in rests.all; 0: it has only a budget */
	struct rec_rest record;
};

int rests__add(struct rests *rests, const struct rec_rest *rest)
{
	const uint64_t key = rest->pid;
	struct last_rest *last;
	struct rec_rest *all;

	if (rest->to_ns && rest->to_ns < rest->from_ns)
		return -EINVAL;
	last = MAP_ADD(&rests->last, struct last_rest, &key);
	if (!last)
		return -ENOMEM;
	if (rest->cnt && (!last->at || last->record.from_ns != rest->from_ns)) {
		if (!array__add(&rests->all, sizeof(*all)))
			return -ENOMEM;
		last->at = rests->all.cnt;
	}
	last->record = *rest;
	all = rests->all.items;
	if (rest->cnt)
		all[last->at - 1] = *rest;
	return 0;
}

const struct rec_rest *rests__last(const struct rests *rests, uint32_t pid)
{
	const uint64_t key = pid;
	const struct last_rest *last = MAP_FIND(&rests->last, struct last_rest, &key);

	return last ? &last->record : NULL;
}

uint64_t rests__between(const struct rests *rests, uint32_t pid, uint64_t from_ns, uint64_t to_ns)
{
	const struct rec_rest *all = rests->all.items;
	uint64_t ns = 0;

	for (size_t i = rests->all.cnt; i--;) {
		uint64_t from = all[i].from_ns, to = all[i].to_ns ?: UINT64_MAX;

		from = from < from_ns ? from_ns : from;
		to = to > to_ns ? to_ns : to;
		if (all[i].pid == pid && to > from)
			ns += to - from;
	}
	return ns;
}

/* Up to end_ns. */
static uint64_t rested_ns(const struct rec_rest *last, uint64_t end_ns)
{
	uint64_t to = last->to_ns ?: end_ns;

	return saturating__add(last->before_ns, last->cnt && to > last->from_ns ? to - last->from_ns : 0);
}

struct seen job__seen(const struct job *job)
{
	const struct rec_window *window = job__window(job);
	uint64_t whole_ns = window->end_ns - window->start_ns, least_ns = UINT64_MAX;
	struct seen seen = {.ns = whole_ns, .parts = 1};
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt && least_ns; i++) {
		const struct rec_rest *last = rests__last(job__rests(job), targets[i].pid);
		uint64_t ns = last ? rested_ns(last, window->end_ns) : 0;

		if (targets[i].role != ROLE_MAIN || ns >= least_ns)
			continue;
		least_ns = ns;
		seen.ns = ns < whole_ns ? whole_ns - ns : 0;
		seen.budget_micros = last ? last->budget_micros : 0;
		seen.rests = last ? last->cnt : 0;
		seen.parts = seen.rests + (!seen.rests || last->to_ns); /* it may rest at the end */
	}
	return seen;
}

void rests__free(struct rests *rests)
{
	free(rests->all.items);
	map__free(&rests->last);
}
