// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The GPU report: from where its figures come, and so what is not known; kernels, copies, calls, collectives, memory;
 * what GPUs did and what they waited for. gpu_rows.c adds up, gpu_json.c is the same as JSON.
 */
#include "user/report/gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/gpu_rows.h"
#include "user/report/text.h"

#define DEFAULT_LIMIT 20

static size_t limit_of(const struct report_options *options)
{
	int limit = options->limit < 0 ? DEFAULT_LIMIT : options->limit;

	return limit ? (size_t)limit : SIZE_MAX;
}

static double ms(uint64_t ns)
{
	return ns / 1e6;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * part / whole : 0;
}

/* ---- tiers ---- */

/* Those that were not had, or were cut off. */
static void print_windows(const struct gpu *gpu, uint32_t pid, FILE *out)
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
		snprintf(windows, sizeof(windows), "windows of %.4g s", process->cupti_ns / 1e9);
	text__paragraph(out,
			"tier 2, what the GPU did, by CUPTI: %" PRIu64
			" pieces of work%s, in %s of the %.4g s recorded%s%s",
			process->activities, process->activities ? "" : " (was it idle?)", windows, recorded_ns / 1e9,
			process->why[0] ? "; " : "", process->why);
	print_windows(gpu, process->pid, out);
	if (process->lost)
		text__paragraph(out, "%" PRIu64 " pieces of work or calls were lost: figures are too low",
				process->lost);
	if (process->unjoined)
		text__paragraph(out,
				"operator and action are not known for %" PRIu64
				" (%.2f %%): the probes did not see the "
				"call that asked for them (nor did CUPTI for %" PRIu64 ")",
				process->unjoined, percent(process->unjoined, process->activities), process->unasked);
}

static struct rec_target target_of(const struct job *job, uint32_t pid)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (targets[i].pid == pid)
			return targets[i];
	return (struct rec_target){.pid = pid, .role = job__is_main(job, pid) ? ROLE_MAIN : ROLE_CHILD, .rank = -1};
}

static void print_tiers(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	size_t cnt;
	const struct gpu_process *processes = gpu__processes(view->gpu, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		struct rec_target target = target_of(view->job, processes[i].pid);

		if (!processes__in_scope(view->job, processes[i].pid, pid))
			continue;
		if (pid == PROCESSES_ALL_MAIN)
			common__process(&target, out);
		print_tier(view->gpu, &processes[i], job__window(view->job), out);
	}
	fputc('\n', out);
}

/* ---- tables ---- */

/* Dashes below each column. */
static void print_head(FILE *out, const char *title, const char *head, const char *dashes)
{
	fprintf(out, "%s\n%s\n%s\n", title, head, dashes);
}

/* A row's text at the end of its line, with the operator and the action that it is apart by. */
static void print_name(const struct gpu_view *view, const struct gpu_row *row, const char *name, FILE *out)
{
	char *op_text = row->key.op ? gpu_row__op_name(view, row) : strdup("(no operator)");
	const char *action = row->key.action ? job__name_or_lost(view->job, row->key.action) : "(no action)";
	bool by_op = view->options->by_op, by_action = view->options->by_action;

	text__line(out, "%s%s%s%s%s", name, by_op ? " < " : "", by_op && op_text ? op_text : "", by_action ? " < " : "",
		   by_action && action ? action : "");
	free(op_text);
}

static void print_left_out(const struct gpu_table *table, size_t limit, const char *what, FILE *out)
{
	if (table->cnt > limit)
		text__paragraph(out, "%zu more %s%s (--limit %zu)", table->cnt - limit, what,
				table->cnt - limit == 1 ? "" : "s", limit);
	fputc('\n', out);
}

/* "%11.3f", or "?" where nothing is known. */
static void print_value(FILE *out, int width, bool known, int digits, double value)
{
	if (known)
		fprintf(out, " %*.*f", width, digits, value);
	else
		fprintf(out, " %*s", width, "?");
}

static void print_times(FILE *out, const struct gpu_row *row)
{
	print_value(out, 12, row->timed, 3, ms(row->total_ns));
	print_value(out, 10, row->timed, 2, row->timed ? row->total_ns / 1e3 / row->timed : 0);
	print_value(out, 10, row->timed, 2, row->min_ns / 1e3);
	print_value(out, 10, row->timed, 2, row->max_ns / 1e3);
}

static void print_kernel(const struct gpu_view *view, const struct gpu_rows *rows, const struct gpu_row *row,
			 const char *name, FILE *out)
{
	fprintf(out, "%9" PRIu64, row->count);
	print_times(out, row);
	print_value(out, 7, row->timed && rows->work_ns, 2, percent(row->total_ns, rows->work_ns));
	fputs("  ", out);
	if (row == &rows->kernels.sum)
		fprintf(out, "%s\n", name);
	else
		print_name(view, row, name, out);
}

static int print_kernels(const struct gpu_view *view, const struct gpu_rows *rows, FILE *out)
{
	size_t limit = limit_of(view->options);

	if (!rows->kernels.cnt)
		return 0;
	print_head(out, "Kernels", "    count     total ms     avg us     min us     max us  % busy  kernel",
		   "--------- ------------ ---------- ---------- ---------- -------  ----------------");
	for (size_t i = 0; i < rows->kernels.cnt && i < limit; i++) {
		char *name = gpu_row__kernel_name(view->job, &rows->kernels.rows[i]);

		if (!name)
			return -ENOMEM;
		print_kernel(view, rows, &rows->kernels.rows[i], name, out);
		free(name);
	}
	print_kernel(view, rows, &rows->kernels.sum, "total", out);
	print_left_out(&rows->kernels, limit, "kernel", out);
	return 0;
}

static void print_copy_rows(const struct gpu_view *view, const struct gpu_table *table, const char *name, FILE *out)
{
	for (size_t i = 0; i < table->cnt; i++) {
		const struct gpu_row *row = &table->rows[i];

		fprintf(out, "%9" PRIu64 " %17" PRIu64, row->count, row->bytes);
		print_times(out, row);
		/* bytes of those without a time would make it too fast */
		print_value(out, 9, row->timed == row->count && row->total_ns, 2,
			    row->total_ns ? (double)row->bytes / row->total_ns : 0);
		fputs("  ", out);
		print_name(view, row,
			   name
				   ?: row->key.direction ? gpu_direction__name(row->key.direction)
							 : "copy",
			   out);
	}
}

static void print_copies(const struct gpu_view *view, const struct gpu_rows *rows, FILE *out)
{
	if (!rows->copies.cnt && !rows->sets.cnt)
		return;
	print_head(out, "Copies",
		   "    count             bytes     total ms     avg us     min us     max us      GB/s  direction",
		   "--------- ----------------- ------------ ---------- ---------- ---------- ---------  "
		   "----------------");
	print_copy_rows(view, &rows->copies, NULL, out);
	print_copy_rows(view, &rows->sets, "(memory set)", out);
	fputc('\n', out);
}

/* Calls on the CPU. */
static void print_call(const struct gpu_row *row, bool bytes, FILE *out)
{
	fprintf(out, "%9" PRIu64, row->count);
	print_value(out, 12, row->timed, 3, ms(row->total_ns));
	print_value(out, 10, row->timed, 2, row->timed ? row->total_ns / 1e3 / row->timed : 0);
	print_value(out, 12, row->timed, 2, row->max_ns / 1e3);
	if (bytes)
		fprintf(out, " %17" PRIu64, row->bytes);
	fputs("  ", out);
}

static void print_apis(const struct gpu_view *view, const struct gpu_rows *rows, FILE *out)
{
	size_t limit = limit_of(view->options);

	if (!rows->apis.cnt)
		return;
	print_head(out, "Calls on the CPU", "    count     total ms     avg us       max us  function",
		   "--------- ------------ ---------- ------------  ----------------");
	for (size_t i = 0; i < rows->apis.cnt && i < limit; i++) {
		print_call(&rows->apis.rows[i], false, out);
		print_name(view, &rows->apis.rows[i], gpu_api__name(rows->apis.rows[i].key.api), out);
	}
	print_call(&rows->apis.sum, false, out);
	fputs("total\n", out);
	print_left_out(&rows->apis, limit, "function", out);
}

static void print_collectives(const struct gpu_view *view, const struct gpu_rows *rows, FILE *out)
{
	size_t limit = limit_of(view->options);

	if (!rows->collectives.cnt)
		return;
	print_head(out, "Collectives of NCCL",
		   "    count     total ms     avg us       max us             bytes       GPU ms  type",
		   "--------- ------------ ---------- ------------ ----------------- ------------  ----------------");
	for (size_t i = 0; i < rows->collectives.cnt && i < limit; i++) {
		const struct gpu_row *row = &rows->collectives.rows[i];
		char name[96];

		if (row->key.object)
			snprintf(name, sizeof(name), "%s, %s, communicator %#" PRIx64, gpu_api__name(row->key.api),
				 gpu_row__dtype(row->key.dtype), row->key.object);
		else
			snprintf(name, sizeof(name), "%s", gpu_api__name(row->key.api));
		fprintf(out, "%9" PRIu64, row->count);
		print_value(out, 12, row->timed, 3, ms(row->total_ns));
		print_value(out, 10, row->timed, 2, row->timed ? row->total_ns / 1e3 / row->timed : 0);
		print_value(out, 12, row->timed, 2, row->max_ns / 1e3);
		fprintf(out, " %17" PRIu64, row->bytes);
		print_value(out, 12, row->device_cnt, 3, ms(row->device_ns));
		fputs("  ", out);
		print_name(view, row, name, out);
	}
	print_left_out(&rows->collectives, limit, "collective", out);
}

static void print_memory(const struct gpu_view *view, const struct gpu_rows *rows, FILE *out)
{
	size_t limit = limit_of(view->options);

	if (!rows->memory.cnt)
		return;
	print_head(out, "Memory, asked from CUDA (torch's own caches are above it)",
		   "    count     total ms     avg us       max us             bytes  function",
		   "--------- ------------ ---------- ------------ -----------------  ----------------");
	for (size_t i = 0; i < rows->memory.cnt && i < limit; i++) {
		print_call(&rows->memory.rows[i], true, out);
		print_name(view, &rows->memory.rows[i], gpu_api__name(rows->memory.rows[i].key.api), out);
	}
	print_left_out(&rows->memory, limit, "function", out);
}

/* ---- GPUs ---- */

static const struct rec_gpu_device *find_device(const struct gpu *gpu, uint32_t pid, uint32_t device)
{
	size_t cnt;
	const struct rec_gpu_device *devices = gpu__devices(gpu, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (devices[i].pid == pid && devices[i].device == device)
			return &devices[i];
	return NULL;
}

/* Of the steps that CUPTI watched as a whole. */
static void print_steps(const struct gpu_view *view, const struct gpu_line *line, FILE *out)
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

static void print_line(const struct gpu_view *view, const struct gpu_line *line, FILE *out)
{
	const struct rec_gpu_device *device = find_device(view->gpu, line->pid, line->device);
	uint64_t busy_ns = gpu_spans__total(&line->work), comm_ns = gpu_spans__total(&line->comm);

	text__paragraph(
		out,
		"GPU %u of pid %u%s%s: busy %.3f ms of the %.3f ms from its first work to its last (%.2f %%), %.3f "
		"ms of it in kernels",
		line->device, REC_PID(line->pid), device ? ", " : "", device ? device->name : "", ms(busy_ns),
		ms(line->watched_ns), percent(busy_ns, line->watched_ns), ms(gpu_spans__total(&line->kernels)));
	if (comm_ns)
		text__paragraph(out, "communication %.3f ms, %.2f %% of it while other kernels ran", ms(comm_ns),
				percent(gpu_line__overlap(line, 0, UINT64_MAX), comm_ns));
	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++) {
		uint64_t ns = gpu_spans__total(&line->idle[idle]);

		if (ns)
			text__paragraph(out, "idle, %s: %.3f ms (%.2f %%): %s", gpu_idle__name(idle), ms(ns),
					percent(ns, line->watched_ns), gpu_idle__meaning(idle));
	}
	print_steps(view, line, out);
	if (line->untimed)
		text__paragraph(out, "%" PRIu64 " pieces of work have no time and are left out", line->untimed);
}

/* Of several, a row each, so that they can be held against each other. */
static void print_line_row(const struct gpu_view *view, const struct gpu_line *line, FILE *out)
{
	const struct rec_gpu_device *device = find_device(view->gpu, line->pid, line->device);
	struct rec_target target = target_of(view->job, line->pid);
	uint64_t busy_ns = gpu_spans__total(&line->work), comm_ns = gpu_spans__total(&line->comm);

	if (target.rank >= 0)
		fprintf(out, "%4d", target.rank);
	else
		fputs("   -", out);
	fprintf(out, " %8u %3u %10.2f %6.2f %10.2f %9.2f", REC_PID(line->pid), line->device, ms(line->watched_ns),
		percent(busy_ns, line->watched_ns), ms(gpu_spans__total(&line->kernels)), ms(comm_ns));
	if (comm_ns)
		fprintf(out, " %9.2f", percent(gpu_line__overlap(line, 0, UINT64_MAX), comm_ns));
	else
		fprintf(out, " %9s", "-");
	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		fprintf(out, " %6.2f", percent(gpu_spans__total(&line->idle[idle]), line->watched_ns));
	text__line(out, "  %s", device ? device->name : "");
}

static void print_line_table(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);
	uint64_t untimed = 0;

	print_head(
		out, "GPUs, each from its first to its last work; idle time in % of that, by reason",
		"rank      pid GPU         ms % busy kernels ms   comm ms overlap %   host   data launch  other  name",
		"---- -------- --- ---------- ------ ---------- --------- --------- ------ ------ ------ ------  "
		"----------------");
	for (size_t i = 0; i < cnt; i++) {
		if (!processes__in_scope(view->job, lines[i].pid, pid))
			continue;
		print_line_row(view, &lines[i], out);
		untimed += lines[i].untimed;
	}
	for (int idle = 0; idle < GPU_IDLE__COUNT; idle++)
		text__paragraph(out, "%s: %s", gpu_idle__name(idle), gpu_idle__meaning(idle));
	if (untimed)
		text__paragraph(out, "%" PRIu64 " pieces of work have no time and are left out", untimed);
}

static size_t count_lines(const struct gpu_view *view, uint32_t pid)
{
	size_t cnt, in_scope = 0;
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);

	for (size_t i = 0; i < cnt; i++)
		in_scope += processes__in_scope(view->job, lines[i].pid, pid);
	return in_scope;
}

static void print_lines(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	struct gpu_per_step per_step = gpu_per_step__of(view, pid);
	size_t cnt, printed = count_lines(view, pid);
	const struct gpu_line *lines = gpu_time__lines(view->time, &cnt);

	if (printed > 1)
		print_line_table(view, pid, out);
	for (size_t i = 0; i < cnt && printed == 1; i++)
		if (processes__in_scope(view->job, lines[i].pid, pid))
			print_line(view, &lines[i], out);
	if (per_step.steps)
		text__paragraph(out,
				"calls of a step, on average of %" PRIu64
				": %.1f launches, %.1f copies of %.0f bytes in all, "
				"%.3f ms in calls and %.3f ms in waits for the GPU",
				per_step.steps, per_step.launches, per_step.copies, per_step.copied_bytes,
				per_step.api_ns / 1e6, per_step.sync_ns / 1e6);
	if (printed || per_step.steps)
		fputc('\n', out);
}

/* Of the host, whoever used them. */
static int print_usage(const struct gpu_view *view, FILE *out)
{
	struct gpu_usage *usages;
	size_t cnt;
	int err = gpu_usage__list(view->gpu, &usages, &cnt);

	if (cnt)
		print_head(out, "GPUs of this host, by NVML: means over the recording, of memory the most",
			   "  GPU  % busy  % memory   used MB     of MB power W   deg C    MHz  name",
			   "----- ------- --------- --------- --------- ------- ------- ------  ----------------");
	for (size_t i = 0; i < cnt && !err; i++) {
		const struct gpu_usage *usage = &usages[i];

		fprintf(out, "%5u", usage->device);
		print_value(out, 7, usage->busy_percent >= 0, 1, usage->busy_percent);
		print_value(out, 9, usage->memory_busy_percent >= 0, 1, usage->memory_busy_percent);
		print_value(out, 9, true, 0, usage->memory_used_bytes / 1e6);
		print_value(out, 9, true, 0, usage->memory_bytes / 1e6);
		print_value(out, 7, usage->power_w >= 0, 1, usage->power_w);
		print_value(out, 7, usage->temperature_c >= 0, 0, usage->temperature_c);
		print_value(out, 6, usage->sm_mhz >= 0, 0, usage->sm_mhz);
		text__line(out, "  %s", usage->name);
	}
	if (cnt)
		fputc('\n', out);
	free(usages);
	return err;
}

/* ---- all ---- */

static int print_scope(const struct gpu_view *view, uint32_t pid, FILE *out)
{
	struct gpu_rows rows;
	int err = gpu_rows__collect(view, pid, &rows);

	if (err)
		return err;
	print_tiers(view, pid, out);
	print_lines(view, pid, out);
	err = print_kernels(view, &rows, out);
	print_copies(view, &rows, out);
	print_collectives(view, &rows, out);
	print_apis(view, &rows, out);
	print_memory(view, &rows, out);
	if (rows.elsewhere)
		text__paragraph(out, "The action is not known for %" PRIu64 " pieces of work: they are in no table.",
				rows.elsewhere);
	gpu_rows__release(&rows);
	return err;
}

static int print_processes(const struct gpu_view *view, FILE *out)
{
	struct rec_target *targets;
	size_t cnt;
	int err = gpu_rows__processes(view->job, &targets, &cnt);

	for (size_t i = 0; i < cnt && !err; i++) {
		common__process(&targets[i], out);
		if (gpu__process(view->gpu, targets[i].pid))
			err = print_scope(view, targets[i].pid, out);
		else
			fputs("  no CUDA in it\n\n", out);
	}
	free(targets);
	return err;
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	struct gpu_view view;
	size_t cnt;
	int err = gpu_view__open(&view, job, options);

	if (err)
		return err;
	gpu__processes(view.gpu, &cnt);
	if (!cnt)
		text__paragraph(out,
				"This recording has no figures of GPUs: no process used CUDA, or it was made without "
				"--gpu. Record again: stepflame record --gpu auto -p PID; stepflame doctor -p PID says "
				"which CUDA libraries the process has.");
	else if (options->per_rank)
		err = print_processes(&view, out);
	else
		err = print_scope(&view, PROCESSES_ALL_MAIN, out);
	err = err ?: print_usage(&view, out);
	gpu_view__close(&view);
	if (err)
		return err;
	common__text(job, out);
	return common__flush(out);
}

const struct report_ops report_gpu = {
	.name = "gpu",
	.sort_keys = gpu_rows__sort_keys,
	.text = print_text,
	.json = report_gpu__json,
};
