// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/actions.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/compare.h"
#include "user/lib/names.h"
#include "user/lib/saturating.h"

/* The last state of a key. */
struct agg {
	struct agg_key key;
	struct agg_val val;
	struct agg_val *before; /* owned: of earlier processes with this pid; NULL: there was none */
	bool ended;             /* the process of the last record has ended */
};

static int compare_agg(const void *a, const void *b)
{
	const struct agg_key *x = &((const struct agg *)a)->key, *y = &((const struct agg *)b)->key;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->kind != y->kind)
		return COMPARE(x->kind, y->kind);
	return x->name != y->name ? COMPARE(x->name, y->name) : COMPARE(x->parent, y->parent);
}

void actions__free(struct actions *actions)
{
	struct agg *aggs = actions->aggs.items.items;

	for (size_t i = 0; i < actions->aggs.items.cnt; i++)
		free(aggs[i].before);
	map__free(&actions->aggs);
	free(actions->rows.items);
	free(actions->parents.items);
}

/* Operators have their own records. */
static bool is_row_kind(uint32_t kind)
{
	return (kind > SPAN_NONE && kind <= SPAN_USER) || (kind >= SPAN_GC && kind < SPAN__COUNT);
}

/* Begins at 0 again, and remembers the values so far. 0 or -ENOMEM. */
static int agg__restart(struct agg *agg)
{
	agg->before = agg->before ?: malloc(sizeof(*agg->before));
	if (!agg->before)
		return -ENOMEM;
	*agg->before = agg->val;
	return 0;
}

int actions__add(struct actions *actions, const struct rec_hdr *record)
{
	const struct rec_agg *new = (const void *)record;
	struct agg *agg;

	if (!is_row_kind(new->key.kind) || !new->key.name)
		return -EINVAL;
	agg = MAP_ADD(&actions->aggs, struct agg, &new->key);
	if (!agg || (agg->ended && agg__restart(agg)))
		return -ENOMEM;
	agg->val = new->val;
	if (agg->before)
		job__add_val(&agg->val, agg->before);
	agg->ended = new->hdr.flags &REC_ENDED;
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

/* Merges an aggregate into the current row. The aggregates of one row are adjacent. */
static int add_to_rows(struct actions *actions, const struct agg *agg)
{
	const struct agg_key *key = &agg->key;
	struct job_action *row = actions->rows.items;
	uint64_t *parent;

	row = actions->rows.cnt ? &row[actions->rows.cnt - 1] : NULL;
	if (!row || row->pid != key->pid || row->kind != key->kind || row->name_id != key->name) {
		row = array__add(&actions->rows, sizeof(*row));
		if (!row)
			return -ENOMEM;
		row->pid = key->pid;
		row->kind = key->kind;
		row->name_id = key->name;
	}
	job__add_val(&row->val, &agg->val);
	if (!key->parent)
		return 0;
	parent = array__add(&actions->parents, sizeof(*parent));
	if (!parent)
		return -ENOMEM;
	*parent = key->parent;
	row->parent_cnt++;
	return 0;
}

static int compare_first_ns(const void *a, const void *b)
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

static int actions__build_rows(struct actions *actions, struct names *names)
{
	struct agg *aggs = map__sorted(&actions->aggs, sizeof(*aggs), compare_agg);
	struct job_action *rows;
	const uint64_t *parent;
	int err = aggs ? 0 : -ENOMEM;

	actions->rows.cnt = 0;
	actions->parents.cnt = 0;
	for (size_t i = 0; i < actions->aggs.items.cnt && !err; i++)
		if (aggs[i].val.calls)
			err = add_to_rows(actions, &aggs[i]);
	free(aggs);
	if (err)
		return err;
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
		qsort(rows, actions->rows.cnt, sizeof(*rows), compare_first_ns);
	actions->stale = false;
	return 0;
}

const struct job_action *actions__rows(struct actions *actions, struct names *names, size_t *cnt)
{
	if (actions->stale && actions__build_rows(actions, names)) {
		*cnt = 0;
		return NULL;
	}
	*cnt = actions->rows.cnt;
	return actions->rows.items;
}
