// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A frame as JSON, on a line of its own, or as CSV. */
#include "user/top/json.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "user/lib/json.h"
#include "user/report/common.h"

static json_t *number_or_null(double value)
{
	return common__json_real(!isnan(value), value);
}

static json_t *json_top_row(const struct top_row *row, const struct top_view_info *info)
{
	json_t *object = json_object();
	int err = json_object_set_new(object, "name", json__string(row->name));

	for (int i = 0; i < info->column_cnt; i++)
		err |= json_object_set_new(object, info->columns[i].key, number_or_null(row->values[i]));
	return common__json_unless_failed(object, err);
}

static json_t *json_rows(const struct top_frame *frame, enum top_view view, size_t limit)
{
	size_t cnt;
	const struct top_row **rows = top_frame__sorted(frame, view, top_views[view].sort, "", &cnt);
	json_t *list = json_array();
	int err = rows ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < cnt && (!limit || i < limit); i++)
		err = json_array_append_new(list, json_top_row(rows[i], &top_views[view]));
	free(rows);
	return common__json_unless_failed(list, err);
}

static json_t *known(uint32_t value, double unit)
{
	return common__json_real(value != GPU_UNKNOWN, value / unit);
}

static json_t *json_gpus(const struct top_frame *frame)
{
	json_t *list = json_array();
	int err = 0;

	for (size_t i = 0; i < frame->gpu_cnt; i++) {
		const struct rec_gpu_usage *gpu = &frame->gpus[i];

		err |= json_array_append_new(
			list,
			json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "device", (int)gpu->device, "name",
				  common__json_text(gpu->name), "busy_percent", known(gpu->busy_percent, 1),
				  "memory_used_bytes",
				  gpu->memory_bytes ? common__json_integer(gpu->memory_used_bytes) : json_null(),
				  "memory_bytes",
				  gpu->memory_bytes ? common__json_integer(gpu->memory_bytes) : json_null(), "power_w",
				  known(gpu->power_mw, 1e3), "temperature_c", known(gpu->temperature_c, 1)));
	}
	return common__json_unless_failed(list, err);
}

static json_t *json_limits(const struct cgroup_limits *limits)
{
	bool memory = limits->memory_bytes;

	return json_pack("{s:o, s:o, s:o, s:o}", "memory_bytes",
			 memory ? common__json_integer(limits->memory_bytes) : json_null(), "memory_left_bytes",
			 memory ? common__json_integer(limits->memory_left_bytes) : json_null(), "cpus",
			 common__json_real(limits->cpus, limits->cpus), "processors",
			 limits->processors ? json_integer(limits->processors) : json_null());
}

int top_json__print(const struct top_frame *frame, enum top_view view, size_t limit, FILE *out)
{
	json_t *object = json_pack(
		"{s:s, s:f, s:f, s:o, s:I, s:I, s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:o, s:{s:o, s:f}, s:s, s:o, s:o}",
		"report", "top", "elapsed_s", frame->elapsed_s, "interval_s", frame->interval_s, "target",
		json__string(frame->target), "process_count", (json_int_t)frame->processes, "thread_count",
		(json_int_t)frame->threads, "cpu_percent", number_or_null(frame->cpu_percent), "rss_bytes",
		common__json_integer(frame->rss_bytes), "limits", json_limits(&frame->limits), "step_count",
		(json_int_t)frame->steps, "steps_per_s", number_or_null(frame->steps_per_s), "step_rule",
		frame->step_rule, "hits_per_s", number_or_null(frame->hits_per_s), "cost_percent",
		number_or_null(frame->cost_percent), "own", "cpu_percent", number_or_null(frame->own_percent), "rss_mb",
		frame->own_mb, "lost", frame->losses, "note", json__string(frame->note), "gpus", json_gpus(frame));
	int err = object ? 0 : -ENOMEM;

	for (int i = 0; i < TOP__VIEWS && !err; i++)
		if (view == TOP__VIEWS || view == (enum top_view)i)
			err = json_object_set_new(object, top_views[i].name, json_rows(frame, i, limit));
	if (!err)
		err = json__print(object, JSON_COMPACT | JSON_REAL_PRECISION(15), out);
	json_decref(object);
	fputc('\n', out);
	return err ? -ENOMEM : common__flush(out);
}

/* ---- CSV ---- */

/* Takes row over; NULL: no memory. Returns it behind the time of its frame; NULL: no memory. */
static json_t *timed_row(const struct top_frame *frame, json_t *row)
{
	json_t *timed = json_pack("{s:f}", "elapsed_s", frame->elapsed_s);
	int failed = json_object_update(timed, row);

	json_decref(row);
	return common__json_unless_failed(timed, failed);
}

static json_t *blank_top_row(const struct top_view_info *info)
{
	struct top_row row = {.name = ""};

	return json_top_row(&row, info);
}

int top_json__csv(const struct top_frame *frame, enum top_view view, size_t limit, struct csv *csv)
{
	json_t *rows = json_rows(frame, view, limit);
	int err = rows ? 0 : -ENOMEM;

	if (!err && !csv->columns)
		err = csv__heads(csv, timed_row(frame, blank_top_row(&top_views[view])));
	for (size_t i = 0; !err && i < json_array_size(rows); i++)
		err = csv__row(csv, timed_row(frame, json_incref(json_array_get(rows, i))));
	json_decref(rows);
	return err ?: common__flush(csv->out);
}
