// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Computes rows from two states of a job. The job's actions are cumulative, so this stores their
 * totals at the last frame and at the last reset. Samples are those since the last frame, as the
 * job's owner forgets them after each.
 */
#include "user/top/top.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/lib/percentile.h"
#include "user/model/gpu.h"
#include "user/model/labels.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"
#include "user/model/step_times.h"
#include "user/report/common.h"
#include "user/report/rows.h"

/* ---- the views: their names, and their columns in the order of top_row.values ---- */

#define COLUMNS(...)                                         \
	.columns = (const struct top_column[]){__VA_ARGS__}, \
	.column_cnt = sizeof((const struct top_column[]){__VA_ARGS__}) / sizeof(struct top_column)

const struct top_view_info top_views[TOP__VIEWS] = {
	[TOP_ACTIONS] = {.name = "actions",
			 .title = "Actions",
			 .rows = "action",
			 .sort = 2,
			 COLUMNS({"calls/s", "calls_per_s", TOP_NUMBER, "calls that ended in the interval, a second"},
				 {"mean ms", "mean_ms", TOP_MS, "of these"},
				 {"%", "percent", TOP_PERCENT,
				  "their time, of the interval's; a long call counts when it ends"},
				 {"total %", "total_percent", TOP_PERCENT,
				  "the same since the start, or the last reset"},
				 {"calls", "calls", TOP_NUMBER, "since then"})},
	[TOP_FUNCTIONS] = {.name = "functions",
			   .title = "Functions",
			   .rows = "function (file:line)",
			   .sort = 0,
			   COLUMNS({"own %", "self_percent", TOP_PERCENT,
				    "CPU time in the function itself, of the interval's time"},
				   {"total %", "total_percent", TOP_PERCENT, "with what it calls"},
				   {"wait %", "wait_percent", TOP_PERCENT,
				    "time that threads waited in it or in what it calls"},
				   {"own s", "self_s", TOP_NUMBER, "CPU time since the start, or the last reset"},
				   {"total s", "total_s", TOP_NUMBER, "with what it calls"})},
	[TOP_WAITS] = {.name = "waits",
		       .title = "Waits",
		       .rows = "cause",
		       .sort = 0,
		       COLUMNS({"main ms/s", "main_ms_per_s", TOP_MS, "time of the main threads, each second"},
			       {"all ms/s", "all_ms_per_s", TOP_MS, "of all threads"},
			       {"main s", "main_s", TOP_NUMBER, "since the start, or the last reset"},
			       {"all s", "all_s", TOP_NUMBER, "of all threads"})},
	[TOP_THREADS] = {.name = "threads",
			 .title = "Threads",
			 .rows = "pid/tid name: causes of its waits",
			 .sort = 0,
			 COLUMNS({"CPU %", "cpu_percent", TOP_PERCENT, "of the interval, by samples"},
				 {"queue %", "queue_percent", TOP_PERCENT, "ready to run, but others ran"},
				 {"wait %", "wait_percent", TOP_PERCENT, "blocked"})},
	[TOP_STEPS] = {.name = "steps",
		       .title = "Steps",
		       .rows = "process: its last steps",
		       .sort = 1,
		       COLUMNS({"steps", "steps", TOP_NUMBER, "since the start"},
			       {"steps/s", "steps_per_s", TOP_NUMBER, "in the interval"},
			       {"last ms", "last_ms", TOP_MS, "the last step"},
			       {"mean ms", "mean_ms", TOP_MS, "of the last steps, at most 256"},
			       {"p50 ms", "p50_ms", TOP_MS, "the same"}, {"p95 ms", "p95_ms", TOP_MS, "the same"},
			       {"max ms", "max_ms", TOP_MS, "the same"})},
	[TOP_PROCESSES] = {.name = "processes",
			   .title = "Processes",
			   .rows = "pid role name",
			   .sort = 0,
			   COLUMNS({"CPU %", "cpu_percent", TOP_NUMBER, "of one CPU, in the interval, by the kernel"},
				   {"MB", "rss_mb", TOP_NUMBER, "resident memory; shared pages count for each"},
				   {"threads", "threads", TOP_NUMBER, "it has now"})},
};

/* ---- steps ---- */

static int compare_float(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return COMPARE(*x, *y);
}

static void set_times(const struct process_steps *times, struct top_row *row)
{
	size_t cnt = times->step_cnt < STEP_TIMES_KEPT ? times->step_cnt : STEP_TIMES_KEPT;
	float sorted[STEP_TIMES_KEPT];
	double sum = 0;

	for (int i = 2; i < TOP_VALUES; i++)
		row->values[i] = NAN;
	if (!cnt)
		return;
	memcpy(sorted, times->ms, cnt * sizeof(*sorted));
	qsort(sorted, cnt, sizeof(*sorted), compare_float);
	for (size_t i = 0; i < cnt; i++)
		sum += sorted[i];
	row->values[2] = times->ms[(times->step_cnt - 1) % STEP_TIMES_KEPT];
	row->values[3] = sum / cnt;
	row->values[4] = sorted[percentile__index(cnt, 50)];
	row->values[5] = sorted[percentile__index(cnt, 95)];
	row->values[6] = sorted[cnt - 1];
	row->history->cnt = cnt < TOP_HISTORY ? cnt : TOP_HISTORY;
	for (size_t i = 0; i < row->history->cnt; i++)
		row->history->ms[i] = times->ms[(times->step_cnt - row->history->cnt + i) % STEP_TIMES_KEPT];
}

/* Adds a row (struct top_row) for each process to rows, and begins a new interval. 0 or -ENOMEM. */
static int step_rows__add(struct step_times *steps, const struct job *job, double interval_s, struct array *rows)
{
	struct process_steps *all = steps->processes.items;

	for (size_t i = 0; i < steps->processes.cnt; i++) {
		struct top_row *row = array__add(rows, sizeof(*row));
		int rank = common__target(job, all[i].pid).rank, bytes = -1;

		if (row)
			bytes = rank < 0 ? asprintf(&row->name, "pid %u", all[i].pid)
					 : asprintf(&row->name, "pid %u, rank %d", all[i].pid, rank);
		if (bytes < 0) {
			rows->cnt -= row != NULL;
			return -ENOMEM;
		}
		row->history = calloc(1, sizeof(*row->history));
		if (!row->history)
			return -ENOMEM;
		row->values[0] = all[i].index;
		row->values[1] = interval_s > 0 ? all[i].boundaries / interval_s : NAN;
		set_times(&all[i], row);
		all[i].boundaries = 0;
	}
	return 0;
}

/* The totals of an action at the last frame and at the last reset. */
struct seen_time {
	struct seen_key {
		uint32_t name; /* index into top->names */
		uint32_t kind; /* enum span_kind */
	} key;
	uint64_t calls, total_ns;
	uint64_t base_calls, base_ns;
};

struct function_time {
	uint64_t own_ns, total_ns, wait_ns; /* of the interval */
	uint64_t own_sum_ns, total_sum_ns;
	uint64_t sample; /* the last sample counted for it */
};

/* By enum sample_cause; CAUSE_NONE: on the CPU. */
struct time_sum {
	uint64_t main_ns, all_ns;
};

struct top {
	struct map names;       /* of actions */
	struct map seen;        /* struct seen_time */
	struct array functions; /* struct function_time by code number; 0: no Python frame */
	struct time_sum totals[CAUSE__END];
	struct step_times steps;
	struct rec_gpu_usage gpus[TOP_GPUS_MAX];
	size_t gpu_cnt;
	uint64_t sample_cnt;
	uint64_t frame_ns,
		base_ns; /* ends of the last frame, and of the last frame before the reset; 0: no such frame yet */
	uint64_t busiest_hits, busiest_calls, hits, own_cpu_ns, step_cnt; /* at the last frame */
};

/* Collects the samples of an interval. */
struct interval {
	struct top *top;
	const struct top_usage *usage;
	struct job *job;
	struct top_frame *frame;
	double seconds, base_seconds;
	struct time_sum causes[CAUSE__END];
	struct array threads; /* struct thread_time by number */
};

struct thread_time {
	uint64_t ns[CAUSE__END];
};

struct top *top__new(void)
{
	return calloc(1, sizeof(struct top));
}

void top__free(struct top *top)
{
	if (!top)
		return;
	map__free_texts(&top->names);
	map__free(&top->seen);
	free(top->functions.items);
	step_times__free(&top->steps);
	free(top);
}

int top__step(struct top *top, const struct rec_step *step)
{
	int timed = step_times__add(&top->steps, step, NULL);

	return timed < 0 ? timed : 0;
}

void top__reset(struct top *top)
{
	struct function_time *functions = top->functions.items;
	struct seen_time *seen = top->seen.items.items;

	for (size_t i = 0; i < top->seen.items.cnt; i++) {
		seen[i].base_calls = seen[i].calls;
		seen[i].base_ns = seen[i].total_ns;
	}
	for (size_t i = 0; i < top->functions.cnt; i++)
		functions[i].own_sum_ns = functions[i].total_sum_ns = 0;
	memset(top->totals, 0, sizeof(top->totals));
	top->base_ns = top->frame_ns;
}

/* Adds a row to a view; takes name over. NULL: no memory, or name is NULL. */
static struct top_row *top_frame__add_row(struct top_frame *frame, enum top_view view, char *name)
{
	struct top_row *row = name ? array__add(&frame->rows[view], sizeof(*row)) : NULL;

	if (row)
		row->name = name;
	else
		free(name);
	return row;
}

static uint64_t growth_since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static double percent_of_interval(uint64_t ns, double seconds)
{
	return seconds > 0 ? ns / 1e7 / seconds : NAN;
}

/* ---- actions ---- */

/* Valid until the next call. NULL: no memory. */
static struct seen_time *seen_of(struct top *top, const struct row *row)
{
	struct seen_key key = {.kind = row->kind};

	return map__add_text(&top->names, row->name, &key.name) ? NULL : MAP_ADD(&top->seen, struct seen_time, &key);
}

static int interval__add_action(struct interval *interval, const struct row *row)
{
	struct seen_time *seen = seen_of(interval->top, row);
	struct top_row *out = seen ? top_frame__add_row(interval->frame, TOP_ACTIONS, strdup(row->name)) : NULL;
	uint64_t calls, ns;

	if (!out)
		return -ENOMEM;
	calls = growth_since(row->val.calls, seen->calls);
	ns = growth_since(row->val.total_ns, seen->total_ns);
	out->values[0] = interval->seconds > 0 ? calls / interval->seconds : NAN;
	out->values[1] = calls ? ns / 1e6 / calls : NAN;
	out->values[2] = percent_of_interval(ns, interval->seconds);
	out->values[3] = percent_of_interval(growth_since(row->val.total_ns, seen->base_ns), interval->base_seconds);
	out->values[4] = growth_since(row->val.calls, seen->base_calls);
	seen->calls = row->val.calls;
	seen->total_ns = row->val.total_ns;
	return 0;
}

static int interval__add_actions(struct interval *interval)
{
	const struct report_options options = {0};
	struct rows rows;
	int err = rows__collect(interval->job, &options, PROCESSES_ALL_MAIN, "first", &rows);

	if (err)
		return err;
	for (size_t i = 0; i < rows.cnt && !err; i++)
		err = interval__add_action(interval, &rows.items[i]);
	rows__release(&rows);
	return err;
}

/* ---- samples ---- */

static void top__add_function(struct top *top, const struct sample *sample, uint32_t code, bool innermost)
{
	struct function_time *f = &((struct function_time *)top->functions.items)[code];

	if (innermost && sample->kind == SAMPLE_CPU) {
		f->own_ns += sample->weight_ns;
		f->own_sum_ns += sample->weight_ns;
	}
	if (f->sample == top->sample_cnt) /* recursion */
		return;
	f->sample = top->sample_cnt;
	if (sample->kind == SAMPLE_CPU) {
		f->total_ns += sample->weight_ns;
		f->total_sum_ns += sample->weight_ns;
	} else {
		f->wait_ns += sample->weight_ns;
	}
}

static int interval__add_sample(struct interval *interval, const struct sample *sample)
{
	struct stack stack = stacks__stack(job__stacks(interval->job), sample->stack);
	struct top *top = interval->top;
	bool is_main = sample->pid == sample->tid && job__is_main(interval->job, sample->pid);
	struct time_sum *interval_sum = &interval->causes[sample->cause], *sum = &top->totals[sample->cause];

	if (array__grow(&interval->threads, sample->thread + 1, sizeof(struct thread_time)))
		return -ENOMEM;
	((struct thread_time *)interval->threads.items)[sample->thread].ns[sample->cause] += sample->weight_ns;
	interval_sum->all_ns += sample->weight_ns;
	sum->all_ns += sample->weight_ns;
	if (is_main) {
		interval_sum->main_ns += sample->weight_ns;
		sum->main_ns += sample->weight_ns;
	}
	top->sample_cnt++;
	for (uint32_t i = 0; i < stack.cnt; i++)
		top__add_function(top, sample, stack.frames[i].code, !i);
	if (!stack.cnt)
		top__add_function(top, sample, 0, true);
	return 0;
}

static int interval__add_samples(struct interval *interval)
{
	const struct samples *samples = job__samples(interval->job);
	int err = samples ? array__grow(&interval->top->functions, stacks__code_end(job__stacks(interval->job)),
					sizeof(struct function_time))
			  : -ENOMEM;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);

		err = interval__add_sample(interval, &sample);
	}
	return err;
}

/* The last two parts of a path are enough to tell files apart. */
static const char *last_two_parts(const char *path)
{
	const char *slash = strrchr(path, '/');

	while (slash && slash > path && slash[-1] != '/')
		slash--;
	return slash ? slash : path;
}

/* malloc'ed; NULL: no memory. */
static char *function_text(struct job *job, uint32_t number)
{
	struct code code = stacks__code(job__stacks(job), number);
	const char *name = code.name ? job__name_or_lost(job, code.name) : "?", *file;
	char *text, *copy;

	if (!number || !code.known)
		return strdup(number ? "(function lost)" : "(no Python frame)");
	copy = name ? strdup(name) : NULL; /* the next lost name may reuse the buffer */
	file = code.file ? job__name_or_lost(job, code.file) : "?";
	if (!copy || !file || asprintf(&text, "%s (%s:%u)", copy, last_two_parts(file), code.first_line) < 0)
		text = NULL;
	free(copy);
	return text;
}

static int interval__add_functions(struct interval *interval)
{
	struct function_time *functions = interval->top->functions.items;

	for (size_t i = 0; i < interval->top->functions.cnt; i++) {
		struct function_time *f = &functions[i];
		struct top_row *row;

		if (!f->total_sum_ns && !f->wait_ns)
			continue;
		row = top_frame__add_row(interval->frame, TOP_FUNCTIONS, function_text(interval->job, i));
		if (!row)
			return -ENOMEM;
		row->values[0] = percent_of_interval(f->own_ns, interval->seconds);
		row->values[1] = percent_of_interval(f->total_ns, interval->seconds);
		row->values[2] = percent_of_interval(f->wait_ns, interval->seconds);
		row->values[3] = f->own_sum_ns / 1e9;
		row->values[4] = f->total_sum_ns / 1e9;
		f->own_ns = f->total_ns = f->wait_ns = 0;
	}
	return 0;
}

static int interval__add_waits(struct interval *interval)
{
	for (int i = 0; i < CAUSE__END; i++) {
		const struct time_sum *now = &interval->causes[i], *sum = &interval->top->totals[i];
		struct top_row *row;

		if (!sum->all_ns)
			continue;
		row = top_frame__add_row(interval->frame, TOP_WAITS,
					 strdup(i ? sample_cause__name(i) : "(on the CPU)"));
		if (!row)
			return -ENOMEM;
		row->values[0] = percent_of_interval(now->main_ns, interval->seconds) * 10;
		row->values[1] = percent_of_interval(now->all_ns, interval->seconds) * 10;
		row->values[2] = sum->main_ns / 1e9;
		row->values[3] = sum->all_ns / 1e9;
	}
	return 0;
}

/* "12/14 name: lock 60 %, gil 3 %": up to three causes. malloc'ed; NULL: no memory. */
static char *thread_text(const struct interval *interval, uint32_t pid, uint32_t tid, struct thread_time time)
{
	char name[16] = "", causes[128] = "";
	char *text;

	if (interval->usage->thread_name)
		interval->usage->thread_name(pid, tid, name);
	for (int n = 0, at = 0; n < 3; n++) {
		int most = CAUSE_LOCK;

		for (int i = CAUSE_LOCK; i < CAUSE__END; i++)
			if (time.ns[i] > time.ns[most])
				most = i;
		if (percent_of_interval(time.ns[most], interval->seconds) < 1)
			break;
		at += snprintf(causes + at, sizeof(causes) - at, "%s %s %.0f %%", n ? "," : ":",
			       sample_cause__name(most), percent_of_interval(time.ns[most], interval->seconds));
		time.ns[most] = 0;
	}
	return asprintf(&text, "%u/%u%s%s%s", pid, tid, *name ? " " : "", name, causes) < 0 ? NULL : text;
}

static int interval__add_threads(struct interval *interval)
{
	const struct samples *samples = job__samples(interval->job);
	const struct thread_time *threads = interval->threads.items;

	for (size_t i = 1; i < interval->threads.cnt; i++) {
		uint64_t blocked_ns = 0;
		struct top_row *row;
		uint32_t pid, tid;

		samples__thread(samples, i, &pid, &tid);
		for (int c = CAUSE_LOCK; c < CAUSE__END; c++)
			blocked_ns += threads[i].ns[c];
		row = top_frame__add_row(interval->frame, TOP_THREADS, thread_text(interval, pid, tid, threads[i]));
		if (!row)
			return -ENOMEM;
		row->values[0] = percent_of_interval(threads[i].ns[CAUSE_NONE], interval->seconds);
		row->values[1] = percent_of_interval(threads[i].ns[CAUSE_RUN_QUEUE], interval->seconds);
		row->values[2] = percent_of_interval(blocked_ns, interval->seconds);
	}
	return 0;
}

static int interval__add_processes(struct interval *interval)
{
	for (size_t i = 0; interval->usage->each && i < interval->usage->processes; i++) {
		const struct top_process *process = &interval->usage->each[i];
		struct top_row *row;
		char *name;

		if (asprintf(&name, "%u %s %s", process->pid, labels__role(process->role), process->comm) < 0)
			return -ENOMEM;
		row = top_frame__add_row(interval->frame, TOP_PROCESSES, name);
		if (!row)
			return -ENOMEM;
		row->values[0] = process->cpu_percent;
		row->values[1] = process->rss_bytes / 1e6;
		row->values[2] = process->threads;
	}
	return 0;
}

/* ---- header ---- */

/*
 * "pid 12, 13: Python 3.11.7, torch 2.15: python train.py", of the first main process. malloc'ed;
 * NULL: no memory.
 */
static char *target_text(const struct job *job)
{
	size_t cnt, bytes, shown = 0;
	const struct rec_target *targets = job__targets(job, &cnt), *first = NULL;
	char *text = NULL;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	for (size_t i = 0; i < cnt; i++) {
		if (targets[i].role != ROLE_MAIN)
			continue;
		first = first ?: &targets[i];
		if (shown++ < 8)
			fprintf(out, "%s%u", shown > 1 ? ", " : "pid ", targets[i].pid);
	}
	if (shown > 8)
		fprintf(out, " and %zu more", shown - 8);
	if (first && first->python[0])
		fprintf(out, "  Python %s", first->python);
	if (first && first->torch[0])
		fprintf(out, "  torch %s", first->torch);
	if (first && first->jax[0])
		fprintf(out, "  JAX %s", first->jax);
	if (first)
		fprintf(out, "  %s", first->command);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* malloc'ed; NULL: no memory. */
static char *losses_text(struct job *job)
{
	size_t cnt, bytes;
	const struct job_counter *counters = job__counters(job, &cnt);
	char *text = NULL;
	FILE *out = open_memstream(&text, &bytes);

	for (size_t i = 0; out && i < cnt; i++)
		fprintf(out, "%s%s=%llu", i ? ", " : "", counters[i].name, (unsigned long long)counters[i].value);
	if (!out || fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* NVML reports at its own pace: use its last readings. */
static int set_gpus(struct top *top, struct job *job, struct top_frame *frame)
{
	const struct gpu *gpu = job__gpu(job);
	size_t cnt = 0;
	const struct rec_gpu_usage *usages = gpu ? gpu__usages(gpu, &cnt) : NULL;

	for (size_t i = 0; i < cnt; i++) {
		size_t at = 0;

		while (at < top->gpu_cnt && top->gpus[at].device != usages[i].device)
			at++;
		if (at == TOP_GPUS_MAX)
			continue;
		top->gpus[at] = usages[i];
		if (at == top->gpu_cnt)
			top->gpu_cnt++;
	}
	memcpy(frame->gpus, top->gpus, sizeof(frame->gpus));
	frame->gpu_cnt = top->gpu_cnt;
	return gpu ? 0 : -ENOMEM;
}

static int set_header(struct interval *interval)
{
	const struct rec_window *window = job__window(interval->job);
	const struct rec_cost *cost = job__cost(interval->job);
	struct top_frame *frame = interval->frame;
	struct top *top = interval->top;
	size_t note_cnt;
	const char *const *notes = job__notes(interval->job, &note_cnt);
	double s = interval->seconds;

	frame->target = target_text(interval->job);
	frame->losses = losses_text(interval->job);
	frame->note = strdup(note_cnt ? notes[note_cnt - 1] : "");
	frame->elapsed_s = rows__window_s(interval->job);
	frame->interval_s = s;
	frame->cpu_percent = interval->usage->cpu_percent;
	frame->processes = interval->usage->processes;
	frame->threads = interval->usage->threads;
	frame->rss_bytes = interval->usage->rss_bytes;
	frame->limits = interval->usage->limits;
	frame->steps = window->steps;
	frame->steps_per_s = s > 0 ? growth_since(window->steps, top->step_cnt) / s : NAN;
	frame->step_rule = common__step_rule(window->step_rule);
	frame->hits_per_s = s > 0 ? growth_since(cost->hits, top->hits) / s : NAN;
	frame->cost_percent =
		percent_of_interval(growth_since(cost->busiest_hits, top->busiest_hits) * cost->hit_ns +
					    growth_since(cost->busiest_calls, top->busiest_calls) * cost->call_ns,
				    s);
	frame->own_percent = percent_of_interval(growth_since(cost->own_cpu_ns, top->own_cpu_ns), s);
	frame->own_mb = cost->own_rss_bytes / 1e6;
	top->step_cnt = window->steps;
	top->hits = cost->hits;
	top->busiest_hits = cost->busiest_hits;
	top->busiest_calls = cost->busiest_calls;
	top->own_cpu_ns = cost->own_cpu_ns;
	return frame->target && frame->losses && frame->note ? 0 : -ENOMEM;
}

int top__update(struct top *top, struct job *job, const struct top_usage *usage, struct top_frame *frame)
{
	const struct rec_window *window = job__window(job);
	struct interval interval = {.top = top, .job = job, .frame = frame, .usage = usage};
	int err;

	*frame = (struct top_frame){0};
	interval.seconds = growth_since(window->end_ns, top->frame_ns ?: window->start_ns) / 1e9;
	interval.base_seconds = growth_since(window->end_ns, top->base_ns ?: window->start_ns) / 1e9;
	top->frame_ns = window->end_ns;
	err = set_header(&interval) ?: set_gpus(top, job, frame) ?: interval__add_actions(&interval);
	err = err ?: interval__add_samples(&interval) ?: interval__add_functions(&interval);
	err = err ?: interval__add_waits(&interval) ?: interval__add_threads(&interval);
	err = err ?: interval__add_processes(&interval);
	err = err ?: step_rows__add(&top->steps, job, interval.seconds, &frame->rows[TOP_STEPS]);
	free(interval.threads.items);
	if (err)
		top_frame__release(frame);
	return err;
}

void top_frame__release(struct top_frame *frame)
{
	for (int view = 0; view < TOP__VIEWS; view++) {
		struct top_row *rows = frame->rows[view].items;

		for (size_t i = 0; i < frame->rows[view].cnt; i++) {
			free(rows[i].name);
			free(rows[i].history);
		}
		free(rows);
	}
	free(frame->target);
	free(frame->losses);
	free(frame->note);
	*frame = (struct top_frame){0};
}

struct row_order {
	const struct top_view_info *view;
	int sort;
};

static int compare_top_rows(const void *a, const void *b, void *ctx)
{
	const struct top_row *x = *(const struct top_row *const *)a, *y = *(const struct top_row *const *)b;
	const struct row_order *order = ctx;

	if (order->sort < order->view->column_cnt) {
		double p = x->values[order->sort], q = y->values[order->sort];

		p = isnan(p) ? -1 : p;
		q = isnan(q) ? -1 : q;
		if (p != q)
			return p < q ? 1 : -1;
	}
	return strcmp(x->name, y->name);
}

const struct top_row **top_frame__sorted(const struct top_frame *frame, enum top_view view, int column,
					 const char *filter, size_t *cnt)
{
	const struct array *rows = &frame->rows[view];
	const struct top_row **chosen = calloc(rows->cnt + 1, sizeof(*chosen));
	struct row_order order = {&top_views[view], column};

	*cnt = 0;
	for (size_t i = 0; chosen && i < rows->cnt; i++) {
		const struct top_row *row = &((const struct top_row *)rows->items)[i];

		if (!*filter || strcasestr(row->name, filter))
			chosen[(*cnt)++] = row;
	}
	if (chosen)
		qsort_r(chosen, *cnt, sizeof(*chosen), compare_top_rows, &order);
	return chosen;
}
