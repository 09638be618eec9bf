// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The GPU report: where its figures come from, and thus what is unknown; kernels, copies, calls,
 * collectives, memory; what GPUs did and what they waited for. gpu_rows.c adds up.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/demangle.h"
#include "user/lib/compare.h"
#include "user/lib/digits.h"
#include "user/lib/saturating.h"
#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/gpu_rows.h"
#include "user/report/print/shape.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"

/* ---- tables: kernels, copies, calls ---- */

static char *kernel_name(struct job *job, const struct gpu_row *row)
{
	const char *name;

	if (row->key.api)
		return strdup("(CUDA graph)");
	if (!row->key.name)
		return strdup("(kernel not known)");
	name = job__name_or_lost(job, row->key.name);
	return name ? demangle__kernel(name) : NULL;
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

/* Adds the first `limit` rows of a table. 0 or -ENOMEM. */
static int gpu_table__add(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id, size_t limit,
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

/* Returns a row of kernels with the keys of all. NULL: no memory. */
static json_t *gpu_table__blank_kernel(const struct gpu_view *view)
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

/* Adds the sum of all rows of a table. */
static int gpu_table__add_sum(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id,
			      struct table *table)
{
	return add_table_row(view, rows, id, &rows->tables[id].sum, table);
}

/* ---- tables: GPUs ---- */

static json_t *json_idle(const uint64_t idle_ns[GPU_IDLE__COUNT])
{
	json_t *json = json_object();

	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		common__json_set(&json, gpu_idle__name(idle), json_real(idle_ns[idle] / 1e3));
	return json;
}

/* Returns the microseconds that a GPU was idle between two times, by reason. NULL: no memory. */
static json_t *gpu_line__json_idle(const struct gpu_line *line, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t idle_ns[GPU_IDLE__COUNT];

	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		idle_ns[idle] = gpu_spans__within(&line->idle[idle], from_ns, to_ns);
	return json_idle(idle_ns);
}

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

SHAPE_ROW(gpu_line_shape, "gpu", add_blank_line);

/* Adds a row for each GPU that pid, or any main process, used. */
static int gpu_tables__lines(const struct gpu_view *view, uint32_t pid, struct table *table)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++)
		if (processes__in_scope(view->job, lines[i].pid, pid))
			err = add_gpu_line_row(view, &lines[i], table);
	return err;
}

/* ---- tables: what CUPTI reports as overhead ---- */

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

/*
 * Adds a row for each kind of overhead that CUPTI reported of pid, or of all main processes.
 * *profiling_ns: the time of those that are the price of profiling.
 */
static int gpu_tables__overheads(const struct gpu_view *view, uint32_t pid, struct table *table, uint64_t *profiling_ns)
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

/* Adds a row for each GPU of the host, whichever process used the GPU. */
static int gpu_tables__usage(const struct gpu_view *view, struct table *table)
{
	struct gpu_usage *usages;
	size_t cnt;
	int err = gpu_usage__list(view->gpu, &usages, &cnt);

	for (size_t i = 0; i < cnt && !err; i++)
		err = add_usage_row(&usages[i], table);
	free(usages);
	return err;
}

/* ---- JSON: processes ---- */

SHAPE(gpu_tier_shape, "gpu_tier",
      "pid:I tier:I why:s? cupti_version:I? cupti_s:f lost:I activities:I unjoined:I unasked:I");

static json_t *json_tiers(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct gpu_process *processes = gpu__processes(view->gpu, &cnt);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_process *p = &processes[i];

		if (!processes__in_scope(view->job, p->pid, pid))
			continue;
		common__json_append(&list,
				    SHAPE_PACK(gpu_tier_shape, json_integer(p->pid), json_integer(p->tier),
					       common__json_text(p->why),
					       p->cupti_version ? json_integer(p->cupti_version) : json_null(),
					       json_real(p->cupti_ns / 1e9), common__json_integer(p->lost),
					       common__json_integer(p->activities), common__json_integer(p->unjoined),
					       common__json_integer(p->unasked)));
	}
	return list;
}

SHAPE(gpu_window_shape, "gpu_window", "pid:I index:I start_s:f duration_s:f end:s error:I?");

static json_t *json_gpu_windows(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct rec_gpu_window *windows = gpu__windows(view->gpu, &cnt);
	double from_ns = job__window(view->job)->start_ns;
	json_t *list = json_array();

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_gpu_window *w = &windows[i];

		if (!processes__in_scope(view->job, w->pid, pid))
			continue;
		common__json_append(&list, SHAPE_PACK(gpu_window_shape, json_integer(w->pid), json_integer(w->index),
						      json_real((w->start_ns - from_ns) / 1e9),
						      json_real((w->end_ns - w->start_ns) / 1e9),
						      json_string(gpu_window__end_name(w->end)),
						      w->error ? json_integer(w->error) : json_null()));
	}
	return list;
}

/* ---- JSON: GPUs ---- */

SHAPE(gpu_stream_shape, "gpu_stream",
      "pid:I device:I context:I stream:I count:I busy_us:f host_wait_us:f kernel_wait_us:f other_us:f");

static json_t *json_streams(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct gpu_stream *streams = gpu_time__streams(view->time, &cnt);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_stream *s = &streams[i];

		if (!processes__in_scope(view->job, s->pid, pid))
			continue;
		common__json_append(&list,
				    SHAPE_PACK(gpu_stream_shape, json_integer(s->pid), json_integer(s->device),
					       json_integer(s->context), json_integer(s->stream),
					       common__json_integer(s->activities), json_real(s->busy_ns / 1e3),
					       json_real(s->host_wait_ns / 1e3), json_real(s->kernel_wait_ns / 1e3),
					       json_real(s->other_ns / 1e3)));
	}
	return list;
}

SHAPE(gpu_device_shape, "gpu_device", "pid:I device:I name:s memory_bytes:I multiprocessors:I compute_capability:s");

static json_t *json_gpu_devices(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct rec_gpu_device *devices = gpu__devices(view->gpu, &cnt);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_gpu_device *d = &devices[i];
		char compute[16];

		if (!processes__in_scope(view->job, d->pid, pid))
			continue;
		snprintf(compute, sizeof(compute), "%u.%u", d->compute >> 16, d->compute & 0xffff);
		common__json_append(&list, SHAPE_PACK(gpu_device_shape, json_integer(d->pid), json_integer(d->device),
						      json_string(d->name), common__json_integer(d->memory_bytes),
						      json_integer(d->multiprocessors), json_string(compute)));
	}
	return list;
}

/* ---- JSON: steps ---- */

SHAPE(gpu_step_shape, "gpu_step",
      "pid:I device:I index:I duration_us:f watched_us:f busy_us:f idle_us:{f} compute_us:f comm_us:f overlap_us:f");

static json_t *json_line_step(const struct gpu_line *line, const struct step *step, uint64_t watched_ns)
{
	uint64_t from = step->start_ns, to = step->end_ns, busy_ns = gpu_spans__within(&line->work, from, to);

	return SHAPE_PACK(gpu_step_shape, json_integer(line->pid), json_integer(line->device),
			  common__json_integer(step->index), json_real(step__ns(step) / 1e3),
			  json_real(watched_ns / 1e3), json_real(busy_ns / 1e3), gpu_line__json_idle(line, from, to),
			  json_real(gpu_spans__within(&line->compute, from, to) / 1e3),
			  json_real(gpu_spans__within(&line->comm, from, to) / 1e3),
			  json_real(gpu_line__overlap(line, from, to) / 1e3));
}

/* Lists the steps that overlap a window of CUPTI. */
static json_t *json_line_steps(const struct gpu_view *view, uint32_t pid)
{
	size_t line_cnt, track_cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &line_cnt);
	const struct step_track *tracks = steps__tracks(view->steps, &track_cnt);
	json_t *list = json_array();

	for (size_t t = 0; t < track_cnt; t++) {
		for (size_t l = 0; l < line_cnt; l++) {
			if (lines[l].pid != tracks[t].pid || !processes__in_scope(view->job, tracks[t].pid, pid))
				continue;
			for (size_t s = 0; s < tracks[t].step_cnt; s++) {
				const struct step *step = &tracks[t].steps[s];
				uint64_t ns =
					gpu_time__watched(view->time, tracks[t].pid, step->start_ns, step->end_ns);

				if (ns)
					common__json_append(&list, json_line_step(&lines[l], step, ns));
			}
		}
	}
	return list;
}

SHAPE(gpu_per_step_shape, "gpu_per_step", "steps:I launches:f copies:f copied_bytes:f api_s:f sync_s:f");

static json_t *json_per_step(const struct gpu_view *view, uint32_t pid)
{
	struct gpu_per_step sum = gpu_per_step__of(view, pid);

	if (!sum.steps)
		return json_null();
	return SHAPE_PACK(gpu_per_step_shape, common__json_integer(sum.steps), json_real(sum.launches),
			  json_real(sum.copies), json_real(sum.copied_bytes), json_real(sum.api_ns / 1e9),
			  json_real(sum.sync_ns / 1e9));
}

/* ---- JSON: together ---- */

static int add_tables(const struct gpu_view *view, const struct gpu_rows *rows, json_t *object)
{
	static const char *const keys[] = {"kernels", "copies", "sets", "apis", "collectives", "memory"};
	int err = 0;

	for (int i = 0; i < GPU_TABLE__COUNT && !err; i++) {
		struct table table = table__json(object, keys[i]);

		err = gpu_table__add(view, rows, i, report_options__limit(view->options, 0), &table);
	}
	return err;
}

SHAPE(gpu_scope_shape, "gpu_scope",
      "tier:I tiers:[gpu_tier] windows:[gpu_window] kernels:[gpu_kernel] copies:[gpu_copy] sets:[gpu_copy] "
      "apis:[gpu_call] collectives:[gpu_collective] memory:[gpu_call] idle_percent:f? idle_us:{f}? overlap_percent:f? "
      "action_unknown:I gpus:[gpu] overheads:[gpu_overhead] profiling_us:f streams:[gpu_stream] devices:[gpu_device] "
      "per_step:gpu_per_step? steps:[gpu_step]");
SHAPE(gpu_process_shape, "gpu_of_process", "@target @gpu_scope");
SHAPE_REPORT(gpu_shape, "gpu_report", "gpu", "@report @gpu_scope usage:[gpu_usage] processes?:[gpu_of_process]");

/* Adds the data of pid, or of all main processes. Returns nonzero without memory. */
static int add_scope(const struct gpu_view *view, uint32_t pid, json_t *object)
{
	struct gpu_rows rows;
	struct table gpus, overheads;
	uint64_t idle_ns, profiling_ns = 0;
	int failed = gpu_rows__collect(view, pid, &rows);

	if (failed)
		return failed;
	idle_ns = rows.watched_ns - (rows.work_ns < rows.watched_ns ? rows.work_ns : rows.watched_ns);
	failed |= json_object_set_new(object, "tier", json_integer(rows.tier));
	failed |= json_object_set_new(object, "tiers", json_tiers(view, pid));
	failed |= json_object_set_new(object, "windows", json_gpu_windows(view, pid));
	failed |= add_tables(view, &rows, object);
	failed |= json_object_set_new(object, "idle_percent", common__json_percent(idle_ns, rows.watched_ns));
	failed |= json_object_set_new(object, "idle_us", rows.watched_ns ? json_idle(rows.idle_ns) : json_null());
	failed |= json_object_set_new(object, "overlap_percent", common__json_percent(rows.overlap_ns, rows.comm_ns));
	failed |= json_object_set_new(object, "action_unknown", common__json_integer(rows.elsewhere));
	gpus = table__json(object, "gpus");
	failed |= gpu_tables__lines(view, pid, &gpus);
	overheads = table__json(object, "overheads");
	failed |= gpu_tables__overheads(view, pid, &overheads, &profiling_ns);
	failed |= json_object_set_new(object, "profiling_us", json_real(profiling_ns / 1e3));
	failed |= json_object_set_new(object, "streams", json_streams(view, pid));
	failed |= json_object_set_new(object, "devices", json_gpu_devices(view, pid));
	failed |= json_object_set_new(object, "per_step", json_per_step(view, pid));
	failed |= json_object_set_new(object, "steps", json_line_steps(view, pid));
	gpu_rows__release(&rows);
	return failed;
}

static json_t *json_gpu_processes(const struct gpu_view *view)
{
	json_t *list = json_array();
	struct rec_target *targets;
	size_t cnt;
	int failed = gpu_rows__processes(view, &targets, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		json_t *process = common__json_target(&targets[i]);

		failed |= process ? add_scope(view, targets[i].pid, process) : 1;
		failed |= json_array_append_new(list, process);
	}
	free(targets);
	return common__json_unless_failed(list, failed);
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "kernels", NULL};
	struct gpu_view view;
	struct table usage;
	json_t *object, *blank;
	int failed = gpu_view__open(&view, job, options);

	if (failed)
		return failed;
	object = common__json(job, "gpu");
	failed |= object ? add_scope(&view, PROCESSES_ALL_MAIN, object) : 1;
	usage = table__json(object, "usage");
	failed |= gpu_tables__usage(&view, &usage);
	if (options->per_rank)
		failed |= json_object_set_new(object, "processes", json_gpu_processes(&view));
	blank = gpu_table__blank_kernel(&view);
	gpu_view__close(&view);
	return common__print_object(common__json_unless_failed(object, failed), options, path, blank, out);
}

#define DEFAULT_LIMIT 20

static double to_ms(uint64_t ns)
{
	return ns / 1e6;
}

static double percent_of_ns(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * part / whole : 0;
}

/* ---- text: tiers ---- */

/* Reports the windows that did not open or ended early. */
static void print_failed_windows(const struct gpu *gpu, uint32_t pid, FILE *out)
{
	static const char *const why[GPU_WINDOW__COUNT] = {
		[GPU_WINDOW_OPEN] = "ended when the recording was cut",
		[GPU_WINDOW_BUSY] = "did not open: another tool used CUPTI",
		[GPU_WINDOW_FAILED] = "did not open: CUPTI refused",
		[GPU_WINDOW_LATE] = "ended before CUPTI was ready: add warm-up steps (--schedule warmup=N)",
	};
	size_t cnt, all = 0, ends[GPU_WINDOW__COUNT] = {0};
	const struct rec_gpu_window *windows = gpu__windows(gpu, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		all += windows[i].pid == pid;
		ends[windows[i].end] += windows[i].pid == pid;
	}
	for (int end = 0; end < GPU_WINDOW__COUNT; end++)
		if (ends[end] && why[end])
			text__paragraph(out, "%zu of %zu windows %s", ends[end], all, why[end]);
}

static void print_tier(const struct gpu *gpu, const struct gpu_process *process, const struct rec_window *window,
		       FILE *out)
{
	uint64_t recorded_ns = window->end_ns - window->start_ns;
	char windows[48] = "all";
	static const char *const not_known = "not known: when kernels ran and for how long, how long copies took, when "
					     "the GPU was idle and why";

	switch (process->tier) {
	case GPU_TIER_NONE:
		text__paragraph(out, "tier 0: no figures of its GPU%s%s", process->why[0] ? ": " : "", process->why);
		return;
	case GPU_TIER_PROBES:
		text__paragraph(out, "tier 1, calls of the CPU alone, by probes%s%s; %s", process->why[0] ? ": " : "",
				process->why, not_known);
		return;
	case GPU_TIER_CUPTI:
		break;
	}
	if (process->cupti_ns < recorded_ns)
		snprintf(windows, sizeof(windows), "windows of %s s", DIGITS(process->cupti_ns / 1e9, 4));
	text__paragraph(
		out, "tier 2, what the GPU did, by CUPTI: %" PRIu64 " pieces of work%s, in %s of the %s s recorded%s%s",
		process->activities, process->activities ? "" : " (was it idle?)", windows,
		DIGITS(recorded_ns / 1e9, 4), process->why[0] ? "; " : "", process->why);
	print_failed_windows(gpu, process->pid, out);
	if (process->lost)
		text__paragraph(out, "%" PRIu64 " pieces of work or calls were lost: figures are too low",
				process->lost);
	if (process->unjoined)
		text__paragraph(
			out,
			"operator and action are not known for %" PRIu64 " (%.2f %%): the probes did not see the "
			"call that asked for them (nor did CUPTI for %" PRIu64 ")",
			process->unjoined, percent_of_ns(process->unjoined, process->activities), process->unasked);
}

static void print_tiers(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	size_t cnt;
	const struct gpu_process *processes = gpu__processes(view->gpu, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		struct rec_target target = common__target(view->job, processes[i].pid);

		if (!processes__in_scope(view->job, processes[i].pid, pid))
			continue;
		if (pid == PROCESSES_ALL_MAIN)
			common__process(&target, out);
		print_tier(view->gpu, &processes[i], job__window(view->job), out);
	}
	fputc('\n', out);
}

/* ---- text: tables ---- */

static struct table new_table(FILE *out, const char *title)
{
	return (struct table){.out = out, .title = title, .gap = "  ", .unknown = "?"};
}

/* what: what a row is. with_sum: end with a row of the sum of all rows. */
static int print_gpu_table(const struct gpu_view *view, const struct gpu_rows *rows, enum gpu_table_id id,
			   const char *title, const char *what, bool with_sum, FILE *out)
{
	size_t limit = report_options__limit(view->options, DEFAULT_LIMIT), cnt = rows->tables[id].cnt;
	struct table table = new_table(out, title);
	int err;

	if (!cnt)
		return 0;
	err = gpu_table__add(view, rows, id, limit, &table);
	if (!err && with_sum)
		err = gpu_table__add_sum(view, rows, id, &table);
	common__left_out(cnt, limit, what, out);
	fputc('\n', out);
	return err;
}

static int print_copies(const struct gpu_view *view, const struct gpu_rows *rows, FILE *out)
{
	struct table table = new_table(out, "Copies");
	int err = gpu_table__add(view, rows, GPU_TABLE_COPIES, SIZE_MAX, &table)
			  ?: gpu_table__add(view, rows, GPU_TABLE_SETS, SIZE_MAX, &table);

	if (table.row_cnt)
		fputc('\n', out);
	return err;
}

static int print_gpu_rows(const struct gpu_view *view, const struct gpu_rows *rows, FILE *out)
{
	static const char memory[] = "Memory, asked from CUDA (torch's own caches are above it)";

	return print_gpu_table(view, rows, GPU_TABLE_KERNELS, "Kernels", "kernel", true, out)
		       ?: print_copies(view, rows, out)
		       ?: print_gpu_table(view, rows, GPU_TABLE_COLLECTIVES, "Collectives of NCCL", "collective", false, out)
		       ?: print_gpu_table(view, rows, GPU_TABLE_APIS, "Calls on the CPU", "function", true, out)
		       ?: print_gpu_table(view, rows, GPU_TABLE_MEMORY, memory, "function", false, out);
}

/* ---- text: GPUs ---- */

/* Covers the steps that CUPTI watched from start to end. */
static void print_gpu_steps(const struct gpu_view *view, const struct gpu_line *line, FILE *out)
{
	size_t track_cnt, cnt = 0;
	const struct step_track *tracks = steps__tracks(view->steps, &track_cnt);
	double step_ns = 0, busy_ns = 0, idle_ns[GPU_IDLE__COUNT] = {0};

	for (size_t t = 0; t < track_cnt; t++) {
		for (size_t i = 0; tracks[t].pid == line->pid && i < tracks[t].step_cnt; i++) {
			const struct step *step = &tracks[t].steps[i];

			if (gpu_time__watched(view->time, line->pid, step->start_ns, step->end_ns) < step__ns(step))
				continue;
			cnt++;
			step_ns += step__ns(step);
			busy_ns += gpu_spans__within(&line->work, step->start_ns, step->end_ns);
			for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
				idle_ns[idle] += gpu_spans__within(&line->idle[idle], step->start_ns, step->end_ns);
		}
	}
	if (cnt)
		text__paragraph(
			out,
			"a step, on average of %zu: %.3f ms, the GPU busy for %.3f ms; idle: host %.3f ms, data "
			"%.3f ms, launch %.3f ms, other %.3f ms",
			cnt, step_ns / cnt / 1e6, busy_ns / cnt / 1e6, idle_ns[GPU_IDLE_HOST] / cnt / 1e6,
			idle_ns[GPU_IDLE_DATA] / cnt / 1e6, idle_ns[GPU_IDLE_LAUNCH] / cnt / 1e6,
			idle_ns[GPU_IDLE_OTHER] / cnt / 1e6);
}

static void print_gpu_line(const struct gpu_view *view, const struct gpu_line *line, FILE *out)
{
	const struct rec_gpu_device *device = gpu_view__device(view, line->pid, line->device);
	uint64_t busy_ns = gpu_spans__total(&line->work), comm_ns = gpu_spans__total(&line->comm);

	text__paragraph(
		out,
		"GPU %u of pid %u%s%s: busy %.3f ms of the %.3f ms from its first work to its last (%.2f %%), %.3f "
		"ms of it in kernels",
		line->device, REC_PID(line->pid), device ? ", " : "", device ? device->name : "", to_ms(busy_ns),
		to_ms(line->watched_ns), percent_of_ns(busy_ns, line->watched_ns),
		to_ms(gpu_spans__total(&line->kernels)));
	if (comm_ns)
		text__paragraph(out, "communication %.3f ms, %.2f %% of it while other kernels ran", to_ms(comm_ns),
				percent_of_ns(gpu_line__overlap(line, 0, UINT64_MAX), comm_ns));
	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++) {
		uint64_t ns = gpu_spans__total(&line->idle[idle]);

		if (ns)
			text__paragraph(out, "idle, %s: %.3f ms (%.2f %%): %s", gpu_idle__name(idle), to_ms(ns),
					percent_of_ns(ns, line->watched_ns), gpu_idle__meaning(idle));
	}
	print_gpu_steps(view, line, out);
	if (line->untimed)
		text__paragraph(out, "%" PRIu64 " pieces of work have no time and are left out", line->untimed);
}

static int print_line_table(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	struct table table =
		new_table(out, "GPUs, each from its first to its last work; idle time in % of that, by reason");
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);
	uint64_t untimed = 0;
	int err;

	table.unknown = "-";
	err = gpu_tables__lines(view, pid, &table);
	for (size_t i = 0; i < cnt; i++)
		untimed += processes__in_scope(view->job, lines[i].pid, pid) ? lines[i].untimed : 0;
	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		text__paragraph(out, "%s: %s", gpu_idle__name(idle), gpu_idle__meaning(idle));
	if (untimed)
		text__paragraph(out, "%" PRIu64 " pieces of work have no time and are left out", untimed);
	return err;
}

static size_t count_lines(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt, in_scope = 0;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);

	for (size_t i = 0; i < cnt; i++)
		in_scope += processes__in_scope(view->job, lines[i].pid, pid);
	return in_scope;
}

static int print_gpu_lines(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	struct gpu_per_step per_step = gpu_per_step__of(view, pid);
	size_t cnt, printed = count_lines(view, pid);
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);
	int err = printed > 1 ? print_line_table(view, pid, out) : 0;

	for (size_t i = 0; i < cnt && printed == 1; i++)
		if (processes__in_scope(view->job, lines[i].pid, pid))
			print_gpu_line(view, &lines[i], out);
	if (per_step.steps)
		text__paragraph(out,
				"calls of a step, on average of %" PRIu64
				": %.1f launches, %.1f copies of %.0f bytes in all, "
				"%.3f ms in calls and %.3f ms in waits for the GPU",
				per_step.steps, per_step.launches, per_step.copies, per_step.copied_bytes,
				per_step.api_ns / 1e6, per_step.sync_ns / 1e6);
	if (printed || per_step.steps)
		fputc('\n', out);
	return err;
}

/* Prints the time that CUPTI reports as overhead. */
static int print_overheads(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	struct table table = new_table(out, "Overhead on the CPU, as CUPTI reports it, of all threads");
	uint64_t profiling_ns;
	int err = gpu_tables__overheads(view, pid, &table, &profiling_ns);

	if (!table.row_cnt)
		return err;
	text__paragraph(out, "%.3f ms of it were lost to profiling; CUDA takes the rest without CUPTI, too",
			to_ms(profiling_ns));
	fputc('\n', out);
	return err;
}

/* Prints the usage of the host's GPUs, whichever process used them. */
static int print_usage(const struct gpu_view *view, FILE *out)
{
	struct table table = new_table(out, "GPUs of this host, by NVML: means over the recording, of memory the most");
	int err = gpu_tables__usage(view, &table);

	if (table.row_cnt)
		fputc('\n', out);
	return err;
}

/* ---- together ---- */

static int print_process_gpus(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	struct gpu_rows rows;
	int err = gpu_rows__collect(view, pid, &rows);

	if (err)
		return err;
	print_tiers(view, pid, out);
	err = print_gpu_lines(view, pid, out) ?: print_gpu_rows(view, &rows, out) ?: print_overheads(view, pid, out);
	if (rows.elsewhere)
		text__paragraph(out, "The action is not known for %" PRIu64 " pieces of work: they are in no table.",
				rows.elsewhere);
	gpu_rows__release(&rows);
	return err;
}

static int print_gpu_processes(const struct gpu_view *view, FILE *out)
{
	struct rec_target *targets;
	size_t cnt;
	int err = gpu_rows__processes(view, &targets, &cnt);

	for (size_t i = 0; i < cnt && !err; i++) {
		common__process(&targets[i], out);
		if (gpu__process(view->gpu, targets[i].pid))
			err = print_process_gpus(view, targets[i].pid, out);
		else
			fputs("  no CUDA in it\n\n", out);
	}
	free(targets);
	return err;
}

static const char no_gpus[] =
	"This recording has no figures of GPUs: no process used CUDA, or it was made without --gpu. "
	"Record again: stepflame record --gpu auto -p PID; stepflame doctor -p PID says which CUDA "
	"libraries the process has.";

/* Has pid, or PROCESSES_ALL_MAIN, any row in one of the tables? */
static bool has_gpu_rows(const struct gpu_view *view, uint32_t pid)
{
	struct gpu_rows rows;
	size_t cnt = 0;

	if (gpu_rows__collect(view, pid, &rows))
		return true;
	for (int i = 0; i < GPU_TABLE__COUNT; i++)
		cnt += rows.tables[i].cnt;
	gpu_rows__release(&rows);
	return cnt;
}

static bool has_rows_of_action(const struct gpu_view *view)
{
	bool found = has_gpu_rows(view, PROCESSES_ALL_MAIN);
	struct rec_target *targets = NULL;
	size_t cnt = 0;

	if (view->options->per_rank && gpu_rows__processes(view, &targets, &cnt))
		return true;
	for (size_t i = 0; i < cnt && !found; i++)
		found = has_gpu_rows(view, targets[i].pid);
	free(targets);
	return found;
}

static char *why_no_gpus(struct job *job, const struct report_options *options)
{
	struct gpu_view view;
	char *text = NULL;
	size_t cnt;

	if (gpu_view__open(&view, job, options))
		return NULL;
	gpu__processes(view.gpu, &cnt);
	if (!cnt)
		text = strdup(no_gpus);
	else if (options->action && !has_rows_of_action(&view) &&
		 asprintf(&text,
			  "No call and no work of a GPU was seen in an action named \"%s\". Names are matched exactly; "
			  "--by-action shows every action.",
			  options->action) < 0)
		text = NULL;
	gpu_view__close(&view);
	return text;
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	struct gpu_view view;
	char *why = why_no_gpus(job, options);
	int err = gpu_view__open(&view, job, options);

	if (err)
		goto out;
	if (why)
		text__paragraph(out, "%s", why);
	else if (options->per_rank)
		err = print_gpu_processes(&view, out);
	else
		err = print_process_gpus(&view, PROCESSES_ALL_MAIN, out);
	err = err ?: print_usage(&view, out);
	gpu_view__close(&view);
out:
	free(why);
	return common__end(err, job, out);
}

const struct report_ops report_gpu = {
	.name = "gpu",
	.sort_keys = gpu_rows__sort_keys,
	.by_action = true,
	.text = print_text,
	.json = print_json,
	.why_empty = why_no_gpus,
};
