// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the steps report says about the resources of each process, and of the machine; docs/resources.md. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/resources/resources.h"
#include "user/lib/digits.h"
#include "user/model/labels.h"
#include "user/report/common.h"
#include "user/report/gpu_rows.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"
#include "user/report/steps_report.h"

#define DEFAULT_LIMIT 10
/* On narrower terminals the columns that matter least are in JSON and CSV only. */
#define MEDIUM_COLUMNS 100
#define WIDE_COLUMNS   124
#define DAY_S          86400.0
#define FULL_MAX_S     (100 * DAY_S) /* later ends of the memory are not said */

static json_t *json_rate(double value)
{
	return common__json_real(value >= 0, value);
}

static json_t *mega(bool known, double bytes)
{
	return common__json_real(known && bytes >= 0, bytes / 1e6);
}

static json_t *bytes_of(bool known, uint64_t bytes)
{
	return known ? common__json_integer(bytes) : json_null();
}

/* Of a reading, which may be any number of a recording; below 0: unknown. */
static json_t *bytes_of_reading(double bytes)
{
	return bytes < 0 ? json_null() : json_integer(bytes < (double)INT64_MAX ? (json_int_t)bytes : INT64_MAX);
}

SHAPE(growth_shape, "memory_growth", "bytes_per_s:f least_bytes_per_s:f most_bytes_per_s:f full_s:f? of:s?");

static json_t *json_growth(const struct resource_use *use)
{
	if (!use->growth_per_s)
		return json_null();
	return SHAPE_PACK(growth_shape, json_real(use->growth_per_s), json_real(use->growth_least_per_s),
			  json_real(use->growth_most_per_s), json_rate(use->full_s),
			  use->full_s < 0 ? json_null() : json_string(use->of_cgroup ? "cgroup" : "machine"));
}

SHAPE(throttled_shape, "throttled", "cpus:f levels_above:I periods:I throttled_periods:I throttled_share:f");

/* How often a quota of CPU time was used up. */
static json_t *json_throttled(const struct cpu_throttle *throttle)
{
	if (!throttle->periods)
		return json_null();
	return SHAPE_PACK(throttled_shape, json_real(throttle->cpus), json_integer(throttle->above),
			  json_integer(throttle->periods), json_integer(throttle->throttled),
			  json_real(throttle->share));
}

SHAPE(limits_shape, "limits", "memory_bytes:I? cpus:f? processors:I? throttled:throttled?");

static json_t *json_limits(const struct rec_limits *limits, const struct cpu_throttle *throttle)
{
	if (!limits)
		return json_null();
	return SHAPE_PACK(limits_shape, bytes_of(limits->memory_bytes, limits->memory_bytes),
			  common__json_real(limits->milli_cpus, limits->milli_cpus / 1e3),
			  bytes_of(limits->processors, limits->processors), json_throttled(throttle));
}

static int add_row(const struct resource_use *use, struct table *table)
{
	const struct resource_rates *r = &use->rates;
	bool medium = text__columns() >= MEDIUM_COLUMNS, wide = text__columns() >= WIDE_COLUMNS;
	const struct cell cells[] = {
		cell__json("pid:I", json_integer(use->pid)),
		cell__new(NULL, 1, "pid", 8, 0, json_integer(REC_PID(use->pid))),
		cell__new("role:s", 2, "role", -6, 0, json_string(labels__role(use->role))),
		cell__json("samples:I", common__json_integer(use->sample_cnt)),
		cell__json("seconds:f", json_real(use->seconds)),
		cell__new("cpu_percent:f?", 3, "% CPU", 7, 1, json_rate(r->cpu_percent)),
		cell__json("rss_min_bytes:I?", bytes_of(use->has_memory, use->rss_min_bytes)),
		cell__json("rss_max_bytes:I?", bytes_of(use->has_memory, use->rss_max_bytes)),
		cell__json("rss_last_bytes:I?", bytes_of(use->has_memory, use->rss_last_bytes)),
		cell__json("shared_last_bytes:I?", bytes_of(use->has_memory, use->shared_last_bytes)),
		cell__json("swap_last_bytes:I?", bytes_of(use->has_swap, use->swap_last_bytes)),
		cell__json("swap_max_bytes:I?", bytes_of(use->has_swap, use->swap_max_bytes)),
		cell__new(NULL, 4, "MB last", 8, 0, mega(use->has_memory, use->rss_last_bytes)),
		cell__if(wide, cell__new(NULL, 5, "min", 8, 0, mega(use->has_memory, use->rss_min_bytes))),
		cell__if(medium, cell__new(NULL, 6, "max", 8, 0, mega(use->has_memory, use->rss_max_bytes))),
		cell__if(wide, cell__new(NULL, 7, "shared", 8, 0, mega(use->has_memory, use->shared_last_bytes))),
		cell__if(medium, cell__new(NULL, 8, "swap", 6, 0, mega(use->has_swap, use->swap_last_bytes))),
		cell__new("minor_faults_per_s:f?", 9, "faults/s", 9, 0, json_rate(r->minor_faults_per_s)),
		cell__new("major_faults_per_s:f?", 10, "major/s", 8, 1, json_rate(r->major_faults_per_s)),
		cell__json("read_bytes_per_s:f?", json_rate(r->read_per_s)),
		cell__json("written_bytes_per_s:f?", json_rate(r->written_per_s)),
		cell__json("received_bytes_per_s:f?", json_rate(r->received_per_s)),
		cell__json("sent_bytes_per_s:f?", json_rate(r->sent_per_s)),
		cell__new(NULL, 11, "read MB/s", 10, 2, mega(true, r->read_per_s)),
		cell__new(NULL, 12, "written", 8, 2, mega(true, r->written_per_s)),
		cell__if(wide, cell__new(NULL, 13, "received", 9, 2, mega(true, r->received_per_s))),
		cell__if(wide, cell__new(NULL, 14, "sent", 7, 2, mega(true, r->sent_per_s))),
		cell__json("growth:memory_growth?", json_growth(use)),
		cell__json("limits:limits?", json_limits(use->limits, &use->throttle)),
	};

	return TABLE_ADD(table, cells);
}

static int add_blank_row(struct job *job, struct table *table)
{
	return add_row(&(struct resource_use){0}, table);
}

SHAPE_ROW(resources_shape, "resources", add_blank_row);

/* "12.3 MB a minute" */
static void say_rate(double bytes_per_s, char *text, size_t size)
{
	snprintf(text, size, "%s MB a minute", DIGITS(bytes_per_s * 60 / 1e6, 3));
}

/* "3.2 hours" */
static void say_time(double seconds, char *text, size_t size)
{
	if (seconds < 120)
		snprintf(text, size, "%.0f s", seconds);
	else if (seconds < 7200)
		snprintf(text, size, "%.0f minutes", seconds / 60);
	else if (seconds < 2 * DAY_S)
		snprintf(text, size, "%.1f hours", seconds / 3600);
	else
		snprintf(text, size, "%.0f days", seconds / DAY_S);
}

/* false: nothing is wrong with it. */
static bool say_trouble(const struct resource_use *use, char text[STEPS_TROUBLE_BYTES])
{
	const char *role = labels__role(use->role);
	uint32_t pid = REC_PID(use->pid);
	char rate_text[48], time[32], full[128] = "";

	switch (resource_use__trouble(use)) {
	case TROUBLE_GROWTH:
		say_rate(use->growth_per_s, rate_text, sizeof(rate_text));
		if (use->full_s >= 0 && use->full_s <= FULL_MAX_S) {
			say_time(use->full_s, time, sizeof(time));
			snprintf(full, sizeof(full), "; at this rate the memory of its %s ends in %s",
				 use->of_cgroup ? "cgroup" : "machine", time);
		}
		snprintf(text, STEPS_TROUBLE_BYTES, "memory of process %u (%s) grows by %s%s", pid, role, rate_text,
			 full);
		return true;
	case TROUBLE_SWAP:
		snprintf(text, STEPS_TROUBLE_BYTES, "process %u (%s) has %s MB in swap", pid, role,
			 DIGITS(use->swap_last_bytes / 1e6, 3));
		return true;
	case TROUBLE_FAULTS:
		snprintf(text, STEPS_TROUBLE_BYTES,
			 "process %u (%s) waits for pages from disk: %s major faults a second", pid, role,
			 DIGITS(use->rates.major_faults_per_s, 3));
		return true;
	case TROUBLE_NONE:
		break;
	}
	*text = 0;
	return false;
}

#define COPIED_ERROR 0.4 /* of a figure: with more it is none */

/* 0 or -ENOMEM; text "": no pages are copied. */
static int say_copied(const struct steps_view *view, const struct resource_use *uses, size_t cnt,
		      char text[STEPS_TROUBLE_BYTES])
{
	struct copied_pages copied;
	char rate_text[48];
	int err = copied_pages__find(view->job, view->tracks, view->track_cnt, uses, cnt, &copied);

	*text = 0;
	if (err || !copied.per_s)
		return err;
	say_rate(copied.per_s, rate_text, sizeof(rate_text));
	if (copied.counted && copied.error > COPIED_ERROR)
		snprintf(text, STEPS_TROUBLE_BYTES,
			 "%s copy pages that they share with their process (copy on write), which their resident "
			 "memory does not show; how many is not known for sure: record for longer",
			 copied.workers ? "workers" : "child processes");
	else if (copied.counted)
		snprintf(text, STEPS_TROUBLE_BYTES,
			 "%s copy pages that they share with their process (copy on write): %s (+-%.0f %%) of memory, "
			 "which their resident memory does not show; of arrays (numpy, torch, Arrow) they copy none, "
			 "as they do of lists of objects",
			 copied.workers ? "workers" : "child processes", rate_text, 100 * copied.error);
	else
		snprintf(text, STEPS_TROUBLE_BYTES,
			 "the machine's free memory shrinks by %s, though no process grows: workers copy pages that "
			 "they share with their process (copy on write), %.0f faults a second",
			 rate_text, copied.faults_s);
	return 0;
}

int steps_resources__worst(const struct steps_view *view, char text[STEPS_TROUBLE_BYTES])
{
	struct resource_use *uses, worst = {0};
	size_t cnt;
	int err = resource_uses__new(view->job, view->tracks, view->track_cnt, &uses, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		enum resource_trouble new = resource_use__trouble(&uses[i]), old = resource_use__trouble(&worst);

		if (new > old || (new == TROUBLE_GROWTH &&old == new &&uses[i].growth_per_s > worst.growth_per_s))
			worst = uses[i];
	}
	if (!say_trouble(&worst, text) && !err)
		err = say_copied(view, uses, cnt, text);
	free(uses);
	return err;
}

/* Of main processes: all of a job mostly have the same. */
static void print_limits(const struct resource_use *uses, size_t cnt, FILE *out)
{
	char text[192], last[192] = "";

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_limits *limits = uses[i].role == ROLE_MAIN ? uses[i].limits : NULL;
		const struct cpu_throttle *throttle = &uses[i].throttle;
		int at = 0;

		if (!limits || (!limits->memory_bytes && !limits->milli_cpus))
			continue;
		if (limits->memory_bytes)
			at = snprintf(text, sizeof(text), "%s GB of memory", DIGITS(limits->memory_bytes / 1e9, 3));
		if (limits->milli_cpus)
			at += snprintf(text + at, sizeof(text) - at, "%s%s s of CPU time a second", at ? ", " : "",
				       DIGITS(limits->milli_cpus / 1e3, 3));
		if (limits->milli_cpus && throttle->periods)
			snprintf(text + at, sizeof(text) - at, ", used up in %" PRIu64 " of %" PRIu64 " periods",
				 throttle->throttled, throttle->periods);
		if (strcmp(text, last))
			text__paragraph(out, "limits of the cgroup of process %u (main): %s", REC_PID(uses[i].pid),
					text);
		memcpy(last, text, sizeof(last));
	}
}

/* Nothing in a recording of an earlier version. 0 or -ENOMEM. */
static int print_machines(struct job *job, FILE *out)
{
	struct machine_use *uses;
	size_t cnt;
	int err = machine_uses__new(job, &uses, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct machine_use *use = &uses[i];
		char cpu[32] = "", swap[32] = "no swap";

		if (use->mean.cpu >= 0)
			snprintf(cpu, sizeof(cpu), " %.1f %% busy", use->mean.cpu);
		if (use->last->swap_bytes)
			snprintf(swap, sizeof(swap), "swap %.1f %%", use->mean.swap);
		text__paragraph(out, "machine%s%s: %u processor%s%s, memory %.1f %% of %.1f GB (at most %.1f %%), %s",
				use->host ? " " : "", use->host ?: "", use->last->processors,
				use->last->processors == 1 ? "" : "s", cpu, use->mean.memory,
				use->last->memory_bytes / 1e9, use->memory_max, swap);
	}
	free(uses);
	return err;
}

/* By NVML; report --gpu has the table. 0 or -ENOMEM. */
static int print_gpus(const struct gpu *gpu, FILE *out)
{
	struct gpu_usage *uses;
	size_t cnt;
	int err = gpu_usage__list(gpu, &uses, &cnt);

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct gpu_usage *use = &uses[i];
		char busy[32] = "", memory[64] = "", power[32] = "", heat[32] = "";

		if (use->busy_percent >= 0)
			snprintf(busy, sizeof(busy), ", %.1f %% busy", use->busy_percent);
		if (use->memory_bytes)
			snprintf(memory, sizeof(memory), ", memory at most %.1f of %.1f GB",
				 use->memory_used_bytes / 1e9, use->memory_bytes / 1e9);
		if (use->power_w >= 0)
			snprintf(power, sizeof(power), ", %.0f W", use->power_w);
		if (use->temperature_c >= 0)
			snprintf(heat, sizeof(heat), ", %.0f degrees", use->temperature_c);
		text__paragraph(out, "GPU %u: %s%s%s%s%s", use->device, *use->name ? use->name : "no name", busy,
				memory, power, heat);
	}
	free(uses);
	return err;
}

int steps_resources__print(const struct steps_view *view, FILE *out)
{
	struct table table = {
		.out = out,
		.title = "Resources, looked at once a second",
		.gap = "  ",
		.unknown = "-",
		.rules = RULES_NONE,
	};
	size_t cnt, limit = report_options__limit(view->options, DEFAULT_LIMIT);
	struct resource_use *uses;
	int err = resource_uses__new(view->job, view->tracks, view->track_cnt, &uses, &cnt);
	bool net = false;
	char text[STEPS_TROUBLE_BYTES];

	for (size_t i = 0; i < cnt && i < limit && !err; i++) {
		err = add_row(&uses[i], &table);
		net = net || uses[i].rates.received_per_s >= 0;
	}
	if (cnt && !err) {
		common__left_out(cnt, limit, "process", out);
		err = print_machines(view->job, out) ?: print_gpus(view->gpu, out);
		print_limits(uses, cnt, out);
		for (size_t i = 0; i < cnt; i++)
			if (say_trouble(&uses[i], text))
				text__paragraph(out, "wrong: %s", text);
		err = err ?: say_copied(view, uses, cnt, text);
		if (!err && *text)
			text__paragraph(out, "wrong: %s", text);
		if (net && text__columns() >= WIDE_COLUMNS)
			text__paragraph(out, "received, sent: bytes of all interfaces of the network namespace, "
					     "whichever process they were for");
		fputc('\n', out);
	}
	free(uses);
	return err;
}

json_t *steps_resources__json(const struct steps_view *view)
{
	json_t *list = json_array();
	struct table table = {.list = list};
	struct resource_use *uses;
	size_t cnt;
	int err = resource_uses__new(view->job, view->tracks, view->track_cnt, &uses, &cnt);

	for (size_t i = 0; i < cnt && !err; i++)
		err = add_row(&uses[i], &table);
	free(uses);
	return common__json_unless_failed(list, err);
}

SHAPE(machine_shape, "machine",
      "host:s? samples:I seconds:f processors:I cpu_percent:f? memory_percent:f memory_max_percent:f swap_percent:f "
      "memory_bytes:I swap_bytes:I");

json_t *steps_resources__json_machines(struct job *job)
{
	json_t *list = json_array();
	struct machine_use *uses;
	size_t cnt;
	int err = machine_uses__new(job, &uses, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct machine_use *use = &uses[i];

		common__json_append(&list,
				    SHAPE_PACK(machine_shape, common__json_text(use->host ?: ""),
					       json_integer(use->sample_cnt), json_real(use->seconds),
					       json_integer(use->last->processors), json_rate(use->mean.cpu),
					       json_real(use->mean.memory), json_real(use->memory_max),
					       json_real(use->mean.swap), common__json_integer(use->last->memory_bytes),
					       common__json_integer(use->last->swap_bytes)));
	}
	free(uses);
	return common__json_unless_failed(list, err);
}

/* ---- steps ---- */

SHAPE(gpu_reading_shape, "gpu_reading", "busy_percent:f? memory_used_bytes:I? power_w:f? temperature_c:f?");

/* By the number of each GPU, so that CSV has a column for each figure of each. step NULL: the keys alone. */
static json_t *json_gpus(struct gpu_readings all, const struct step *step)
{
	json_t *gpus = json_object();

	while (all.cnt) {
		struct gpu_readings part = gpu_readings__next(&all);
		struct gpu_reading of = {-1, -1, -1, -1};
		char device[16];

		if (step && !gpu_readings__span(&part, step->start_ns, step->end_ns, &of))
			continue;
		snprintf(device, sizeof(device), "%u", part.items->device);
		common__json_set(&gpus, device,
				 SHAPE_PACK(gpu_reading_shape, json_rate(of.busy_percent),
					    bytes_of_reading(of.memory_used_bytes), json_rate(of.power_w),
					    json_rate(of.temperature_c)));
	}
	return gpus;
}

SHAPE(step_resources_shape, "step_resources",
      "cpu_percent:f? rss_bytes:I? shared_bytes:I? swap_bytes:I? minor_faults_per_s:f? major_faults_per_s:f? "
      "read_bytes_per_s:f? written_bytes_per_s:f? received_bytes_per_s:f? sent_bytes_per_s:f? machine_cpu_percent:f? "
      "machine_memory_percent:f? machine_swap_percent:f? gpus:{gpu_reading}");

static json_t *json_span(const struct resource_span *span, const struct machine_percent *machine, json_t *gpus)
{
	const struct resource_rates *r = &span->rates;

	return SHAPE_PACK(step_resources_shape, json_rate(r->cpu_percent), bytes_of(span->has_memory, span->rss_bytes),
			  bytes_of(span->has_memory, span->shared_bytes), bytes_of(span->has_swap, span->swap_bytes),
			  json_rate(r->minor_faults_per_s), json_rate(r->major_faults_per_s), json_rate(r->read_per_s),
			  json_rate(r->written_per_s), json_rate(r->received_per_s), json_rate(r->sent_per_s),
			  json_rate(machine->cpu), json_rate(machine->memory), json_rate(machine->swap), gpus);
}

json_t *steps_resources__json_step(const struct steps_of *of, const struct step *step)
{
	struct machine_percent machine = {-1, -1, -1};
	struct resource_span span;

	if (!resource_samples__span(&of->resources, step->start_ns, step->end_ns, &span))
		return json_null();
	machine_samples__span(&of->machine, step->start_ns, step->end_ns, &machine);
	return json_span(&span, &machine, json_gpus(of->readings, step));
}

json_t *steps_resources__json_step_heads(const struct steps_view *view)
{
	static const struct resource_span span;
	static const struct machine_percent machine;

	return json_span(&span, &machine, json_gpus(gpu_readings__of(view->job, view->gpu), NULL));
}
