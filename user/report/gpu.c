// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The GPU report: where its figures come from, and thus what is unknown; kernels, copies, calls,
 * collectives, memory; what GPUs did and what they waited for. gpu_rows.c adds up, gpu_tables.c
 * describes the columns, gpu_json.c prints JSON.
 */
#include "user/report/gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/print/text.h"

#define DEFAULT_LIMIT 20

static double to_ms(uint64_t ns)
{
	return ns / 1e6;
}

static double percent_of_ns(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * part / whole : 0;
}

/* ---- tiers ---- */

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
		snprintf(windows, sizeof(windows), "windows of %.4g s", process->cupti_ns / 1e9);
	text__paragraph(out,
			"tier 2, what the GPU did, by CUPTI: %" PRIu64
			" pieces of work%s, in %s of the %.4g s recorded%s%s",
			process->activities, process->activities ? "" : " (was it idle?)", windows, recorded_ns / 1e9,
			process->why[0] ? "; " : "", process->why);
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

/* ---- tables ---- */

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

/* ---- GPUs ---- */

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

/* ---- all ---- */

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
	.json = report_gpu__json,
	.why_empty = why_no_gpus,
};
