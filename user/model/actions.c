// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Keyed state lies in a balanced tree (tsearch): its order is what merges the rows, and no recording can make it slow.
 */
#include "user/model/actions.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "user/lib/compare.h"
#include "user/lib/names.h"
#include "user/lib/saturating.h"
#include "user/model/job.h"

static int compare_agg(const void *a, const void *b)
{
	const struct agg_key *x = &((const struct rec_agg *)a)->key, *y = &((const struct rec_agg *)b)->key;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	return COMPARE(x->parent, y->parent);
}

void actions__free(struct actions *actions)
{
	tdestroy(actions->aggs, free);
	free(actions->rows.items);
	free(actions->parents.items);
}

/* Operators have records of their own. */
static bool is_row_kind(uint32_t kind)
{
	return (kind > SPAN_NONE && kind <= SPAN_USER) || (kind >= SPAN_GC && kind < SPAN__COUNT);
}

int actions__add(struct actions *actions, const struct rec_hdr *record)
{
	const struct rec_agg *new = (const void *)record;
	struct rec_agg **found, *agg;

	if (!is_row_kind(new->key.kind) || !new->key.name)
		return -EINVAL;
	found = tfind(new, &actions->aggs, compare_agg);
	if (found) {
		(*found)->val = new->val;
		return 0;
	}
	agg = malloc(sizeof(*agg));
	if (!agg)
		return -ENOMEM;
	*agg = *new;
	if (!tsearch(agg, &actions->aggs, compare_agg)) {
		free(agg);
		return -ENOMEM;
	}
	return 0;
}

void job__add_val(struct agg_val *sum, const struct agg_val *val)
{
	if (!sum->calls || val->min_ns < sum->min_ns)
		sum->min_ns = val->min_ns;
	if (!sum->calls || val->first_ns < sum->first_ns)
		sum->first_ns = val->first_ns;
	if (val->max_ns > sum->max_ns)
		sum->max_ns = val->max_ns;
	sum->calls = saturating__add(sum->calls, val->calls);
	sum->total_ns = saturating__add(sum->total_ns, val->total_ns);
	sum->self_ns = saturating__add(sum->self_ns, val->self_ns);
	for (int i = 0; i < AGG_BUCKETS; i++)
		sum->hist[i] += val->hist[i];
}

struct build {
	struct actions *actions;
	int err;
};

/* Called in the order of the keys, so that the aggregates of one row come one after the other. */
static void build_row(const void *node, VISIT visit, void *ctx)
{
	struct build *build = ctx;
	struct actions *actions = build->actions;
	const struct rec_agg *agg = *(const struct rec_agg *const *)node;
	const struct agg_key *key = &agg->key;
	struct job_action *row = actions->rows.items;
	uint64_t *parent;

	if ((visit != postorder && visit != leaf) || build->err || !agg->val.calls)
		return;
	row = actions->rows.cnt ? &row[actions->rows.cnt - 1] : NULL;
	if (!row || row->pid != key->pid || row->kind != key->kind || row->name_id != key->name) {
		row = array__add(&actions->rows, sizeof(*row));
		if (!row) {
			build->err = -ENOMEM;
			return;
		}
		row->pid = key->pid;
		row->kind = key->kind;
		row->name_id = key->name;
	}
	job__add_val(&row->val, &agg->val);
	if (!key->parent)
		return;
	parent = array__add(&actions->parents, sizeof(*parent));
	if (!parent) {
		build->err = -ENOMEM;
		return;
	}
	*parent = key->parent;
	row->parent_cnt++;
}

static int compare_first(const void *a, const void *b)
{
	const struct job_action *x = a, *y = b;

	if (x->val.first_ns != y->val.first_ns)
		return x->val.first_ns < y->val.first_ns ? -1 : 1;
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return COMPARE(x->name_id, y->name_id);
}

static int build_rows(struct actions *actions, struct names *names)
{
	struct build build = {.actions = actions};
	struct job_action *rows;
	const uint64_t *parent;

	actions->rows.cnt = 0;
	actions->parents.cnt = 0;
	twalk_r(actions->aggs, build_row, &build);
	if (build.err)
		return build.err;
	rows = actions->rows.items;
	parent = actions->parents.items;
	for (size_t i = 0; i < actions->rows.cnt; i++) {
		rows[i].name = names__find_or_lost(names, rows[i].name_id);
		if (!rows[i].name)
			return -ENOMEM;
		rows[i].parents = rows[i].parent_cnt ? parent : NULL;
		parent += rows[i].parent_cnt;
	}
	if (actions->rows.cnt)
		qsort(rows, actions->rows.cnt, sizeof(*rows), compare_first);
	actions->stale = false;
	return 0;
}

const struct job_action *actions__rows(struct actions *actions, struct names *names, size_t *cnt)
{
	if (actions->stale && build_rows(actions, names)) {
		*cnt = 0;
		return NULL;
	}
	*cnt = actions->rows.cnt;
	return actions->rows.items;
}
