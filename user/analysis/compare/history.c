// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A snapshot begins with its REC_WINDOW. Rows before the first one count towards the first; merged
 * recordings, which have only one, contain such rows.
 */
#include "user/analysis/compare/history.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/map.h"

#define SNAPSHOTS_MAX 1024 /* a day has 310, a week 890; later snapshots count as the last one */

/* The last state of a row; for an action, the key includes the enclosing action. */
struct row_state {
	struct history_key key;
	uint64_t ns, calls;
};

struct history {
	struct map states, rows; /* struct row_state, struct history_row */
	struct array snapshots;  /* uint64_t */
};

struct history *history__new(void)
{
	return calloc(1, sizeof(struct history));
}

void history__free(struct history *history)
{
	struct history_row *rows;

	if (!history)
		return;
	rows = history->rows.items.items;
	for (size_t i = 0; i < history->rows.items.cnt; i++)
		free(rows[i].growths.items);
	map__free(&history->rows);
	map__free(&history->states);
	free(history->snapshots.items);
	free(history);
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

static int history__add_row(struct history *history, uint64_t type, const struct op_key *key, uint64_t ns,
			    uint64_t calls)
{
	const struct history_key own = {type, *key},
				 of = {type, {.pid = key->pid, .kind = key->kind, .name = key->name}};
	struct row_state *state = MAP_ADD(&history->states, struct row_state, &own);
	struct history_row *row = MAP_ADD(&history->rows, struct history_row, &of);
	struct growth *growth =
		state && row ? growth_at(row, history->snapshots.cnt ? history->snapshots.cnt - 1 : 0) : NULL;

	if (!growth)
		return -ENOMEM;
	growth->ns += ns > state->ns ? ns - state->ns : 0;
	growth->calls += calls > state->calls ? calls - state->calls : 0;
	state->ns = ns;
	state->calls = calls;
	return 0;
}

/* In a corrupt recording, times may go back; the snapshot is then merged with the previous one. */
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
		return history__add_row(
			history, REC_AGG,
			&(struct op_key){agg->key.pid, agg->key.kind, agg->key.name, agg->key.parent, 0},
			agg->val.total_ns, agg->val.calls);
	if (record->type == REC_OP && record->size >= sizeof(*op))
		return history__add_row(history, REC_OP, &op->key, op->val.self_ns, op->val.calls);
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
	const struct history_key key = {type, {.pid = pid, .kind = kind, .name = name}};

	return MAP_FIND(&history->rows, struct history_row, &key);
}
