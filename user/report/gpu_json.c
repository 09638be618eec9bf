// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The GPU report as JSON. */
#include <inttypes.h>
#include <stdlib.h>

#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/gpu.h"
#include "user/report/print/shape.h"

/* ---- processes ---- */

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

/* ---- GPUs ---- */

static json_t *json_idle(const uint64_t idle_ns[GPU_IDLE__COUNT])
{
	json_t *json = json_object();

	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		common__json_set(&json, gpu_idle__name(idle), json_real(idle_ns[idle] / 1e3));
	return json;
}

json_t *gpu_line__json_idle(const struct gpu_line *line, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t idle_ns[GPU_IDLE__COUNT];

	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		idle_ns[idle] = gpu_spans__within(&line->idle[idle], from_ns, to_ns);
	return json_idle(idle_ns);
}

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

/* ---- steps ---- */

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

/* ---- together ---- */

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

int report_gpu__json(struct job *job, const struct report_options *options, FILE *out)
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
