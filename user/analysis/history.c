// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A snapshot begins with its REC_WINDOW. Rows that come before the first, as in merged recordings, which have but one, count as the
 * first's.
 */
#include "user/analysis/history.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"

#define SNAPSHOTS_MAX 1024 /* a day has 250; later ones count as the last */

/* What a record tells apart, and what it said last. */
struct state {
	uint16_t type; /* first: what compare_states looks at */
	uint32_t pid, kind;
	uint64_t name, around, group;
	uint64_t ns, calls;
	struct history_row *row;
};

struct history {
	void *states; /* trees */
	void *rows;
	struct array snapshots; /* uint64_t */
};

static int compare_rows(const void *a, const void *b)
{
	const struct history_row *x = a, *y = b;

	if (x->type != y->type)
		return COMPARE(x->type, y->type);
	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	return x->kind != y->kind ? COMPARE(x->kind, y->kind) : COMPARE(x->name, y->name);
}

static int compare_states(const void *a, const void *b)
{
	const struct state *x = a, *y = b;

	if (x->type != y->type)
		return COMPARE(x->type, y->type);
	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->kind != y->kind)
		return COMPARE(x->kind, y->kind);
	if (x->name != y->name)
		return COMPARE(x->name, y->name);
	return x->around != y->around ? COMPARE(x->around, y->around) : COMPARE(x->group, y->group);
}

static void free_row(void *node)
{
	struct history_row *row = node;

	free(row->growths.items);
	free(row);
}

struct history *history__new(void)
{
	return calloc(1, sizeof(struct history));
}

void history__free(struct history *history)
{
	if (!history)
		return;
	tdestroy(history->states, free);
	tdestroy(history->rows, free_row);
	free(history->snapshots.items);
	free(history);
}

/* What is in the tree under the key that item begins with, or else a copy of item. NULL: no memory. */
static void *find_or_add(void **tree, const void *item, size_t bytes, int (*compare)(const void *, const void *))
{
	void **found = tfind(item, tree, compare), *copy;

	if (found)
		return *found;
	copy = malloc(bytes);
	if (!copy)
		return NULL;
	memcpy(copy, item, bytes);
	if (tsearch(copy, tree, compare))
		return copy;
	free(copy);
	return NULL;
}

static struct growth *growth_at(struct history_row *row, uint32_t snapshot)
{
	struct growth *growths = row->growths.items;

	if (row->growths.cnt && growths[row->growths.cnt - 1].snapshot == snapshot)
		return &growths[row->growths.cnt - 1];
	growths = array__add(&row->growths, sizeof(*growths));
	if (growths)
		growths->snapshot = snapshot;
	return growths;
}

static int add_row(struct history *history, const struct state *new)
{
	struct history_row key = {.type = new->type, .pid = new->pid, .kind = new->kind, .name = new->name};
	struct state empty = *new, *state;
	struct growth *growth;

	empty.ns = empty.calls = 0;
	state = find_or_add(&history->states, &empty, sizeof(empty), compare_states);
	if (state && !state->row)
		state->row = find_or_add(&history->rows, &key, sizeof(key), compare_rows);
	growth = state && state->row ? growth_at(state->row, history->snapshots.cnt ? history->snapshots.cnt - 1 : 0)
				     : NULL;
	if (!growth)
		return -ENOMEM;
	growth->ns += new->ns > state->ns ? new->ns - state->ns : 0;
	growth->calls += new->calls > state->calls ? new->calls - state->calls : 0;
	state->ns = new->ns;
	state->calls = new->calls;
	return 0;
}

/* Times go back where a recording lies: then the snapshot is one with that before. */
static int add_snapshot(struct history *history, const struct rec_window *window)
{
	uint64_t *last = history->snapshots.items;

	if (window->end_ns < window->start_ns)
		return 0;
	if (history->snapshots.cnt && window->end_ns <= last[history->snapshots.cnt - 1])
		return 0;
	last = history->snapshots.cnt < SNAPSHOTS_MAX ? array__add(&history->snapshots, sizeof(*last))
						      : &last[history->snapshots.cnt - 1];
	if (!last)
		return -ENOMEM;
	*last = window->end_ns;
	return 0;
}

int history__add(struct history *history, const struct rec_hdr *record)
{
	const struct rec_agg *agg = (const void *)record;
	const struct rec_op *op = (const void *)record;

	if (record->type == REC_WINDOW && record->size >= sizeof(struct rec_window))
		return add_snapshot(history, (const void *)record);
	if (record->type == REC_AGG && record->size >= sizeof(*agg))
		return add_row(history, &(struct state){
						.type = REC_AGG,
						.pid = agg->key.pid,
						.kind = agg->key.kind,
						.name = agg->key.name,
						.around = agg->key.parent,
						.ns = agg->val.total_ns,
						.calls = agg->val.calls,
					});
	if (record->type == REC_OP && record->size >= sizeof(*op))
		return add_row(history, &(struct state){
						.type = REC_OP,
						.pid = op->key.pid,
						.kind = op->key.kind,
						.name = op->key.name,
						.around = op->key.action,
						.group = op->key.group,
						.ns = op->val.self_ns,
						.calls = op->val.calls,
					});
	return 0;
}

const uint64_t *history__snapshots(const struct history *history, size_t *cnt)
{
	*cnt = history->snapshots.cnt;
	return history->snapshots.items;
}

const struct history_row *history__find(const struct history *history, uint16_t type, uint32_t pid, uint32_t kind,
					uint64_t name)
{
	struct history_row key = {.type = type, .pid = pid, .kind = kind, .name = name}, **found;

	found = tfind(&key, &history->rows, compare_rows);
	return found ? *found : NULL;
}
