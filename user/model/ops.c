// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Cumulative records are kept as their last state, in trees (tsearch) as in job.c; rows are built from them when asked
 * for.
 */
#include "user/model/ops.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/words.h"
#include "user/runtime/torch/flops.h"

struct op_node {
	struct op_key key; /* first: what compare_op looks at */
	struct op_val val;
	size_t order; /* of its first record */
};

struct group_node {
	uint64_t id; /* first: what compare_group looks at */
	uint64_t source, module;
	size_t word_cnt;
	uint32_t source_offset;
	uint64_t words[];
};

/* Bookkeeping that torch drops from its tables too: _filter_name() in torch/autograd/profiler_util.py. */
static const char *const never_listed[] = {
	"profiler::_record_function_enter",
	"profiler::_record_function_enter_new",
	"profiler::_record_function_exit",
	"aten::is_leaf",
	"aten::output_nr",
	"aten::_version",
};

static int compare_op(const void *a, const void *b)
{
	const struct op_key *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->kind != y->kind)
		return COMPARE(x->kind, y->kind);
	if (x->name != y->name)
		return COMPARE(x->name, y->name);
	if (x->action != y->action)
		return COMPARE(x->action, y->action);
	return COMPARE(x->group, y->group);
}

static int compare_group(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return COMPARE(*x, *y);
}

static int compare_window(const void *a, const void *b)
{
	const struct rec_op_window *x = a, *y = b;

	return x->pid != y->pid ? COMPARE(x->pid, y->pid) : COMPARE(x->index, y->index);
}

/* Puts item, malloc'ed (NULL: no memory), into a tree that does not hold it. */
static int insert_row(void **tree, void *item, int (*compare)(const void *, const void *))
{
	if (item && tsearch(item, tree, compare))
		return 0;
	free(item);
	return -ENOMEM;
}

static int add_op(struct ops *ops, const struct rec_op *op)
{
	struct op_node **found, *node;
	int err;

	if ((op->key.kind != SPAN_LABEL && op->key.kind != SPAN_OP && op->key.kind != SPAN_EVALUATE &&
	     op->key.kind != SPAN_NODE) ||
	    !op->key.name)
		return -EINVAL;
	found = tfind(&op->key, &ops->rows, compare_op);
	if (found) {
		(*found)->val = op->val;
		return 0;
	}
	node = malloc(sizeof(*node));
	if (node)
		*node = (struct op_node){.key = op->key, .val = op->val, .order = ops->row_cnt};
	err = insert_row(&ops->rows, node, compare_op);
	if (!err)
		ops->row_cnt++;
	return err;
}

/* The first of an id stays: an id is a hash of what it stands for. */
static int add_group(struct ops *ops, const struct rec_op_group *group)
{
	size_t bytes = group->word_cnt * sizeof(*group->words);
	const uint64_t *words = (const void *)group->words;
	struct group_node *node;

	if (!group->id || bytes > group->hdr.size - sizeof(*group) || words__check(words, group->word_cnt))
		return -EINVAL;
	if (tfind(&group->id, &ops->groups, compare_group))
		return 0;
	node = malloc(sizeof(*node) + bytes);
	if (node) {
		*node = (struct group_node){group->id, group->source, group->module, group->word_cnt,
					    group->source_offset};
		memcpy(node->words, words, bytes);
	}
	return insert_row(&ops->groups, node, compare_group);
}

static int add_window(struct ops *ops, const struct rec_op_window *window)
{
	struct rec_op_window **found, *node;
	int err;

	if (window->end_ns < window->start_ns)
		return -EINVAL;
	found = tfind(window, &ops->windows, compare_window);
	if (found) {
		**found = *window;
		return 0;
	}
	node = malloc(sizeof(*node));
	if (node)
		*node = *window;
	err = insert_row(&ops->windows, node, compare_window);
	if (!err)
		ops->window_cnt++;
	return err;
}

int ops__add(struct ops *ops, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_OP:
		return add_op(ops, (const void *)record);
	case REC_OP_GROUP:
		return add_group(ops, (const void *)record);
	case REC_OP_WINDOW:
		return add_window(ops, (const void *)record);
	default:
		return -EINVAL;
	}
}

bool ops__group(const struct ops *ops, uint64_t id, struct op_group *group)
{
	struct group_node **found = tfind(&id, &ops->groups, compare_group);

	*group = (struct op_group){0};
	if (found)
		*group = (struct op_group){
			.source = (*found)->source,
			.source_offset = (*found)->source_offset,
			.module = (*found)->module,
			.words = (*found)->words,
			.word_cnt = (*found)->word_cnt,
		};
	return found;
}

/* What is installed is known by what it is called there. */
static const char *short_path(const char *path)
{
	static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
	const char *at;

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		at = strstr(path, folders[i]);
		if (at)
			return at + strlen(folders[i]);
	}
	return path;
}

char *op_group__source(const struct op_group *group, struct names *names, struct stacks *stacks)
{
	const char *file, *name;
	struct code code;
	uint32_t number, line;
	char *text;

	if (stacks__code_number(stacks, group->source, &number))
		return NULL;
	code = stacks__code(stacks, number);
	line = code__line(&code, group->source_offset) ?: code.first_line;
	file = names__find_or_lost(names, code.file);
	name = file ? names__find_or_lost(names, code.name) : NULL;
	if (!name || asprintf(&text, "%s(%u): %s", short_path(file), line, name) < 0)
		return NULL;
	return text;
}

/* ---- rows ---- */

static int64_t add_s64(int64_t a, int64_t b)
{
	int64_t sum;

	return !__builtin_add_overflow(a, b, &sum) ? sum : a < 0 ? INT64_MIN : INT64_MAX;
}

void op_val__add(struct op_val *sum, const struct op_val *val)
{
	sum->calls = saturating__add(sum->calls, val->calls);
	sum->total_ns = saturating__add(sum->total_ns, val->total_ns);
	sum->self_ns = saturating__add(sum->self_ns, val->self_ns);
	for (int i = 0; i < OP_MEMORY__COUNT; i++) {
		sum->self_bytes[i] = add_s64(sum->self_bytes[i], val->self_bytes[i]);
		sum->total_bytes[i] = add_s64(sum->total_bytes[i], val->total_bytes[i]);
	}
}

/* malloc'ed; NULL: no memory. *overload becomes a piece of text, or "". */
static char *printed_name(const char *text, enum span_kind kind, const char **overload)
{
	char *name = NULL;
	const char *dot;

	*overload = "";
	if (kind == SPAN_EVALUATE)
		return asprintf(&name, OP_EVALUATE_PREFIX "%s", text) < 0 ? NULL : name;
	if (kind == SPAN_LABEL && !strncmp(text, "ProfilerStep#", strlen("ProfilerStep#")))
		return strdup("ProfilerStep*");
	dot = kind == SPAN_OP ? strchr(text, '.') : NULL;
	if (!dot)
		return strdup(text);
	*overload = dot + 1;
	return strndup(text, dot - text);
}

static bool is_listed(const struct op_row *row)
{
	for (size_t i = 0; row->kind == SPAN_OP && i < sizeof(never_listed) / sizeof(*never_listed); i++)
		if (!strcmp(row->name, never_listed[i]))
			return false;
	return true;
}

struct build {
	struct ops *ops;
	struct names *names;
	struct stacks *stacks;
	const struct op_node **nodes; /* by order */
	int err;
};

static void collect_node(const void *item, VISIT visit, void *ctx)
{
	const struct op_node *node = *(const struct op_node *const *)item;
	struct build *build = ctx;

	if (visit == postorder || visit == leaf)
		build->nodes[node->order] = node;
}

/* NULL: no memory, which is kept in build, or id 0. */
static const char *text_of(struct build *build, uint64_t id)
{
	const char *text = id ? names__find_or_lost(build->names, id) : NULL;

	if (id && !text)
		build->err = -ENOMEM;
	return text;
}

static void build_row(struct build *build, const struct op_node *node)
{
	struct op_row *row = &build->ops->built[build->ops->built_cnt];
	struct op_group group;
	const char *text = text_of(build, node->key.name);

	*row = (struct op_row){.name_id = node->key.name,
			       .action_id = node->key.action,
			       .group_id = node->key.group,
			       .kind = node->key.kind,
			       .pid = node->key.pid,
			       .val = node->val};
	row->name = text ? printed_name(text, row->kind, &row->overload) : NULL;
	if (!row->name) {
		build->err = -ENOMEM;
		return;
	}
	if (!is_listed(row)) {
		free((char *)row->name);
		return;
	}
	build->ops->built_cnt++;
	row->action = text_of(build, node->key.action);
	if (!ops__group(build->ops, node->key.group, &group))
		return;
	if (group.source) {
		row->source = op_group__source(&group, build->names, build->stacks);
		if (!row->source)
			build->err = -ENOMEM;
	}
	row->module = text_of(build, group.module);
	row->words = group.words;
	row->word_cnt = group.word_cnt;
	if (row->kind == SPAN_OP)
		row->flops = flops__count(row->name, row->words, row->word_cnt);
}

static void free_row(struct op_row *row)
{
	free((char *)row->name);
	free((char *)row->source);
}

static void drop_built(struct ops *ops)
{
	for (size_t i = 0; i < ops->built_cnt; i++)
		free_row(&ops->built[i]);
	free(ops->built);
	ops->built = NULL;
	ops->built_cnt = 0;
}

static int build_rows(struct ops *ops, struct names *names, struct stacks *stacks)
{
	struct build build = {.ops = ops, .names = names, .stacks = stacks};

	drop_built(ops);
	build.nodes = calloc(ops->row_cnt + 1, sizeof(*build.nodes));
	ops->built = calloc(ops->row_cnt + 1, sizeof(*ops->built));
	if (!build.nodes || !ops->built)
		build.err = -ENOMEM;
	else
		twalk_r(ops->rows, collect_node, &build);
	for (size_t i = 0; i < ops->row_cnt && !build.err; i++)
		if (build.nodes[i]->val.calls)
			build_row(&build, build.nodes[i]);
	free(build.nodes);
	return build.err;
}

const struct op_row *ops__rows(struct ops *ops, struct names *names, struct stacks *stacks, size_t *cnt)
{
	int err = ops->stale ? build_rows(ops, names, stacks) : 0;

	ops->stale = err;
	*cnt = err ? 0 : ops->built_cnt;
	return err ? NULL : ops->built;
}

struct list {
	struct rec_op_window *items;
	size_t cnt;
};

static void collect_window(const void *item, VISIT visit, void *ctx)
{
	const struct rec_op_window *window = *(const struct rec_op_window *const *)item;
	struct list *list = ctx;

	if (visit == postorder || visit == leaf)
		list->items[list->cnt++] = *window;
}

const struct rec_op_window *ops__windows(struct ops *ops, size_t *cnt)
{
	struct list list = {.items = calloc(ops->window_cnt + 1, sizeof(*list.items))};

	free(ops->built_windows);
	ops->built_windows = list.items;
	if (list.items)
		twalk_r(ops->windows, collect_window, &list);
	*cnt = list.cnt;
	return list.items;
}

void ops__free(struct ops *ops)
{
	drop_built(ops);
	free(ops->built_windows);
	tdestroy(ops->rows, free);
	tdestroy(ops->groups, free);
	tdestroy(ops->windows, free);
	*ops = (struct ops){0};
}
