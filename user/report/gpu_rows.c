// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/gpu_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/gpu/gpu_time.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/model/processes.h"
#include "user/report/common.h"

/* ---- order ---- */

enum { BY_TOTAL, BY_COUNT, BY_AVG, BY_MAX, BY_BYTES, BY_NAME };
const char *const gpu_rows__sort_keys[] = {"total", "count", "avg", "max", "bytes", "name", NULL};

struct gpu_row_order {
	struct job *job;
	size_t key; /* index into gpu_rows__sort_keys */
};

#define DIFFER(field)                                       \
	do {                                                \
		if (x->field != y->field)                   \
			return COMPARE(x->field, y->field); \
	} while (0)

static int compare_key(const void *a, const void *b)
{
	const struct gpu_key *x = &((const struct gpu_row *)a)->key, *y = &((const struct gpu_row *)b)->key;

	DIFFER(name);
	DIFFER(api);
	DIFFER(direction);
	DIFFER(op);
	DIFFER(action);
	DIFFER(object);
	return COMPARE(x->dtype, y->dtype);
}

static double value_of(const struct gpu_row *row, size_t key)
{
	switch (key) {
	case BY_COUNT:
		return row->count;
	case BY_AVG:
		return row->timed ? (double)row->total_ns / row->timed : 0;
	case BY_MAX:
		return row->max_ns;
	case BY_BYTES:
		return row->bytes;
	}
	return row->total_ns;
}

static int compare_row(const void *a, const void *b, void *ctx)
{
	const struct gpu_row_order *order = ctx;
	const struct gpu_row *x = a, *y = b;
	double x_value = value_of(x, order->key), y_value = value_of(y, order->key);
	const char *x_name = x->key.name ? job__name(order->job, x->key.name) : gpu_api__name(x->key.api);
	const char *y_name = y->key.name ? job__name(order->job, y->key.name) : gpu_api__name(y->key.api);

	if (x_value != y_value)
		return COMPARE(y_value, x_value);
	if (x->count != y->count)
		return COMPARE(y->count, x->count);
	return strcmp(x_name ?: "", y_name ?: "") ?: compare_key(a, b);
}

struct named_row {
	struct gpu_row row;
	char *name; /* owned */
};

static int compare_named(const void *a, const void *b)
{
	const struct named_row *x = a, *y = b;

	return strcmp(x->name, y->name) ?: compare_key(&x->row, &y->row);
}

/* By the names that are shown. 0 or -ENOMEM. */
static int sort_by_name(const struct gpu_view *view, enum gpu_table_id id, struct gpu_row *rows, size_t cnt)
{
	struct named_row *named = calloc(cnt + 1, sizeof(*named));
	int err = named ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++) {
		named[i].row = rows[i];
		named[i].name = gpu_row__name(view, id, &rows[i]);
		err = named[i].name ? 0 : -ENOMEM;
	}
	if (!err && cnt)
		qsort(named, cnt, sizeof(*named), compare_named);
	for (size_t i = 0; named && i < cnt; i++) {
		if (!err)
			rows[i] = named[i].row;
		free(named[i].name);
	}
	free(named);
	return err;
}

/* ---- tables ---- */

static void add_gpu_row(struct gpu_row *sum, const struct gpu_row *row)
{
	if (row->timed && (!sum->timed || row->min_ns < sum->min_ns))
		sum->min_ns = row->min_ns;
	if (row->max_ns > sum->max_ns)
		sum->max_ns = row->max_ns;
	sum->count = saturating__add(sum->count, row->count);
	sum->bytes = saturating__add(sum->bytes, row->bytes);
	sum->total_ns = saturating__add(sum->total_ns, row->total_ns);
	sum->timed = saturating__add(sum->timed, row->timed);
	sum->device_ns = saturating__add(sum->device_ns, row->device_ns);
	sum->device_cnt = saturating__add(sum->device_cnt, row->device_cnt);
}

/*
 * Returns the bytes of an operator's name without its overload. A node has no overload, and no dot
 * after a "::".
 */
static size_t plain_length(const char *name)
{
	const char *rest = strstr(name, "::");

	return rest ? rest - name + strcspn(rest, ".") : strlen(name);
}

/* Gives all overloads of an operator the id of the first one. 0 or -ENOMEM. */
static int drop_overloads(struct job *job, struct gpu_row *rows, size_t cnt)
{
	struct map names = {0};
	struct array ids = {0};
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const char *name = rows[i].key.op ? job__name(job, rows[i].key.op) : NULL;
		char *plain = name ? strndup(name, plain_length(name)) : NULL;
		uint32_t number;

		if (!name)
			continue;
		if (!plain || map__add_text(&names, plain, &number) || array__grow(&ids, number + 1, sizeof(uint64_t)))
			err = -ENOMEM;
		else if (((uint64_t *)ids.items)[number])
			rows[i].key.op = ((uint64_t *)ids.items)[number];
		else
			((uint64_t *)ids.items)[number] = rows[i].key.op;
		free(plain);
	}
	map__free_texts(&names);
	free(ids.items);
	return err;
}

/* Merges rows of equal key into one. Returns the number of rows left. */
static size_t merge_equal_keys(struct gpu_row *rows, size_t cnt)
{
	size_t unique_cnt = 0;

	if (cnt)
		qsort(rows, cnt, sizeof(*rows), compare_key);
	for (size_t i = 0; i < cnt; i++) {
		if (unique_cnt && !compare_key(&rows[unique_cnt - 1], &rows[i]))
			add_gpu_row(&rows[unique_cnt - 1], &rows[i]);
		else
			rows[unique_cnt++] = rows[i];
	}
	return unique_cnt;
}

/* Merges rows of equal key into one, and sorts. Takes the array over. 0 or -ENOMEM. */
static int finish_table(struct gpu_table *table, enum gpu_table_id id, struct array *array, const struct gpu_view *view)
{
	struct gpu_row_order order = {.job = view->job};
	struct gpu_row *rows = array->items;
	size_t unique_cnt = merge_equal_keys(rows, array->cnt);
	int err = 0;

	if (view->options->by_op && !view->options->overloads) {
		err = drop_overloads(view->job, rows, unique_cnt);
		unique_cnt = merge_equal_keys(rows, unique_cnt);
	}
	for (size_t i = 0; i < unique_cnt; i++)
		add_gpu_row(&table->sum, &rows[i]);
	while (view->options->sort && strcmp(view->options->sort, gpu_rows__sort_keys[order.key]))
		order.key++;
	if (order.key == BY_NAME)
		err = sort_by_name(view, id, rows, unique_cnt) ?: err;
	else if (unique_cnt)
		qsort_r(rows, unique_cnt, sizeof(*rows), compare_row, &order);
	table->rows = rows;
	table->cnt = unique_cnt;
	return err;
}

/* ---- which rows ---- */

/* Collects the rows of the tables before they are merged. */
struct row_gathering {
	const struct gpu_view *view;
	struct array tables[GPU_TABLE__COUNT]; /* struct gpu_row */
	uint64_t elsewhere;
	int err;
};

static bool is_wanted(const struct row_gathering *gather, uint64_t action)
{
	const char *wanted = gather->view->options->action, *name;

	if (!wanted)
		return true;
	name = action ? job__name(gather->view->job, action) : NULL;
	return name && !strcmp(name, wanted);
}

static void gather_row(struct row_gathering *gather, enum gpu_table_id table, const struct gpu_row *row)
{
	struct gpu_row *new = gather->err ? NULL : array__add(&gather->tables[table], sizeof(*new));

	if (!new) {
		gather->err = -ENOMEM;
		return;
	}
	*new = *row;
	if (!gather->view->options->by_op)
		new->key.op = 0;
	if (!gather->view->options->by_action)
		new->key.action = 0;
}

static bool is_watched_process(const struct row_gathering *gather, uint32_t pid)
{
	const struct gpu_process *process = gpu__process(gather->view->gpu, pid);

	return process && process->activities;
}

/* Adds an activity of the GPU. */
static void gather_activity(struct row_gathering *gather, const struct gpu_act *act)
{
	const struct gpu_call *call = gpu__call_of(gather->view->gpu, act);
	struct gpu_row row = {.count = 1, .bytes = act->bytes};

	if (gather->view->options->action && !call)
		gather->elsewhere++;
	if (!is_wanted(gather, call ? call->action : 0))
		return;
	row.key.op = call ? call->op : 0;
	row.key.action = call ? call->action : 0;
	if (act->start_ns) {
		row.timed = 1;
		row.total_ns = row.min_ns = row.max_ns = act->duration_ns;
	}
	switch (act->kind) {
	case GPU_ACTIVITY_COPY:
		row.key.direction = act->direction;
		gather_row(gather, GPU_TABLE_COPIES, &row);
		break;
	case GPU_ACTIVITY_SET:
		gather_row(gather, GPU_TABLE_SETS, &row);
		break;
	case GPU_ACTIVITY_KERNEL:
		row.key.name = act->name;
		row.bytes = 0;
		gather_row(gather, GPU_TABLE_KERNELS, &row);
		break;
	case GPU_ACTIVITY_GRAPH:
		row.key.api = GPU_API_cudaGraphLaunch;
		row.bytes = 0;
		gather_row(gather, GPU_TABLE_KERNELS, &row);
		break;
	}
}

/* Adds the launches and copies of a process whose GPU activities are unknown. */
static void gather_asked(struct row_gathering *gather, const struct gpu_calls *calls)
{
	struct gpu_row row = {.key = {.op = calls->key.op, .action = calls->key.action}, .count = calls->val.calls};

	switch (gpu_api__class(calls->key.api)) {
	case GPU_LAUNCH:
		row.key.name = calls->key.object;
		gather_row(gather, GPU_TABLE_KERNELS, &row);
		break;
	case GPU_GRAPH:
		row.key.api = GPU_API_cudaGraphLaunch;
		gather_row(gather, GPU_TABLE_KERNELS, &row);
		break;
	case GPU_COPY:
		row.key.direction = calls->key.direction;
		row.bytes = calls->val.bytes;
		gather_row(gather, GPU_TABLE_COPIES, &row);
		break;
	case GPU_SET:
		row.bytes = calls->val.bytes;
		gather_row(gather, GPU_TABLE_SETS, &row);
		break;
	default:
		break;
	}
}

static void gather_calls(struct row_gathering *gather, const struct gpu_calls *calls)
{
	enum gpu_class class = gpu_api__class(calls->key.api);
	struct gpu_row row = {.key = {.op = calls->key.op, .action = calls->key.action, .api = calls->key.api},
			      .count = calls->val.calls,
			      .timed = calls->val.total_ns ? calls->val.calls : 0, /* else no end was seen */
			      .bytes = calls->val.bytes,
			      .total_ns = calls->val.total_ns,
			      .max_ns = calls->val.max_ns};

	if (!calls->val.calls || !is_wanted(gather, calls->key.action))
		return;
	gather_row(gather, GPU_TABLE_APIS, &row);
	if (class == GPU_ALLOC || class == GPU_FREE || class == GPU_HOST_ALLOC)
		gather_row(gather, GPU_TABLE_MEMORY, &row);
	if (class == GPU_COMM) {
		row.key.object = calls->key.object;
		row.key.dtype = calls->key.dtype;
		gather_row(gather, GPU_TABLE_COLLECTIVES, &row);
	}
	if (!is_watched_process(gather, calls->key.pid))
		gather_asked(gather, calls);
}

/* Adds the kernels of a collective to its row. The call itself is counted already. */
static void gather_comm(struct row_gathering *gather, const struct gpu_call *call)
{
	struct gpu_row row = {.key = {.op = call->op,
				      .action = call->action,
				      .api = call->api,
				      .object = call->object,
				      .dtype = call->dtype},
			      .device_ns = call->device_ns,
			      .device_cnt = call->activities};

	if (gpu_api__class(call->api) == GPU_COMM && call->activities && is_wanted(gather, call->action))
		gather_row(gather, GPU_TABLE_COLLECTIVES, &row);
}

static void gather_lines(const struct gpu_view *view, uint32_t pid, struct gpu_rows *out)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_line *line = &lines[i];

		if (!processes__in_scope(view->job, line->pid, pid))
			continue;
		out->work_ns = saturating__add(out->work_ns, gpu_spans__total(&line->work));
		out->watched_ns = saturating__add(out->watched_ns, line->watched_ns);
		out->compute_ns = saturating__add(out->compute_ns, gpu_spans__total(&line->compute));
		out->comm_ns = saturating__add(out->comm_ns, gpu_spans__total(&line->comm));
		out->overlap_ns = saturating__add(out->overlap_ns, gpu_line__overlap(line, 0, UINT64_MAX));
		for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
			out->idle_ns[idle] = saturating__add(out->idle_ns[idle], gpu_spans__total(&line->idle[idle]));
	}
}

static void gather_all(struct row_gathering *gather, uint32_t pid)
{
	const struct gpu_view *view = gather->view;
	size_t sum_cnt, act_cnt, call_cnt;
	const struct gpu_calls *totals = gpu__totals(view->gpu, &sum_cnt);
	const struct gpu_act *acts = gpu__activities(view->gpu, &act_cnt);
	const struct gpu_call *calls = gpu__calls(view->gpu, &call_cnt);

	for (size_t i = 0; i < sum_cnt; i++)
		if (processes__in_scope(view->job, totals[i].key.pid, pid))
			gather_calls(gather, &totals[i]);
	for (size_t i = 0; i < act_cnt; i++)
		if (gpu_act__is_work(&acts[i]) && processes__in_scope(view->job, acts[i].pid, pid))
			gather_activity(gather, &acts[i]);
	for (size_t i = 0; i < call_cnt; i++)
		if (processes__in_scope(view->job, calls[i].pid, pid))
			gather_comm(gather, &calls[i]);
}

int gpu_rows__collect(const struct gpu_view *view, uint32_t pid, struct gpu_rows *out)
{
	struct row_gathering gather = {.view = view};
	size_t cnt;
	int err = 0;
	const struct gpu_process *processes = gpu__processes(view->gpu, &cnt);

	*out = (struct gpu_rows){.pid = pid};
	for (size_t i = 0; i < cnt; i++) {
		if (!processes__in_scope(view->job, processes[i].pid, pid))
			continue;
		out->process_cnt++;
		if (processes[i].tier > out->tier)
			out->tier = processes[i].tier;
	}
	gather_all(&gather, pid);
	for (int i = 0; i < GPU_TABLE__COUNT; i++)
		err |= finish_table(&out->tables[i], i, &gather.tables[i], view);
	out->elsewhere = gather.elsewhere;
	gather_lines(view, pid, out);
	if (gather.err || err) {
		gpu_rows__release(out);
		return -ENOMEM;
	}
	return 0;
}

void gpu_rows__release(struct gpu_rows *rows)
{
	for (int i = 0; i < GPU_TABLE__COUNT; i++)
		free(rows->tables[i].rows);
	*rows = (struct gpu_rows){0};
}

int gpu_rows__processes(const struct gpu_view *view, struct rec_target **out, size_t *cnt)
{
	size_t process_cnt;
	const struct gpu_process *processes = gpu__processes(view->gpu, &process_cnt);

	return common__processes(view->job, processes, process_cnt, sizeof(*processes),
				 offsetof(struct gpu_process, pid), out, cnt);
}

/* ---- the view ---- */

int gpu_view__open(struct gpu_view *view, struct job *job, const struct report_options *options)
{
	*view = (struct gpu_view){.job = job, .options = options, .gpu = job__gpu(job)};
	view->steps = steps__new(job);
	view->time = view->steps ? gpu_time__new(job, view->steps) : NULL;
	if (view->gpu && view->time)
		return 0;
	gpu_view__close(view);
	return -ENOMEM;
}

void gpu_view__close(struct gpu_view *view)
{
	gpu_time__free(view->time);
	steps__free(view->steps);
	*view = (struct gpu_view){0};
}

const struct rec_gpu_device *gpu_view__device(const struct gpu_view *view, uint32_t pid, uint32_t device)
{
	size_t cnt;
	const struct rec_gpu_device *devices = gpu__devices(view->gpu, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (devices[i].pid == pid && devices[i].device == device)
			return &devices[i];
	return NULL;
}

/* ---- names ---- */

char *gpu_row__op_name(const struct gpu_view *view, const struct gpu_row *row)
{
	const char *name = job__name_or_lost(view->job, row->key.op);

	return name ? strndup(name, view->options->overloads ? strlen(name) : plain_length(name)) : NULL;
}

const char *gpu_row__dtype(unsigned int dtype)
{
	/* nccl.h */
	static const char *const names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
					    "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};

	return dtype < sizeof(names) / sizeof(*names) ? names[dtype] : "unknown";
}

/* ---- usage, steps ---- */

static void add_reading(double *sum, uint64_t *cnt, uint32_t value, double unit)
{
	if (value == GPU_UNKNOWN)
		return;
	*sum += value * unit;
	(*cnt)++;
}

static double mean_or_unknown(double sum, uint64_t cnt)
{
	return cnt ? sum / cnt : -1;
}

/* usages: readings of one device. */
static struct gpu_usage sum_usage(const struct rec_gpu_usage *usages, size_t cnt)
{
	const struct rec_gpu_usage *last = &usages[cnt - 1];
	struct gpu_usage sum = {
		.device = last->device, .name = last->name, .samples = cnt, .memory_bytes = last->memory_bytes};
	uint64_t busy = 0, memory = 0, power = 0, temperature = 0, clock = 0;

	for (size_t i = 0; i < cnt; i++) {
		add_reading(&sum.busy_percent, &busy, usages[i].busy_percent, 1);
		add_reading(&sum.memory_busy_percent, &memory, usages[i].memory_busy_percent, 1);
		add_reading(&sum.power_w, &power, usages[i].power_mw, 1e-3);
		add_reading(&sum.temperature_c, &temperature, usages[i].temperature_c, 1);
		add_reading(&sum.sm_mhz, &clock, usages[i].sm_mhz, 1);
		if (usages[i].memory_used_bytes > sum.memory_used_bytes)
			sum.memory_used_bytes = usages[i].memory_used_bytes;
	}
	sum.busy_percent = mean_or_unknown(sum.busy_percent, busy);
	sum.memory_busy_percent = mean_or_unknown(sum.memory_busy_percent, memory);
	sum.power_w = mean_or_unknown(sum.power_w, power);
	sum.temperature_c = mean_or_unknown(sum.temperature_c, temperature);
	sum.sm_mhz = mean_or_unknown(sum.sm_mhz, clock);
	return sum;
}

int gpu_usage__list(const struct gpu *gpu, struct gpu_usage **out, size_t *cnt)
{
	size_t all;
	const struct rec_gpu_usage *usages = gpu__usages(gpu, &all);

	*cnt = 0;
	*out = calloc(all + 1, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	for (size_t from = 0, to; from < all; from = to) {
		for (to = from; to < all && usages[to].device == usages[from].device; to++)
			;
		(*out)[(*cnt)++] = sum_usage(&usages[from], to - from);
	}
	return 0;
}

static void add_to_per_step(struct gpu_per_step *sum, const struct gpu_step *step)
{
	sum->steps++;
	sum->launches += step->launches;
	sum->copies += step->copies;
	sum->copied_bytes += step->copied_bytes;
	sum->api_ns += step->api_ns;
	sum->sync_ns += step->sync_ns;
}

struct gpu_per_step gpu_per_step__of(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(view->steps, &cnt);
	struct gpu_per_step sum = {0};

	for (size_t t = 0; t < cnt; t++) {
		size_t at = 0;

		for (size_t i = 0; processes__in_scope(view->job, tracks[t].pid, pid) && i < tracks[t].step_cnt; i++) {
			struct gpu_step step;

			if (gpu_step__calls(view->gpu, &tracks[t], &tracks[t].steps[i], &at, &step))
				add_to_per_step(&sum, &step);
		}
	}
	if (!sum.steps)
		return sum;
	sum.launches /= sum.steps;
	sum.copies /= sum.steps;
	sum.copied_bytes /= sum.steps;
	sum.api_ns /= sum.steps;
	sum.sync_ns /= sum.steps;
	return sum;
}
