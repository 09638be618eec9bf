// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/rests.h"

#include <errno.h>
#include <stdlib.h>

struct last_rest {
	uint64_t pid;
	size_t at; /* 1 + index in rests.all; 0: it has only a budget */
	struct rec_rest record;
};

struct process_overhead {
	uint64_t pid;
	struct rec_overhead record;
};

struct process_recorded {
	uint64_t pid;
	struct rec_recorded record;
};

static int add_recorded(struct rests *rests, const struct rec_recorded *record)
{
	const uint64_t key = record->pid;
	struct process_recorded *recorded;

	if (record->to_ns < record->from_ns)
		return -EINVAL;
	recorded = MAP_ADD(&rests->recorded, struct process_recorded, &key);
	if (recorded)
		recorded->record = *record;
	return recorded ? 0 : -ENOMEM;
}

static int add_overhead(struct rests *rests, const struct rec_overhead *record)
{
	const uint64_t key = record->pid;
	struct process_overhead *overhead = MAP_ADD(&rests->overheads, struct process_overhead, &key);

	if (overhead)
		overhead->record = *record;
	return overhead ? 0 : -ENOMEM;
}

static int add_rest(struct rests *rests, const struct rec_rest *rest)
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

int rests__add(struct rests *rests, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_REST:
		return add_rest(rests, (const void *)record);
	case REC_RECORDED:
		return add_recorded(rests, (const void *)record);
	default:
		return add_overhead(rests, (const void *)record);
	}
}

void rests__narrow(const struct rests *rests, uint32_t pid, uint64_t *from_ns, uint64_t *to_ns)
{
	const uint64_t key = pid;
	const struct process_recorded *recorded = MAP_FIND(&rests->recorded, struct process_recorded, &key);

	if (recorded && recorded->record.from_ns > *from_ns)
		*from_ns = recorded->record.from_ns;
	if (recorded && recorded->record.to_ns < *to_ns)
		*to_ns = recorded->record.to_ns;
	if (*to_ns < *from_ns)
		*to_ns = *from_ns;
}

const struct rec_overhead *rests__overhead(const struct rests *rests, uint32_t pid)
{
	const uint64_t key = pid;
	const struct process_overhead *overhead = MAP_FIND(&rests->overheads, struct process_overhead, &key);

	return overhead ? &overhead->record : NULL;
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

void rests__free(struct rests *rests)
{
	free(rests->all.items);
	map__free(&rests->last);
	map__free(&rests->overheads);
	map__free(&rests->recorded);
}
