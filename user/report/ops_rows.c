// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The job's operators in, the rows of a table out: choose, merge what the options do not tell apart, sort. */
#include "user/report/ops_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/words.h"
#include "user/report/common.h"

const char *const ops_rows__sort_keys[] = {"cpu_time_total",
					   "cuda_time_total",
					   "self_cpu_time_total",
					   "self_cuda_time_total",
					   "cuda_time",
					   "cpu_time",
					   "count",
					   "cpu_memory_usage",
					   "self_cpu_memory_usage",
					   "device_memory_usage",
					   "self_device_memory_usage",
					   "flops",
					   "name",
					   NULL};

static double key_total(const struct ops_row *row)
{
	return row->val.total_ns;
}

static double key_self(const struct ops_row *row)
{
	return row->val.self_ns;
}

/* As torch computes it: what is equal there must be equal here, and keep its order. */
static double key_average(const struct ops_row *row)
{
	return row->val.total_ns / 1e3 / row->val.calls;
}

static double key_device(const struct ops_row *row)
{
	return row->device_ns;
}

static double key_self_device(const struct ops_row *row)
{
	return row->self_device_ns;
}

static double key_device_average(const struct ops_row *row)
{
	return row->device_ns / 1e3 / row->val.calls;
}

static double key_count(const struct ops_row *row)
{
	return row->val.calls;
}

static double key_memory(const struct ops_row *row)
{
	return row->val.total_bytes[OP_MEMORY_CPU];
}

static double key_self_memory(const struct ops_row *row)
{
	return row->val.self_bytes[OP_MEMORY_CPU];
}

static double key_device_memory(const struct ops_row *row)
{
	return row->val.total_bytes[OP_MEMORY_DEVICE];
}

static double key_self_device_memory(const struct ops_row *row)
{
	return row->val.self_bytes[OP_MEMORY_DEVICE];
}

static double key_flops(const struct ops_row *row)
{
	return row->flops;
}

/* In the order of ops_rows__sort_keys, descending; NULL: by name. */
static double (*const sort_values[])(const struct ops_row *row) = {
	key_total, key_device, key_self,        key_self_device,   key_device_average,     key_average,
	key_count, key_memory, key_self_memory, key_device_memory, key_self_device_memory, key_flops,
	NULL,
};

/* Texts that may be NULL, which comes first. */
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

/* 0: one row. */
static int compare_identity(const struct ops_row *x, const struct ops_row *y)
{
	int order = compare_text(x->action, y->action);

	if (!order)
		order = strcmp(x->name, y->name);
	if (!order)
		order = COMPARE(x->kind, y->kind);
	if (!order)
		order = COMPARE(x->activity, y->activity);
	if (!order)
		order = compare_text(x->overload, y->overload);
	if (!order)
		order = compare_text(x->shapes, y->shapes);
	if (!order)
		order = compare_text(x->source, y->source);
	return order ? order : compare_text(x->module, y->module);
}

static int compare_to_merge(const void *a, const void *b)
{
	const struct ops_row *x = a, *y = b;
	int order = compare_identity(x, y);

	return order ? order : COMPARE(x->order, y->order);
}

struct order {
	bool by_action;
	double (*value)(const struct ops_row *row); /* NULL: by name */
};

static int compare_to_sort(const void *a, const void *b, void *ctx)
{
	const struct ops_row *x = a, *y = b;
	const struct order *sort = ctx;
	int order = sort->by_action ? compare_action(x, y) : 0;

	if (order)
		return order;
	if (sort->value && sort->value(x) != sort->value(y))
		return sort->value(x) > sort->value(y) ? -1 : 1;
	order = sort->value ? 0 : strcmp(x->name, y->name);
	/* Python's sort is stable. */
	return order ? order : COMPARE(x->order, y->order);
}

static uint64_t multiply_saturating(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/*
 * Calls that do not tell groups: where rows of a key are one in the table, the first has it all; where they are apart, it
 * is not known which has how much. rows: by gpu_op, how many rows have its key; 0 when one has it.
 */
static void set_device(const struct gpu_ops *gpu, const struct op_row *op, const struct report_options *options,
		       uint32_t *rows, struct ops_row *row)
{
	const struct gpu_op *of = gpu_ops__find(gpu, op);
	uint32_t *cnt = of ? &rows[of - (const struct gpu_op *)gpu->ops.items] : NULL;

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

/* By gpu_op, how many rows have its key; malloc'ed, NULL: no memory. */
static uint32_t *count_rows(const struct gpu_ops *gpu, const struct op_row *ops, size_t op_cnt)
{
	uint32_t *rows = calloc(gpu->ops.cnt + 1, sizeof(*rows));

	for (size_t i = 0; rows && i < op_cnt; i++) {
		const struct gpu_op *of = gpu_ops__find(gpu, &ops[i]);

		if (of)
			rows[of - (const struct gpu_op *)gpu->ops.items]++;
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
	size_t kept = 0;

	qsort(rows->items, rows->cnt, sizeof(*rows->items), compare_to_merge);
	for (size_t i = 0; i < rows->cnt; i++) {
		struct ops_row *last = kept ? &rows->items[kept - 1] : NULL, *row = &rows->items[i];

		if (last && !compare_identity(last, row))
			merge_into(last, row);
		else
			rows->items[kept++] = *row;
	}
	rows->cnt = kept;
}

/* The rows of one action lie together after merge_equal_rows(). */
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

static void sort_rows(struct ops_rows *rows, const struct report_options *options)
{
	struct order order = {.by_action = options->by_action};
	size_t key = !options->sort && rows->has_device;

	while (options->sort && strcmp(ops_rows__sort_keys[key], options->sort))
		key++;
	order.value = sort_values[key];
	qsort_r(rows->items, rows->cnt, sizeof(*rows->items), compare_to_sort, &order);
}

static int compare_pid(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return COMPARE(*x, *y);
}

static int count_processes(struct ops_rows *rows)
{
	uint32_t *pids = calloc(rows->cnt + 1, sizeof(*pids));

	if (!pids)
		return -ENOMEM;
	for (size_t i = 0; i < rows->cnt; i++)
		pids[i] = rows->items[i].pid;
	qsort(pids, rows->cnt, sizeof(*pids), compare_pid);
	for (size_t i = 0; i < rows->cnt; i++)
		rows->processes += !i || pids[i] != pids[i - 1];
	free(pids);
	return 0;
}

static bool action_chosen(const char *action, const struct report_options *options)
{
	return !options->action || !strcmp(options->action, action ? action : OPS_NO_ACTION);
}

/* Kernels and copies, as torch lists them: rows of their own, of no CPU time. */
static int add_works(struct job *job, const struct report_options *options, uint32_t pid, bool by_action,
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
	uint32_t *rows = count_rows(&out->gpu, ops, cnt);
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
	/* Of a recording without operators report --gpu tells more. */
	return err || !out->has_rows ? err : add_works(job, options, pid, by_action, out);
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
		err = count_processes(out);
	if (err) {
		ops_rows__release(out);
		return err;
	}
	merge_equal_rows(out);
	for (size_t i = 0; i < out->cnt; i++)
		out->has_device |= out->items[i].self_device_ns > 0;
	add_up_actions(out);
	sort_rows(out, options);
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
