// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A cumulative record replaces the earlier state of its key; rows are built on demand. */
#include "user/model/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/words.h"
#include "user/runtime/torch/flops.h"

/* What is cached of the records; each begins with its key. */
struct op {
	struct op_key key;
	struct op_val val;
};

struct op_group_record {
	uint64_t id;
	uint64_t source, module;
	uint64_t *words; /* malloc'ed */
	size_t word_cnt;
	uint32_t source_offset;
};

struct op_window {
	uint64_t key; /* pid and index */
	struct rec_op_window record;
};

/*
 * Bookkeeping that torch leaves out of its own tables: _filter_name() in
 * torch/autograd/profiler_util.py.
 */
static const char *const never_listed[] = {
	"profiler::_record_function_enter",
	"profiler::_record_function_enter_new",
	"profiler::_record_function_exit",
	"aten::is_leaf",
	"aten::output_nr",
	"aten::_version",
};

static int compare_op_window(const void *a, const void *b)
{
	const struct op_window *x = a, *y = b;

	return COMPARE(x->key, y->key);
}

static int ops__add_op(struct ops *ops, const struct rec_op *record)
{
	struct op *op;

	if ((record->key.kind != SPAN_LABEL && record->key.kind != SPAN_OP && record->key.kind != SPAN_EVALUATE &&
	     record->key.kind != SPAN_NODE) ||
	    !record->key.name)
		return -EINVAL;
	op = MAP_ADD(&ops->rows, struct op, &record->key);
	if (!op)
		return -ENOMEM;
	op->val = record->val;
	return 0;
}

/* The first definition of an id wins: an id is a hash of its content. */
static int ops__add_group(struct ops *ops, const struct rec_op_group *record)
{
	size_t bytes = record->word_cnt * sizeof(*record->words);
	const uint64_t *words = (const void *)record->words, id = record->id;
	struct op_group_record *group;
	uint64_t *copy;

	if (!id || bytes > record->hdr.size - sizeof(*record) || words__check(words, record->word_cnt))
		return -EINVAL;
	if (MAP_FIND(&ops->groups, struct op_group_record, &id))
		return 0;
	copy = malloc(bytes + 1);
	group = copy ? MAP_ADD(&ops->groups, struct op_group_record, &id) : NULL;
	if (!group) {
		free(copy);
		return -ENOMEM;
	}
	*group = (struct op_group_record){id,
					  record->source,
					  record->module,
					  memcpy(copy, words, bytes),
					  record->word_cnt,
					  record->source_offset};
	return 0;
}

static int ops__add_window(struct ops *ops, const struct rec_op_window *record)
{
	const uint64_t key = (uint64_t)record->pid << 32 | record->index;
	struct op_window *window;

	if (record->end_ns < record->start_ns)
		return -EINVAL;
	window = MAP_ADD(&ops->windows, struct op_window, &key);
	if (!window)
		return -ENOMEM;
	window->record = *record;
	return 0;
}

int ops__add(struct ops *ops, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_OP:
		return ops__add_op(ops, (const void *)record);
	case REC_OP_GROUP:
		return ops__add_group(ops, (const void *)record);
	case REC_OP_WINDOW:
		return ops__add_window(ops, (const void *)record);
	default:
		return -EINVAL;
	}
}

bool ops__group(const struct ops *ops, uint64_t id, struct op_group *out)
{
	const struct op_group_record *group = MAP_FIND(&ops->groups, struct op_group_record, &id);

	*out = (struct op_group){0};
	if (group)
		*out = (struct op_group){
			.source = group->source,
			.source_offset = group->source_offset,
			.module = group->module,
			.words = group->words,
			.word_cnt = group->word_cnt,
		};
	return group;
}

/*
 * Shortens the path of an installed file to the part after its packages folder, by which users know
 * it.
 */
static const char *without_packages_folder(const char *path)
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
	if (!name || asprintf(&text, "%s(%u): %s", without_packages_folder(file), line, name) < 0)
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

/* malloc'ed; NULL: no memory. *overload becomes a part of text, or "". */
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

static bool is_listed_op(const struct op_row *row)
{
	for (size_t i = 0; row->kind == SPAN_OP && i < sizeof(never_listed) / sizeof(*never_listed); i++)
		if (!strcmp(row->name, never_listed[i]))
			return false;
	return true;
}

struct ops_build {
	struct ops *ops;
	struct names *names;
	struct stacks *stacks;
	int err;
};

/* NULL: id 0, or no memory; the latter is recorded in build. */
static const char *group_text(struct ops_build *build, uint64_t id)
{
	const char *text = id ? names__find_or_lost(build->names, id) : NULL;

	if (id && !text)
		build->err = -ENOMEM;
	return text;
}

static void ops__build_row(struct ops_build *build, const struct op *op)
{
	struct op_row *row = &build->ops->built[build->ops->built_cnt];
	struct op_group group;
	const char *text = group_text(build, op->key.name);

	*row = (struct op_row){.name_id = op->key.name,
			       .action_id = op->key.action,
			       .group_id = op->key.group,
			       .kind = op->key.kind,
			       .pid = op->key.pid,
			       .val = op->val};
	row->name = text ? printed_name(text, row->kind, &row->overload) : NULL;
	if (!row->name) {
		build->err = -ENOMEM;
		return;
	}
	if (!is_listed_op(row)) {
		free((char *)row->name);
		return;
	}
	build->ops->built_cnt++;
	row->action = group_text(build, op->key.action);
	if (!ops__group(build->ops, op->key.group, &group))
		return;
	if (group.source) {
		row->source = op_group__source(&group, build->names, build->stacks);
		if (!row->source)
			build->err = -ENOMEM;
	}
	row->module = group_text(build, group.module);
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

static int ops__build_rows(struct ops *ops, struct names *names, struct stacks *stacks)
{
	struct ops_build build = {.ops = ops, .names = names, .stacks = stacks};
	const struct op *op = ops->rows.items.items;

	drop_built(ops);
	ops->built = calloc(ops->rows.items.cnt + 1, sizeof(*ops->built));
	if (!ops->built)
		return -ENOMEM;
	for (size_t i = 0; i < ops->rows.items.cnt && !build.err; i++)
		if (op[i].val.calls)
			ops__build_row(&build, &op[i]);
	return build.err;
}

const struct op_row *ops__rows(struct ops *ops, struct names *names, struct stacks *stacks, size_t *cnt)
{
	int err = ops->stale ? ops__build_rows(ops, names, stacks) : 0;

	ops->stale = err;
	*cnt = err ? 0 : ops->built_cnt;
	return err ? NULL : ops->built;
}

const struct rec_op_window *ops__windows(struct ops *ops, size_t *cnt)
{
	struct op_window *sorted = map__sorted(&ops->windows, sizeof(*sorted), compare_op_window);

	free(ops->built_windows);
	ops->built_windows = sorted ? calloc(ops->windows.items.cnt + 1, sizeof(*ops->built_windows)) : NULL;
	*cnt = ops->built_windows ? ops->windows.items.cnt : 0;
	for (size_t i = 0; i < *cnt; i++)
		ops->built_windows[i] = sorted[i].record;
	free(sorted);
	return ops->built_windows;
}

void ops__free(struct ops *ops)
{
	struct op_group_record *groups = ops->groups.items.items;

	drop_built(ops);
	for (size_t i = 0; i < ops->groups.items.cnt; i++)
		free(groups[i].words);
	free(ops->built_windows);
	map__free(&ops->rows);
	map__free(&ops->groups);
	map__free(&ops->windows);
	*ops = (struct ops){0};
}
