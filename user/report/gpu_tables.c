// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The tables of the GPU report: the titles of their columns, and what the columns contain. */
#include "user/report/gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/kernel_name.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"

/* ---- kernels, copies, calls ---- */

static char *kernel_name(struct job *job, const struct gpu_row *row)
{
	const char *name;

	if (row->key.api)
		return strdup("(CUDA graph)");
	if (!row->key.name)
		return strdup("(kernel not known)");
	name = job__name_or_lost(job, row->key.name);
	return name ? kernel_name__for_people(name) : NULL;
}

char *gpu_row__name(const struct gpu_view *view, enum gpu_table_id id, const struct gpu_row *row)
{
	const char *name = gpu_api__name(row->key.api);
	char *text;

	switch (id) {
	case GPU_TABLE_KERNELS:
		return kernel_name(view->job, row);
	case GPU_TABLE_COPIES:
		return strdup(row->key.direction ? gpu_direction__name(row->key.direction) : "copy");
	case GPU_TABLE_SETS:
		return strdup("(memory set)");
	case GPU_TABLE_COLLECTIVES:
		if (!row->key.object)
			break;
		if (asprintf(&text, "%s, %s, communicator %#" PRIx64, name, gpu_row__dtype(row->key.dtype),
			     row->key.object) < 0)
			return NULL;
		return text;
	default:
		break;
	}
	return strdup(name);
}

/* Adds the operator and the action where they split rows. NULL: no memory. */
static char *row_title(const struct gpu_view *view, const struct gpu_row *row, const char *name)
{
	char *op = row->key.op ? gpu_row__op_name(view, row) : strdup("(no operator)"), *title;
	const char *action = row->key.action ? job__name_or_lost(view->job, row->key.action) : "(no action)";
	bool by_op = view->options->by_op, by_action = view->options->by_action;
	int bytes = asprintf(&title, "%s%s%s%s%s", name, by_op ? " < " : "", by_op && op ? op : "",
			     by_action ? " < " : "", by_action && action ? action : "");

	free(op);
	return bytes < 0 ? NULL : title;
}

static json_t *op_of(const struct gpu_view *view, const struct gpu_row *row)
{
	char *op = row->key.op ? gpu_row__op_name(view, row) : NULL;
	json_t *json = row->key.op ? json_string(op ?: "") : json_null();

	free(op);
	return json;
}

/* Returns null where the name is unknown, or rows are not split by it. */
static json_t *json_row_name(const struct gpu_view *view, uint64_t name)
{
	return name ? json_string(job__name_or_lost(view->job, name) ?: "") : json_null();
}

static json_t *ns_of(bool known, uint64_t ns)
{
	return known ? json_integer(ns) : json_null();
}

static json_t *communicator_of(const struct gpu_row *row)
{
	char text[24] = "";

	if (row->key.object)
		snprintf(text, sizeof(text), "%#" PRIx64, row->key.object);
	return common__json_text(text);
}

/* Adds a row of GPU activities: kernels, copies or sets. */
static int add_work_row(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_row *row,
			bool kernel, const char *name, char *title, struct table *table)
{
	/* bytes of copies without a time would make the speed too high */
	bool has_speed = row->timed == row->count && row->total_ns, timed = row->timed;
	const struct cell cells[] = {
		cell__if(kernel, cell__json("name:s", json_string(name))),
		cell__if(kernel, cell__json("mangled:s?", json_row_name(view, row->key.name))),
		cell__if(!kernel,
			 cell__json("direction:s?", common__json_text(gpu_direction__name(row->key.direction)))),
		cell__new("count:I", 1, "count", 9, 0, json_integer(row->count)),
		cell__if(!kernel, cell__new("bytes:I", 2, "bytes", 17, 0, json_integer(row->bytes))),
		cell__if(kernel, cell__new("busy_percent:f?", 7, "% busy", 7, 2,
					   common__json_percent(row->total_ns, timed ? rows->work_ns : 0))),
		cell__if(!kernel, cell__new("gb_per_s:f?", 7, "GB/s", 9, 2,
					    common__json_real(has_speed, (double)row->bytes / row->total_ns))),
		cell__json("timed:I", common__json_integer(row->timed)),
		cell__new("total_us:f?", 3, "total ms", 12, 3, ns_of(timed, row->total_ns)),
		cell__new("avg_us:f?", 4, "avg us", 10, 2, common__json_real(timed, row->total_ns / 1e3 / row->timed)),
		cell__new("min_us:f?", 5, "min us", 10, 2, ns_of(timed, row->min_ns)),
		cell__new("max_us:f?", 6, "max us", 10, 2, ns_of(timed, row->max_ns)),
		cell__json("op:s?", op_of(view, row)),
		cell__json("action:s?", json_row_name(view, row->key.action)),
		cell__last(8, kernel ? "kernel" : "direction", title),
	};

	return TABLE_ADD(table, cells);
}

/* Adds a row of calls on the CPU: APIs, memory or collectives. */
static int add_calls_row(const struct gpu_view *view, const struct gpu_row *row, enum gpu_table_id id, char *title,
			 struct table *table)
{
	bool timed = row->timed, collective = id == GPU_TABLE_COLLECTIVES;
	const struct cell cells[] = {
		cell__json("name:s", json_string(gpu_api__name(row->key.api))),
		cell__new("count:I", 1, "count", 9, 0, json_integer(row->count)),
		cell__new("total_s:f?", 2, "total ms", 12, 3, ns_of(timed, row->total_ns)),
		cell__new(NULL, 3, "avg us", 10, 2, common__json_real(timed, row->total_ns / 1e3 / row->timed)),
		cell__new("max_s:f?", 4, "max us", 12, 2, ns_of(timed, row->max_ns)),
		cell__new("bytes:I", id == GPU_TABLE_APIS ? 0 : 5, "bytes", 17, 0, json_integer(row->bytes)),
		cell__json("op:s?", op_of(view, row)),
		cell__json("action:s?", json_row_name(view, row->key.action)),
		cell__if(collective, cell__json("communicator:s?", communicator_of(row))),
		cell__if(collective,
			 cell__json("dtype:s?",
				    common__json_text(row->key.object ? gpu_row__dtype(row->key.dtype) : NULL))),
		cell__if(collective,
			 cell__new("device_us:f?", 6, "GPU ms", 12, 3, ns_of(row->device_cnt, row->device_ns))),
		cell__last(7, collective ? "type" : "function", title),
	};

	return TABLE_ADD(table, cells);
}

static int add_table_row(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id,
			 const struct gpu_row *row, struct table *table)
{
	bool is_sum = row == &rows->tables[id].sum;
	char *name = is_sum ? strdup("total") : gpu_row__name(view, id, row), *title;
	int err;

	if (!name)
		return -ENOMEM;
	title = is_sum ? strdup(name) : row_title(view, row, name);
	if (id <= GPU_TABLE_SETS)
		err = add_work_row(view, rows, row, id == GPU_TABLE_KERNELS, name, title, table);
	else
		err = add_calls_row(view, row, id, title, table);
	free(name);
	return err;
}

int gpu_table__add(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id, size_t limit,
		   struct table *table)
{
	const struct gpu_table *from = &rows->tables[id];
	int err = 0;

	for (size_t i = 0; i < from->cnt && i < limit && !err; i++)
		err = add_table_row(view, rows, id, &from->rows[i], table);
	return err;
}

/* A row with the keys of all. 0 or -ENOMEM. */
static int add_blank_row(const struct gpu_view *view, enum gpu_table_id id, struct table *table)
{
	const struct gpu_rows none = {0};
	const struct gpu_row row = {0};

	if (id > GPU_TABLE_SETS)
		return add_calls_row(view, &row, id, strdup(""), table);
	return add_work_row(view, &none, &row, id == GPU_TABLE_KERNELS, "", strdup(""), table);
}

json_t *gpu_table__blank_kernel(const struct gpu_view *view)
{
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, add_blank_row(view, GPU_TABLE_KERNELS, &table));
}

static int add_blank_kernel(struct job *job, struct table *table)
{
	return add_blank_row(&(struct gpu_view){.job = job}, GPU_TABLE_KERNELS, table);
}

static int add_blank_copy(struct job *job, struct table *table)
{
	return add_blank_row(&(struct gpu_view){.job = job}, GPU_TABLE_COPIES, table);
}

static int add_blank_call(struct job *job, struct table *table)
{
	return add_blank_row(&(struct gpu_view){.job = job}, GPU_TABLE_APIS, table);
}

static int add_blank_collective(struct job *job, struct table *table)
{
	return add_blank_row(&(struct gpu_view){.job = job}, GPU_TABLE_COLLECTIVES, table);
}

SHAPE_ROW(gpu_kernel_shape, "gpu_kernel", add_blank_kernel);
SHAPE_ROW(gpu_copy_shape, "gpu_copy", add_blank_copy); /* also of memory sets */
SHAPE_ROW(gpu_call_shape, "gpu_call", add_blank_call);
SHAPE_ROW(gpu_collective_shape, "gpu_collective", add_blank_collective);

int gpu_table__add_sum(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id,
		       struct table *table)
{
	return add_table_row(view, rows, id, &rows->tables[id].sum, table);
}

/* ---- GPUs ---- */

/* Percentage of all; 0 where all is 0. */
static json_t *json_share_of(uint64_t part, uint64_t all)
{
	return json_real(all ? 100.0 * part / all : 0);
}

#define IDLE_COLUMNS 100 /* a narrower terminal has no room for why GPUs were idle */

/* With several GPUs, each has a row, so that they can be compared. */
static int add_gpu_line_row(const struct gpu_view *view, const struct gpu_line *line, struct table *table)
{
	const struct rec_gpu_device *device = gpu_view__device(view, line->pid, line->device);
	int rank = common__target(view->job, line->pid).rank;
	uint64_t all_ns = line->watched_ns, busy_ns = gpu_spans__total(&line->work);
	uint64_t comm_ns = gpu_spans__total(&line->comm), overlap_ns = gpu_line__overlap(line, 0, UINT64_MAX);
	struct cell cells[16 + GPU_IDLE__COUNT] = {
		cell__new(NULL, 1, "rank", 4, 0, rank < 0 ? json_null() : json_integer(rank)),
		cell__new(NULL, 2, "pid", 8, 0, json_integer(REC_PID(line->pid))),
		cell__json("pid:I", json_integer(line->pid)),
		cell__new("device:I", 3, "GPU", 3, 0, json_integer(line->device)),
		cell__new("watched_us:f", 4, "ms", 10, 2, json_integer(all_ns)),
		cell__new(NULL, 5, "% busy", 6, 2, json_share_of(busy_ns, all_ns)),
		cell__json("busy_us:f", json_integer(busy_ns)),
		cell__new("kernel_us:f", 6, "kernels ms", 10, 2, json_integer(gpu_spans__total(&line->kernels))),
		cell__json("compute_us:f", json_integer(gpu_spans__total(&line->compute))),
		cell__new("comm_us:f", 7, "comm ms", 9, 2, json_integer(comm_ns)),
		cell__json("overlap_us:f", json_integer(overlap_ns)),
		cell__new("overlap_percent:f?", 8, "overlap %", 9, 2, common__json_percent(overlap_ns, comm_ns)),
		cell__json("idle_percent:f?", common__json_percent(all_ns - busy_ns, all_ns)),
		cell__json("idle_us:{f}", gpu_line__json_idle(line, 0, UINT64_MAX)),
		cell__json("untimed:I", common__json_integer(line->untimed)),
		cell__last(9 + GPU_IDLE__COUNT, "name", strdup(device ? device->name : "")),
	};

	for (int i = 0; i < GPU_IDLE__COUNT; i++)
		cells[16 + i] = cell__if(text__columns() >= IDLE_COLUMNS,
					 cell__new(NULL, 9 + i, gpu_idle__name(i), 6, 2,
						   json_share_of(gpu_spans__total(&line->idle[i]), all_ns)));
	return TABLE_ADD(table, cells);
}

static int add_blank_line(struct job *job, struct table *table)
{
	return add_gpu_line_row(&(struct gpu_view){.job = job, .gpu = job__gpu(job)}, &(struct gpu_line){0}, table);
}

SHAPE_ROW(gpu_shape, "gpu", add_blank_line);

int gpu_tables__lines(const struct gpu_view *view, uint32_t pid, struct table *table)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++)
		if (processes__in_scope(view->job, lines[i].pid, pid))
			err = add_gpu_line_row(view, &lines[i], table);
	return err;
}

/* ---- what CUPTI reports as overhead ---- */

struct gpu_overhead {
	uint32_t kind; /* CUpti_ActivityOverheadKind; of unknown ones any */
	uint64_t count, total_ns;
};

static int compare_overhead(const void *a, const void *b)
{
	const struct gpu_overhead *x = a, *y = b;

	return COMPARE(y->total_ns, x->total_ns);
}

static struct gpu_overhead *overhead_of_kind(struct array *rows, uint32_t kind)
{
	struct gpu_overhead *row = rows->items;
	const char *name = gpu_overhead__name(kind);

	for (size_t i = 0; i < rows->cnt; i++, row++)
		if (!strcmp(gpu_overhead__name(row->kind), name))
			return row;
	row = array__add(rows, sizeof(*row));
	if (row)
		row->kind = kind;
	return row;
}

/* Longest first; free them also after a failure. 0 or -ENOMEM. */
static int list_overheads(const struct gpu_view *view, uint32_t pid, struct array *rows)
{
	size_t cnt;
	const struct gpu_act *activities = gpu__activities(view->gpu, &cnt);

	*rows = (struct array){0};
	for (size_t i = 0; i < cnt; i++) {
		struct gpu_overhead *row;

		if (activities[i].kind != GPU_ACTIVITY_OVERHEAD ||
		    !processes__in_scope(view->job, activities[i].pid, pid))
			continue;
		row = overhead_of_kind(rows, activities[i].detail[0]);
		if (!row)
			return -ENOMEM;
		row->count++;
		row->total_ns = saturating__add(row->total_ns, activities[i].duration_ns);
	}
	if (rows->cnt)
		qsort(rows->items, rows->cnt, sizeof(struct gpu_overhead), compare_overhead);
	return 0;
}

static int add_overhead_row(const struct gpu_overhead *row, struct table *table)
{
	const struct cell cells[] = {
		cell__json("kind:s", json_string(gpu_overhead__name(row->kind))),
		cell__json("profiling:b", json_boolean(gpu_overhead__is_profiling(row->kind))),
		cell__new("count:I", 1, "count", 9, 0, json_integer(row->count)),
		cell__new("total_us:f", 2, "total ms", 12, 3, json_integer(row->total_ns)),
		cell__last(3, "what", strdup(gpu_overhead__meaning(row->kind))),
	};

	return TABLE_ADD(table, cells);
}

static int add_blank_overhead(struct job *job, struct table *table)
{
	return add_overhead_row(&(struct gpu_overhead){0}, table);
}

SHAPE_ROW(gpu_overhead_shape, "gpu_overhead", add_blank_overhead);

int gpu_tables__overheads(const struct gpu_view *view, uint32_t pid, struct table *table, uint64_t *profiling_ns)
{
	struct array rows;
	const struct gpu_overhead *items;
	int err = list_overheads(view, pid, &rows);

	items = rows.items;
	*profiling_ns = 0;
	for (size_t i = 0; i < rows.cnt && !err; i++) {
		err = add_overhead_row(&items[i], table);
		if (gpu_overhead__is_profiling(items[i].kind))
			*profiling_ns = saturating__add(*profiling_ns, items[i].total_ns);
	}
	free(rows.items);
	return err;
}

static json_t *reading_of(double mean)
{
	return common__json_real(mean >= 0, mean);
}

static int add_usage_row(const struct gpu_usage *usage, struct table *table)
{
	const struct cell cells[] = {
		cell__new("device:I", 1, "GPU", 5, 0, json_integer(usage->device)),
		cell__json("name:s", json_string(usage->name)),
		cell__json("samples:I", common__json_integer(usage->samples)),
		cell__new("busy_percent:f?", 2, "% busy", 7, 1, reading_of(usage->busy_percent)),
		cell__new("memory_busy_percent:f?", 3, "% memory", 9, 1, reading_of(usage->memory_busy_percent)),
		cell__json("memory_used_bytes:I", common__json_integer(usage->memory_used_bytes)),
		cell__json("memory_bytes:I", common__json_integer(usage->memory_bytes)),
		cell__new(NULL, 4, "used MB", 9, 0, json_real(usage->memory_used_bytes / 1e6)),
		cell__new(NULL, 5, "of MB", 9, 0, json_real(usage->memory_bytes / 1e6)),
		cell__new("power_w:f?", 6, "power W", 7, 1, reading_of(usage->power_w)),
		cell__new("temperature_c:f?", 7, "deg C", 7, 0, reading_of(usage->temperature_c)),
		cell__new("sm_mhz:f?", 8, "MHz", 6, 0, reading_of(usage->sm_mhz)),
		cell__last(9, "name", strdup(usage->name)),
	};

	return TABLE_ADD(table, cells);
}

static int add_blank_usage(struct job *job, struct table *table)
{
	return add_usage_row(&(struct gpu_usage){.name = ""}, table);
}

SHAPE_ROW(gpu_usage_shape, "gpu_usage", add_blank_usage);

int gpu_tables__usage(const struct gpu_view *view, struct table *table)
{
	struct gpu_usage *usages;
	size_t cnt;
	int err = gpu_usage__list(view->gpu, &usages, &cnt);

	for (size_t i = 0; i < cnt && !err; i++)
		err = add_usage_row(&usages[i], table);
	free(usages);
	return err;
}
