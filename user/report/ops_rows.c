// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * In: the job's operators. Out: the rows of a table. Chooses, merges rows that the options do not
 * split, and sorts.
 */
#include "user/report/ops_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/words.h"
#include "user/report/common.h"

/*
 * Descending, except for names. Averages are computed as in torch: rows that are equal there must
 * be equal here, so that they keep their order.
 */
#define SORT_KEYS(X)                                                       \
	X(cpu_time_total, row->val.total_ns)                               \
	X(cuda_time_total, row->device_ns)                                 \
	X(self_cpu_time_total, row->val.self_ns)                           \
	X(self_cuda_time_total, row->self_device_ns)                       \
	X(cuda_time, row->device_ns / 1e3 / row->val.calls)                \
	X(cpu_time, row->val.total_ns / 1e3 / row->val.calls)              \
	X(count, row->val.calls)                                           \
	X(cpu_memory_usage, row->val.total_bytes[OP_MEMORY_CPU])           \
	X(self_cpu_memory_usage, row->val.self_bytes[OP_MEMORY_CPU])       \
	X(device_memory_usage, row->val.total_bytes[OP_MEMORY_DEVICE])     \
	X(self_device_memory_usage, row->val.self_bytes[OP_MEMORY_DEVICE]) \
	X(flops, row->flops)                                               \
	X(name, 0)

const char *const ops_rows__sort_keys[] = {
#define X(key, value) #key,
	SORT_KEYS(X)
#undef X
		NULL,
};

enum op_sort_key {
#define X(key, value) BY_##key,
	SORT_KEYS(X)
#undef X
};

static double op_sort_value(const struct ops_row *row, enum op_sort_key key)
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

/* Either text may be NULL, which sorts first. */
static int compare_text(const char *a, const char *b)
{
	return a == b ? 0 : !a ? -1 : !b ? 1 : strcmp(a, b);
}

bool ops_rows__same_action(const struct ops_row *x, const struct ops_row *y)
{
	return !compare_text(x->action, y->action);
}

static int compare_action(const struct ops_row *x, const struct ops_row *y)
{
	if (x->action_self_ns != y->action_self_ns)
		return x->action_self_ns > y->action_self_ns ? -1 : 1;
	return compare_text(x->action, y->action);
}

/* Returns 0 where x and y belong to one row. */
static int compare_identity(const struct ops_row *x, const struct ops_row *y)
{
	int result = compare_text(x->action, y->action);

	if (!result)
		result = strcmp(x->name, y->name);
	if (!result)
		result = COMPARE(x->kind, y->kind);
	if (!result)
		result = COMPARE(x->activity, y->activity);
	if (!result)
		result = compare_text(x->overload, y->overload);
	if (!result)
		result = compare_text(x->shapes, y->shapes);
	if (!result)
		result = compare_text(x->source, y->source);
	return result ? result : compare_text(x->module, y->module);
}

static int compare_to_merge(const void *a, const void *b)
{
	const struct ops_row *x = a, *y = b;
	int result = compare_identity(x, y);

	return result ? result : COMPARE(x->order, y->order);
}

struct op_order {
	bool by_action;
	enum op_sort_key key;
};

static int compare_to_sort(const void *a, const void *b, void *ctx)
{
	const struct ops_row *x = a, *y = b;
	const struct op_order *sort = ctx;
	double x_value = op_sort_value(x, sort->key), y_value = op_sort_value(y, sort->key);
	int result = sort->by_action ? compare_action(x, y) : 0;

	if (result)
		return result;
	if (x_value != y_value)
		return x_value > y_value ? -1 : 1;
	result = sort->key == BY_name ? strcmp(x->name, y->name) : 0;
	/* Python's sort is stable. */
	return result ? result : COMPARE(x->order, y->order);
}

static uint64_t multiply_saturating(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/*
 * Sets device times of GPU calls, which do not tell groups apart. Where the table merges all rows
 * of a key, the first row takes all the time; where the table splits them, the time of each is
 * unknown. rows: how many rows have the key, by gpu_op; set to 0 once one row has taken the time.
 */
static void set_device(const struct gpu_ops *gpu, const struct op_row *op, const struct report_options *options,
		       uint32_t *rows, struct ops_row *row)
{
	const struct gpu_op *of = gpu_ops__find(gpu, op);
	uint32_t *cnt = of ? &rows[of - (const struct gpu_op *)gpu->ops.items.items] : NULL;

	if (!of)
		return;
	if (*cnt > 1 && (options->shapes || options->stacks || options->modules)) {
		row->device_unknown = true;
	} else if (*cnt) {
		row->device_ns = of->total_ns;
		row->self_device_ns = of->self_ns;
		*cnt = 0;
	}
}

/* Returns how many rows have each key, by gpu_op; malloc'ed. NULL: no memory. */
static uint32_t *count_rows_by_op(const struct gpu_ops *gpu, const struct op_row *ops, size_t op_cnt)
{
	uint32_t *rows = calloc(gpu->ops.items.cnt + 1, sizeof(*rows));

	for (size_t i = 0; rows && i < op_cnt; i++) {
		const struct gpu_op *of = gpu_ops__find(gpu, &ops[i]);

		if (of)
			rows[of - (const struct gpu_op *)gpu->ops.items.items]++;
	}
	return rows;
}

static int make_row(const struct op_row *op, const struct report_options *options, bool by_action, size_t order,
		    struct ops_row *row)
{
	*row = (struct ops_row){
		.name = op->name,
		.overload = options->overloads ? op->overload : NULL,
		.action = by_action ? op->action : NULL,
		.source = options->stacks ? op->source : NULL,
		.module = options->modules ? op->module : NULL,
		.same_words = true,
		.shaped = op->word_cnt,
		.kind = op->kind,
		.pid = op->pid,
		.val = op->val,
		.flops = multiply_saturating(op->flops, op->val.calls),
		.order = order,
	};
	if (!options->shapes)
		return 0;
	row->words = op->words;
	row->word_cnt = op->word_cnt;
	row->shapes = words__shapes(op->words, op->word_cnt);
	return row->shapes ? 0 : -ENOMEM;
}

static void merge_into(struct ops_row *sum, struct ops_row *row)
{
	op_val__add(&sum->val, &row->val);
	sum->device_ns = saturating__add(sum->device_ns, row->device_ns);
	sum->self_device_ns = saturating__add(sum->self_device_ns, row->self_device_ns);
	sum->device_unknown |= row->device_unknown;
	sum->flops = saturating__add(sum->flops, row->flops);
	sum->same_words &= sum->word_cnt == row->word_cnt &&
			   (!row->word_cnt || !memcmp(sum->words, row->words, row->word_cnt * sizeof(*row->words)));
	sum->shaped |= row->shaped;
	if (sum->pid != row->pid)
		sum->pid = PROCESSES_ALL_MAIN;
	free(row->shapes);
}

static void merge_equal_rows(struct ops_rows *rows)
{
	size_t unique_cnt = 0;

	qsort(rows->items, rows->cnt, sizeof(*rows->items), compare_to_merge);
	for (size_t i = 0; i < rows->cnt; i++) {
		struct ops_row *last = unique_cnt ? &rows->items[unique_cnt - 1] : NULL, *row = &rows->items[i];

		if (last && !compare_identity(last, row))
			merge_into(last, row);
		else
			rows->items[unique_cnt++] = *row;
	}
	rows->cnt = unique_cnt;
}

/* merge_equal_rows() has put the rows of each action next to each other. */
static void add_up_actions(struct ops_rows *rows)
{
	for (size_t first = 0, next; first < rows->cnt; first = next) {
		uint64_t self_ns = 0;

		for (next = first; next < rows->cnt && ops_rows__same_action(&rows->items[first], &rows->items[next]);
		     next++)
			self_ns = saturating__add(self_ns, rows->items[next].val.self_ns);
		for (size_t i = first; i < next; i++)
			rows->items[i].action_self_ns = self_ns;
	}
}

static void sort_op_rows(struct ops_rows *rows, const struct report_options *options)
{
	struct op_order order = {.by_action = options->by_action};

	order.key = !options->sort && rows->has_device ? BY_cuda_time_total : BY_cpu_time_total;
	while (options->sort && strcmp(ops_rows__sort_keys[order.key], options->sort))
		order.key++;
	qsort_r(rows->items, rows->cnt, sizeof(*rows->items), compare_to_sort, &order);
}

static bool action_chosen(const char *action, const struct report_options *options)
{
	return !options->action || !strcmp(options->action, action ? action : OPS_NO_ACTION);
}

/* Adds kernels and copies as torch lists them: as rows of their own, without CPU time. */
static int add_work_rows(struct job *job, const struct report_options *options, uint32_t pid, bool by_action,
			 struct ops_rows *out)
{
	const struct gpu_work *works = out->gpu.works.items;

	for (size_t i = 0; i < out->gpu.works.cnt; i++) {
		const char *action = works[i].action ? job__name_or_lost(job, works[i].action) : NULL;
		struct ops_row *row = &out->items[out->cnt];

		if (works[i].action && !action)
			return -ENOMEM;
		if (!processes__in_scope(job, works[i].pid, pid) || !action_chosen(action, options))
			continue;
		*row = (struct ops_row){.name = works[i].name,
					.overload = options->overloads ? "" : NULL,
					.action = by_action ? action : NULL,
					.activity = works[i].kind,
					.device_ns = works[i].total_ns,
					.self_device_ns = works[i].total_ns,
					.pid = works[i].pid,
					.val = {.calls = works[i].cnt},
					.order = SIZE_MAX - out->gpu.works.cnt + i};
		row->shapes = options->shapes ? words__shapes(NULL, 0) : NULL;
		out->cnt++;
		if (options->shapes && !row->shapes)
			return -ENOMEM;
	}
	return 0;
}

static int collect_rows(struct job *job, const struct report_options *options, uint32_t pid, bool by_action,
			struct ops_rows *out)
{
	size_t cnt;
	const struct op_row *ops = job__ops(job, &cnt);
	uint32_t *rows = count_rows_by_op(&out->gpu, ops, cnt);
	int err = 0;

	out->items = calloc(cnt + out->gpu.works.cnt + 1, sizeof(*out->items));
	if (!out->items || !rows)
		err = -ENOMEM;
	for (size_t i = 0; i < cnt && !err; i++) {
		if (!processes__in_scope(job, ops[i].pid, pid))
			continue;
		out->has_rows = true;
		if (!action_chosen(ops[i].action, options))
			continue;
		err = make_row(&ops[i], options, by_action, i, &out->items[out->cnt++]);
		set_device(&out->gpu, &ops[i], options, rows, &out->items[out->cnt - 1]);
	}
	free(rows);
	/* For a recording without operators, report --gpu says more. */
	return err || !out->has_rows ? err : add_work_rows(job, options, pid, by_action, out);
}

int ops_rows__collect(struct job *job, const struct report_options *options, uint32_t pid, bool by_action,
		      struct ops_rows *out)
{
	int err;

	*out = (struct ops_rows){0};
	err = gpu_ops__new(job, &out->gpu);
	if (!err)
		err = collect_rows(job, options, pid, by_action, out);
	if (!err)
		err = common__count_processes(out->items, out->cnt, sizeof(*out->items), offsetof(struct ops_row, pid),
					      &out->processes);
	if (err) {
		ops_rows__release(out);
		return err;
	}
	merge_equal_rows(out);
	for (size_t i = 0; i < out->cnt; i++)
		out->has_device |= out->items[i].self_device_ns > 0;
	add_up_actions(out);
	sort_op_rows(out, options);
	return 0;
}

void ops_rows__release(struct ops_rows *rows)
{
	for (size_t i = 0; i < rows->cnt; i++)
		free(rows->items[i].shapes);
	free(rows->items);
	gpu_ops__release(&rows->gpu);
	*rows = (struct ops_rows){0};
}

int ops_rows__processes(struct job *job, struct rec_target **out, size_t *cnt)
{
	size_t op_cnt;
	const struct op_row *ops = job__ops(job, &op_cnt);

	return common__processes(job, ops, op_cnt, sizeof(*ops), offsetof(struct op_row, pid), out, cnt);
}
