// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * In: the job's actions. Out: the rows of a table. Lists actions, finds leaves, adds up processes,
 * sorts and cuts.
 */
#include "user/report/rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/search.h"
#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/report/common.h"

double rows__window_s(const struct job *job)
{
	return job__seen(job).ns / 1e9;
}

/* Computes as Lightning does, so that the digits are the same. */
double rows__percent(const struct row *row, double window_s)
{
	return window_s > 0 ? 100.0 * (row->val.total_ns / 1e9) / window_s : NAN;
}

/* ---- which actions, and which of them are leaves ---- */

struct action_choice {
	const struct job_action *action;
	bool listed;
	bool leaf;
	bool reached; /* in the queue: this is a listed span, or a listed span occurs inside it */
};

static int compare_id(const void *a, const void *b)
{
	const struct job_action *x = (*(struct action_choice *const *)a)->action,
				*y = (*(struct action_choice *const *)b)->action;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return COMPARE(x->name_id, y->name_id);
}

static size_t find_first(struct action_choice *const *by_id, size_t cnt, uint32_t pid, uint64_t name_id)
{
	struct job_action wanted = {.pid = pid, .name_id = name_id};
	struct action_choice key = {.action = &wanted}, *key_ptr = &key;

	return SEARCH(i, 0, cnt, compare_id(&by_id[i], &key_ptr) < 0);
}

/*
 * A listed action is a leaf unless a listed span occurs inside it, either directly or within spans
 * that are not listed. The search goes from each listed action up to the nearest listed ones, and
 * visits each action once. Only pairs of names are known, not single calls, so an unlisted span
 * that occurs in two actions connects both to what occurs inside it.
 */
static int mark_leaves(struct action_choice *choices, size_t cnt)
{
	struct action_choice **by_id = calloc(cnt + 1, sizeof(*by_id)), **queue = calloc(cnt + 1, sizeof(*queue));
	size_t head = 0, tail = 0;
	int err = -ENOMEM;

	if (!by_id || !queue)
		goto out;
	for (size_t i = 0; i < cnt; i++) {
		by_id[i] = &choices[i];
		choices[i].leaf = true;
		choices[i].reached = choices[i].listed;
		if (choices[i].listed)
			queue[tail++] = &choices[i];
	}
	qsort(by_id, cnt, sizeof(*by_id), compare_id);
	while (head < tail) {
		const struct job_action *inner = queue[head++]->action;

		for (size_t p = 0; p < inner->parent_cnt; p++) {
			if (inner->parents[p] == inner->name_id) /* recursion */
				continue;
			for (size_t i = find_first(by_id, cnt, inner->pid, inner->parents[p]);
			     i < cnt && by_id[i]->action->pid == inner->pid &&
			     by_id[i]->action->name_id == inner->parents[p];
			     i++) {
				by_id[i]->leaf = false;
				if (!by_id[i]->reached)
					queue[tail++] = by_id[i];
				by_id[i]->reached = true;
			}
		}
	}
	err = 0;
out:
	free(by_id);
	free(queue);
	return err;
}

/* ---- from choices to rows ---- */

static int compare_name(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int result = strcmp(x->name, y->name);

	if (!result)
		result = COMPARE(x->kind, y->kind);
	return result ? result : COMPARE(x->order, y->order);
}

static void merge_same_names(struct rows *rows)
{
	size_t unique_cnt = 0;

	qsort(rows->items, rows->cnt, sizeof(*rows->items), compare_name);
	for (size_t i = 0; i < rows->cnt; i++) {
		struct row *last = unique_cnt ? &rows->items[unique_cnt - 1] : NULL, *row = &rows->items[i];

		if (!last || last->kind != row->kind || strcmp(last->name, row->name)) {
			rows->items[unique_cnt++] = *row;
			continue;
		}
		job__add_val(&last->val, &row->val);
		last->leaf &= row->leaf;
		if (last->pid != row->pid)
			last->pid = PROCESSES_ALL_MAIN;
	}
	rows->cnt = unique_cnt;
}

/* Descending, except for names and first occurrence. */
#define SORT_KEYS(X)                                      \
	X(percent, row->val.total_ns / 1e9)               \
	X(name, 0)                                        \
	X(calls, row->val.calls)                          \
	X(mean, row->val.total_ns / 1e9 / row->val.calls) \
	X(total, row->val.total_ns / 1e9)                 \
	X(min, row->val.min_ns)                           \
	X(max, row->val.max_ns)                           \
	X(first, 0)                                       \
	X(self, row->val.self_ns)

const char *const rows__sort_keys[] = {
#define X(key, value) #key,
	SORT_KEYS(X)
#undef X
		NULL,
};

enum row_sort_key {
#define X(key, value) BY_##key,
	SORT_KEYS(X)
#undef X
};

static double row_sort_value(const struct row *row, enum row_sort_key key)
{
	switch (key) {
#define X(key, value)  \
	case BY_##key: \
		return value;
		SORT_KEYS(X)
#undef X
	}
	return 0;
}

static int compare_value(const void *a, const void *b, void *ctx)
{
	enum row_sort_key key = *(enum row_sort_key *)ctx;
	const struct row *x = a, *y = b;
	double x_value = row_sort_value(x, key), y_value = row_sort_value(y, key);

	if (x_value != y_value)
		return x_value > y_value ? -1 : 1;
	/* Python's sort is stable, and Lightning lists rows in order of first occurrence. */
	return COMPARE(x->order, y->order);
}

static void sort_action_rows(struct rows *rows, const char *name)
{
	enum row_sort_key key = 0;

	while (strcmp(rows__sort_keys[key], name))
		key++;
	if (key == BY_name)
		qsort(rows->items, rows->cnt, sizeof(*rows->items), compare_name);
	else
		qsort_r(rows->items, rows->cnt, sizeof(*rows->items), compare_value, &key);
}

static bool row_chosen(const struct action_choice *choice, const struct report_options *options)
{
	/* An action that the user names is shown, even if it would not be listed. */
	return options->action ? !strcmp(options->action, choice->action->name) : choice->listed;
}

/*
 * Drop other rows only after adding up processes: a row that is a leaf in one process only must
 * keep the time of the rest.
 */
static void keep_leaves(struct rows *rows)
{
	size_t retained_cnt = 0;

	for (size_t i = 0; i < rows->cnt; i++)
		if (rows->items[i].leaf)
			rows->items[retained_cnt++] = rows->items[i];
	rows->unlisted += rows->cnt - retained_cnt;
	rows->cnt = retained_cnt;
}

int rows__collect(struct job *job, const struct report_options *options, uint32_t pid, const char *order,
		  struct rows *out)
{
	size_t cnt;
	const struct job_action *actions = job__actions(job, &cnt);
	struct action_choice *choices = calloc(cnt + 1, sizeof(*choices));
	int err = -ENOMEM;

	*out = (struct rows){.items = calloc(cnt + 1, sizeof(*out->items))};
	if (!choices || !out->items)
		goto out;
	for (size_t i = 0; i < cnt; i++)
		out->lightning |= actions[i].kind == SPAN_ACTION;
	for (size_t i = 0; i < cnt; i++) {
		choices[i].action = &actions[i];
		choices[i].listed = options->all || labels__listed(actions[i].kind, actions[i].name, out->lightning);
	}
	err = mark_leaves(choices, cnt);
	if (err)
		goto out;
	for (size_t i = 0; i < cnt; i++) {
		if (!processes__in_scope(job, actions[i].pid, pid))
			continue;
		if (!row_chosen(&choices[i], options)) {
			out->unlisted++;
			continue;
		}
		out->items[out->cnt++] = (struct row){
			.name = actions[i].name,
			.kind = actions[i].kind,
			.pid = actions[i].pid,
			.leaf = choices[i].leaf,
			.val = actions[i].val,
			.order = i,
		};
	}
	out->stage = labels__stage(actions, cnt);
	err = common__count_processes(out->items, out->cnt, sizeof(*out->items), offsetof(struct row, pid),
				      &out->processes);
	if (err)
		goto out;
	merge_same_names(out);
	if (options->leaf)
		keep_leaves(out);
	sort_action_rows(out, options->sort ? options->sort : order);
	if (options->limit > 0 && out->cnt > (size_t)options->limit) {
		out->left_out = out->cnt - options->limit;
		out->cnt = options->limit;
	}
out:
	free(choices);
	if (err)
		rows__release(out);
	return err;
}

void rows__release(struct rows *rows)
{
	free(rows->items);
	rows->items = NULL;
	rows->cnt = 0;
}

int rows__processes(struct job *job, struct rec_target **out, size_t *cnt)
{
	size_t action_cnt;
	const struct job_action *actions = job__actions(job, &action_cnt);

	return common__processes(job, actions, action_cnt, sizeof(*actions), offsetof(struct job_action, pid), out,
				 cnt);
}
