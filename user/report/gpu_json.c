// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The GPU report as JSON. */
#include <inttypes.h>
#include <stdlib.h>

#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/gpu.h"
#include "user/report/gpu_rows.h"

static json_t *json_us(bool known, uint64_t ns)
{
	return known ? json_real(ns / 1e3) : json_null();
}

static json_t *json_known(double value)
{
	return value >= 0 ? json_real(value) : json_null();
}

/* null: none, not known, or not asked. */
static json_t *json_name(struct job *job, uint64_t name)
{
	return name ? json_string(job__name_or_lost(job, name) ?: "") : json_null();
}

/* A full integer may be more than JSON's. */
static json_int_t integer(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

/* ---- rows ---- */

/* Adds where a row is from. NULL stays NULL. */
static json_t *with_origin(const struct gpu_view *view, const struct gpu_row *row, json_t *json)
{
	char *op = row->key.op ? gpu_row__op_name(view, row) : NULL;
	int failed = json_object_set_new(json, "op", row->key.op ? json_string(op ?: "") : json_null());

	free(op);
	failed |= json_object_set_new(json, "action", json_name(view->job, row->key.action));
	return common__json_unless_failed(json, failed);
}

static json_t *json_times(json_t *json, const struct gpu_row *row)
{
	int failed = json_object_set_new(json, "timed", json_integer(integer(row->timed)));

	failed |= json_object_set_new(json, "total_us", json_us(row->timed, row->total_ns));
	failed |= json_object_set_new(json, "avg_us",
				      row->timed ? json_real(row->total_ns / 1e3 / row->timed) : json_null());
	failed |= json_object_set_new(json, "min_us", json_us(row->timed, row->min_ns));
	failed |= json_object_set_new(json, "max_us", json_us(row->timed, row->max_ns));
	return common__json_unless_failed(json, failed);
}

static json_t *json_kernel(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_row *row)
{
	char *name = gpu_row__kernel_name(view->job, row);
	json_t *json =
		json_pack("{s:s?, s:o, s:I, s:o}", "name", name, "mangled", json_name(view->job, row->key.name),
			  "count", integer(row->count), "busy_percent",
			  row->timed && rows->work_ns ? json_real(100.0 * row->total_ns / rows->work_ns) : json_null());

	free(name);
	return with_origin(view, row, json_times(json, row));
}

static json_t *json_copied(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_row *row)
{
	/* bytes of those without a time would make it too fast */
	bool has_speed = row->timed == row->count && row->total_ns;
	json_t *json = json_pack("{s:o, s:I, s:I, s:o}", "direction",
				 common__json_text(gpu_direction__name(row->key.direction)), "count",
				 integer(row->count), "bytes", integer(row->bytes), "gb_per_s",
				 has_speed ? json_real((double)row->bytes / row->total_ns) : json_null());

	(void)rows;
	return with_origin(view, row, json_times(json, row));
}

static json_t *json_call(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_row *row)
{
	json_t *json = json_pack("{s:s, s:I, s:o, s:o, s:I}", "name", gpu_api__name(row->key.api), "count",
				 integer(row->count), "total_s",
				 row->timed ? json_real(row->total_ns / 1e9) : json_null(), "max_s",
				 row->timed ? json_real(row->max_ns / 1e9) : json_null(), "bytes", integer(row->bytes));

	(void)rows;
	return with_origin(view, row, json);
}

static json_t *json_collective(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_row *row)
{
	json_t *json = json_call(view, rows, row);
	char communicator[24];
	int failed;

	snprintf(communicator, sizeof(communicator), "%#" PRIx64, row->key.object);
	failed = json_object_set_new(json, "communicator", common__json_text(row->key.object ? communicator : NULL));
	failed |= json_object_set_new(json, "dtype",
				      common__json_text(row->key.object ? gpu_row__dtype(row->key.dtype) : NULL));
	failed |= json_object_set_new(json, "device_us", json_us(row->device_cnt, row->device_ns));
	return common__json_unless_failed(json, failed);
}

typedef json_t *(*json_row_fn)(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_row *row);

static json_t *json_table(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_table *table,
			  json_row_fn json_row)
{
	size_t limit = view->options->limit > 0 ? (size_t)view->options->limit : SIZE_MAX;
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < table->cnt && i < limit; i++)
		failed |= json_array_append_new(list, json_row(view, rows, &table->rows[i]));
	return common__json_unless_failed(list, failed);
}

/* ---- processes ---- */

static json_t *json_tiers(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct gpu_process *processes = gpu__processes(view->gpu, &cnt);
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_process *p = &processes[i];

		if (!processes__in_scope(view->job, p->pid, pid))
			continue;
		failed |= json_array_append_new(
			list,
			json_pack("{s:I, s:i, s:o, s:o, s:f, s:I, s:I, s:I, s:I}", "pid", (json_int_t)p->pid, "tier",
				  (int)p->tier, "why", common__json_text(p->why), "cupti_version",
				  p->cupti_version ? json_integer(p->cupti_version) : json_null(), "cupti_s",
				  p->cupti_ns / 1e9, "lost", integer(p->lost), "activities", integer(p->activities),
				  "unjoined", integer(p->unjoined), "unasked", integer(p->unasked)));
	}
	return common__json_unless_failed(list, failed);
}

static json_t *json_windows(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct rec_gpu_window *windows = gpu__windows(view->gpu, &cnt);
	double from_ns = job__window(view->job)->start_ns;
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_gpu_window *w = &windows[i];

		if (!processes__in_scope(view->job, w->pid, pid))
			continue;
		failed |= json_array_append_new(
			list, json_pack("{s:I, s:I, s:f, s:f, s:s, s:o}", "pid", (json_int_t)w->pid, "index",
					(json_int_t)w->index, "start_s", (w->start_ns - from_ns) / 1e9, "duration_s",
					(w->end_ns - w->start_ns) / 1e9, "end", gpu_window__end_name(w->end), "error",
					w->error ? json_integer(w->error) : json_null()));
	}
	return common__json_unless_failed(list, failed);
}

/* ---- GPUs ---- */

static json_t *json_idle(const uint64_t *idle_ns)
{
	json_t *json = json_object();
	int failed = 0;

	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		failed |= json_object_set_new(json, gpu_idle__name(idle), json_real(idle_ns[idle] / 1e3));
	return common__json_unless_failed(json, failed);
}

/* Of one GPU, between two instants. */
static json_t *json_idle_within(const struct gpu_line *line, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t idle_ns[GPU_IDLE__COUNT];

	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		idle_ns[idle] = gpu_spans__within(&line->idle[idle], from_ns, to_ns);
	return json_idle(idle_ns);
}

static json_t *json_line(const struct gpu_line *line)
{
	uint64_t busy_ns = gpu_spans__total(&line->work), comm_ns = gpu_spans__total(&line->comm);
	uint64_t overlap_ns = gpu_line__overlap(line, 0, UINT64_MAX);

	return json_pack(
		"{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:I}", "pid", (json_int_t)line->pid, "device",
		(json_int_t)line->device, "watched_us", line->watched_ns / 1e3, "busy_us", busy_ns / 1e3, "kernel_us",
		gpu_spans__total(&line->kernels) / 1e3, "compute_us", gpu_spans__total(&line->compute) / 1e3, "comm_us",
		comm_ns / 1e3, "overlap_us", overlap_ns / 1e3, "overlap_percent",
		comm_ns ? json_real(100.0 * overlap_ns / comm_ns) : json_null(), "idle_percent",
		line->watched_ns ? json_real(100.0 * (line->watched_ns - busy_ns) / line->watched_ns) : json_null(),
		"idle_us", json_idle_within(line, 0, UINT64_MAX), "untimed", integer(line->untimed));
}

static json_t *json_lines(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < cnt; i++)
		if (processes__in_scope(view->job, lines[i].pid, pid))
			failed |= json_array_append_new(list, json_line(&lines[i]));
	return common__json_unless_failed(list, failed);
}

static json_t *json_streams(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct gpu_stream *streams = gpu_time__streams(view->time, &cnt);
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_stream *s = &streams[i];

		if (!processes__in_scope(view->job, s->pid, pid))
			continue;
		failed |= json_array_append_new(
			list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "pid", (json_int_t)s->pid,
					"device", (json_int_t)s->device, "context", (json_int_t)s->context, "stream",
					(json_int_t)s->stream, "count", integer(s->activities), "busy_us",
					s->busy_ns / 1e3, "host_wait_us", s->host_wait_ns / 1e3, "kernel_wait_us",
					s->kernel_wait_ns / 1e3, "other_us", s->other_ns / 1e3));
	}
	return common__json_unless_failed(list, failed);
}

static json_t *json_devices(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt;
	const struct rec_gpu_device *devices = gpu__devices(view->gpu, &cnt);
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_gpu_device *d = &devices[i];
		char compute[16];

		if (!processes__in_scope(view->job, d->pid, pid))
			continue;
		snprintf(compute, sizeof(compute), "%u.%u", d->compute >> 16, d->compute & 0xffff);
		failed |= json_array_append_new(
			list,
			json_pack("{s:I, s:I, s:s, s:I, s:I, s:s}", "pid", (json_int_t)d->pid, "device",
				  (json_int_t)d->device, "name", d->name, "memory_bytes", integer(d->memory_bytes),
				  "multiprocessors", (json_int_t)d->multiprocessors, "compute_capability", compute));
	}
	return common__json_unless_failed(list, failed);
}

static json_t *json_usage(const struct gpu_view *view)
{
	json_t *list = json_array();
	struct gpu_usage *usages;
	size_t cnt;
	int failed = gpu_usage__list(view->gpu, &usages, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_usage *u = &usages[i];

		failed |= json_array_append_new(
			list, json_pack("{s:I, s:s, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "device",
					(json_int_t)u->device, "name", u->name, "samples", integer(u->samples),
					"busy_percent", json_known(u->busy_percent), "memory_busy_percent",
					json_known(u->memory_busy_percent), "memory_used_bytes",
					integer(u->memory_used_bytes), "memory_bytes", integer(u->memory_bytes),
					"power_w", json_known(u->power_w), "temperature_c",
					json_known(u->temperature_c), "sm_mhz", json_known(u->sm_mhz)));
	}
	free(usages);
	return common__json_unless_failed(list, failed);
}

/* ---- steps ---- */

static json_t *json_step(const struct gpu_line *line, const struct step *step, uint64_t watched_ns)
{
	uint64_t from = step->start_ns, to = step->end_ns, busy_ns = gpu_spans__within(&line->work, from, to);

	return json_pack(
		"{s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:f, s:f, s:f}", "pid", (json_int_t)line->pid, "device",
		(json_int_t)line->device, "index", integer(step->index), "duration_us", step__ns(step) / 1e3,
		"watched_us", watched_ns / 1e3, "busy_us", busy_ns / 1e3, "idle_us", json_idle_within(line, from, to),
		"compute_us", gpu_spans__within(&line->compute, from, to) / 1e3, "comm_us",
		gpu_spans__within(&line->comm, from, to) / 1e3, "overlap_us", gpu_line__overlap(line, from, to) / 1e3);
}

/* Steps that lie, all or in part, in a window of CUPTI. */
static json_t *json_steps(const struct gpu_view *view, uint32_t pid)
{
	size_t line_cnt, track_cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &line_cnt);
	const struct step_track *tracks = steps__tracks(view->steps, &track_cnt);
	json_t *list = json_array();
	int failed = 0;

	for (size_t t = 0; t < track_cnt; t++) {
		for (size_t l = 0; l < line_cnt; l++) {
			if (lines[l].pid != tracks[t].pid || !processes__in_scope(view->job, tracks[t].pid, pid))
				continue;
			for (size_t s = 0; s < tracks[t].step_cnt; s++) {
				const struct step *step = &tracks[t].steps[s];
				uint64_t ns =
					gpu_time__watched(view->time, tracks[t].pid, step->start_ns, step->end_ns);

				if (ns)
					failed |= json_array_append_new(list, json_step(&lines[l], step, ns));
			}
		}
	}
	return common__json_unless_failed(list, failed);
}

static json_t *json_per_step(const struct gpu_view *view, uint32_t pid)
{
	struct gpu_per_step sum = gpu_per_step__of(view, pid);

	if (!sum.steps)
		return json_null();
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "steps", integer(sum.steps), "launches", sum.launches,
			 "copies", sum.copies, "copied_bytes", sum.copied_bytes, "api_s", sum.api_ns / 1e9, "sync_s",
			 sum.sync_ns / 1e9);
}

/* ---- together ---- */

/* Adds what is told of pid, or of all main processes. Not 0: no memory. */
static int add_scope(const struct gpu_view *view, uint32_t pid, json_t *object)
{
	struct gpu_rows rows;
	uint64_t idle_ns;
	int failed = gpu_rows__collect(view, pid, &rows);

	if (failed)
		return failed;
	idle_ns = rows.watched_ns - (rows.work_ns < rows.watched_ns ? rows.work_ns : rows.watched_ns);
	failed |= json_object_set_new(object, "tier", json_integer(rows.tier));
	failed |= json_object_set_new(object, "tiers", json_tiers(view, pid));
	failed |= json_object_set_new(object, "windows", json_windows(view, pid));
	failed |= json_object_set_new(object, "kernels", json_table(view, &rows, &rows.kernels, json_kernel));
	failed |= json_object_set_new(object, "copies", json_table(view, &rows, &rows.copies, json_copied));
	failed |= json_object_set_new(object, "sets", json_table(view, &rows, &rows.sets, json_copied));
	failed |= json_object_set_new(object, "apis", json_table(view, &rows, &rows.apis, json_call));
	failed |=
		json_object_set_new(object, "collectives", json_table(view, &rows, &rows.collectives, json_collective));
	failed |= json_object_set_new(object, "memory", json_table(view, &rows, &rows.memory, json_call));
	failed |= json_object_set_new(object, "idle_percent",
				      rows.watched_ns ? json_real(100.0 * idle_ns / rows.watched_ns) : json_null());
	failed |= json_object_set_new(object, "idle_us", rows.watched_ns ? json_idle(rows.idle_ns) : json_null());
	failed |= json_object_set_new(object, "overlap_percent",
				      rows.comm_ns ? json_real(100.0 * rows.overlap_ns / rows.comm_ns) : json_null());
	failed |= json_object_set_new(object, "action_unknown", json_integer(integer(rows.elsewhere)));
	failed |= json_object_set_new(object, "gpus", json_lines(view, pid));
	failed |= json_object_set_new(object, "streams", json_streams(view, pid));
	failed |= json_object_set_new(object, "devices", json_devices(view, pid));
	failed |= json_object_set_new(object, "per_step", json_per_step(view, pid));
	failed |= json_object_set_new(object, "steps", json_steps(view, pid));
	gpu_rows__release(&rows);
	return failed;
}

static json_t *json_processes(const struct gpu_view *view)
{
	json_t *list = json_array();
	struct rec_target *targets;
	size_t cnt;
	int failed = gpu_rows__processes(view->job, &targets, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		json_t *process = common__json_target(&targets[i]);

		failed |= process ? add_scope(view, targets[i].pid, process) : 1;
		failed |= json_array_append_new(list, process);
	}
	free(targets);
	return common__json_unless_failed(list, failed);
}

int report_gpu__json(struct job *job, const struct report_options *options, FILE *out)
{
	struct gpu_view view;
	json_t *object;
	int failed = gpu_view__open(&view, job, options);

	if (failed)
		return failed;
	object = common__json(job, "gpu");
	failed |= object ? add_scope(&view, PROCESSES_ALL_MAIN, object) : 1;
	failed |= json_object_set_new(object, "usage", json_usage(&view));
	if (options->per_rank)
		failed |= json_object_set_new(object, "processes", json_processes(&view));
	gpu_view__close(&view);
	return common__print_json(common__json_unless_failed(object, failed), out);
}
