// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The tables of steps: each one; by minute; and their waits. */
#include <errno.h>
#include <stdlib.h>

#include "user/analysis/gpu/gpu_readings.h"
#include "user/analysis/resources/resources.h"
#include "user/export/tables_private.h"
#include "user/lib/saturating.h"
#include "user/model/gpu.h"
#include "user/model/resources.h"
#include "user/model/rests.h"
#include "user/report/common.h"

/* ---- windows: a process in a minute ---- */

static const struct arrow_column window_columns[] = {
	KEY_COLUMNS,
	COLUMN("minute", TIME),
	COLUMN("seen_ns", INT64),
	COLUMN("rested_ns", INT64),
	COLUMN("steps", INT64),
	COLUMN("rest_steps", INT64),
	COLUMN("step_ns", INT64),
	COLUMN("longest_ns", INT64),
	STEPFLAME_PHASES(PHASE_COLUMN) NULLABLE("oncpu_ns", INT64),
	COLUMN("gc_ns", INT64),
	COLUMN("slow_steps", INT64),
	COLUMN("lost", INT64),
	NULLABLE("budget", DOUBLE),
	NULLABLE("accounted", DOUBLE),
	NULLABLE("measured", DOUBLE),
	NULLABLE("error", DOUBLE),
	NULLABLE("cpu_ns", INT64),
	NULLABLE("rss_bytes", INT64),
	NULLABLE("throttled_ns", INT64),
	NULLABLE("gpu_busy", DOUBLE),
	NULLABLE("gpu_mhz", DOUBLE),
	NULLABLE("gpu_watts", DOUBLE),
};

static uint64_t lost(struct job *job)
{
	size_t cnt;
	const struct job_counter *counters = job__counters(job, &cnt);
	uint64_t sum = job__malformed(job);

	for (size_t i = 0; i < cnt; i++)
		sum += counters[i].value;
	return sum > INT64_MAX ? INT64_MAX : sum;
}

static void put_ratio(struct arrow *arrow, bool known, double value)
{
	if (known)
		arrow__double(arrow, value);
	else
		arrow__null(arrow);
}

/* What recording costs it, as a share of its time. */
static void put_cost(struct job *job, uint32_t pid, struct arrow *arrow)
{
	const struct rec_rest *rest = rests__last(job__rests(job), pid);
	const struct rec_overhead *overhead = rests__overhead(job__rests(job), pid);
	double percent = common__target_percent(job);

	put_ratio(arrow, rest && rest->budget_micros, rest ? rest->budget_micros / 1e6 : 0);
	put_ratio(arrow, overhead || percent >= 0, overhead ? overhead->accounted_micros / 1e6 : percent / 100);
	put_ratio(arrow, overhead, overhead ? overhead->measured_micros / 1e6 : 0);
	put_ratio(arrow, overhead, overhead ? overhead->error_micros / 1e6 : 0);
}

/* The last look at a process before a time; NULL: none. *at: where to go on; times ascend. */
static const struct rec_resources *look_before(const struct resource_samples *samples, uint64_t time_ns, size_t *at)
{
	while (*at < samples->cnt && samples->items[*at].time_ns <= time_ns)
		++*at;
	return *at ? &samples->items[*at - 1] : NULL;
}

struct looks {
	struct resource_samples samples;
	size_t at;
	const struct rec_resources *last; /* before the minute */
};

/* What it used between the last look before the minute, or the first of all, and the last one in it: looks are a second apart. */
static void put_use(struct looks *looks, uint64_t end_ns, struct arrow *arrow)
{
	const struct resource_samples *samples = &looks->samples;
	const struct rec_resources *now = look_before(samples, end_ns, &looks->at), *before = looks->last;
	int64_t cpu_ns = -1, rss_bytes = -1;

	if (!before && samples->cnt)
		before = &samples->items[0];
	if (now && now != before) {
		cpu_ns = now->user_ns + now->system_ns - before->user_ns - before->system_ns;
		rss_bytes = now->known & RESOURCES_MEMORY ? (int64_t)now->rss_bytes : -1;
	}
	tables__put_known(arrow, cpu_ns);
	tables__put_known(arrow, rss_bytes);
	looks->last = now;
}

/* What else is known of a minute: sums, and how many readings they are of. */
struct minute_use {
	uint64_t throttled_ns, throttles;
	double busy_percent, mhz, milliwatts;
	size_t busy_percent_cnt, mhz_cnt, milliwatts_cnt;
};

/* NULL: it is not in one of the process's minutes. */
static struct minute_use *use_at(const struct job *job, const struct minutes_of *of, struct minute_use *uses,
				 uint64_t time_ns)
{
	int64_t minute = job__minute(job, time_ns) - of->first;

	return minute < 0 || minute >= (int64_t)of->cnt ? NULL : &uses[minute];
}

/* How long its quotas were used up, between looks a second apart. */
static void add_throttles(struct job *job, const struct minutes_of *of, struct minute_use *uses)
{
	size_t cnt;
	const struct rec_throttle *all = resources__throttles(job__resources(job), &cnt);

	for (size_t i = 1; i < cnt; i++) {
		const struct rec_throttle *a = &all[i - 1], *b = &all[i];
		struct minute_use *use;

		if (a->pid != of->target->pid || b->pid != a->pid || a->group != b->group ||
		    b->throttled_ns < a->throttled_ns)
			continue;
		use = use_at(job, of, uses, b->time_ns);
		if (!use)
			continue;
		use->throttled_ns = saturating__add(use->throttled_ns, b->throttled_ns - a->throttled_ns);
		use->throttles++;
	}
}

static void add_readings_of(const struct job *job, const struct gpu_readings *one, const struct minutes_of *of,
			    struct minute_use *uses)
{
	for (size_t i = 0; i < one->cnt; i++) {
		const struct rec_gpu_usage *reading = &one->items[i];
		struct minute_use *use = use_at(job, of, uses, reading->time_ns);

		if (!use)
			continue;
#define ADD(sum, value) use->sum += value == GPU_UNKNOWN ? 0 : value, use->sum##_cnt += value != GPU_UNKNOWN
		ADD(busy_percent, reading->busy_percent);
		ADD(mhz, reading->sm_mhz);
		ADD(milliwatts, reading->power_mw);
#undef ADD
	}
}

/* Of the GPUs that it uses, as far as that is known; or of the machine's only one. */
static void add_gpu_readings(const struct job *job, const struct gpu *gpu, const struct minutes_of *of,
			     struct minute_use *uses)
{
	struct gpu_readings all = gpu_readings__of(job, gpu), one = gpu_readings__next(&all);
	bool is_only = !all.cnt;

	for (; one.cnt; one = gpu_readings__next(&all))
		if (is_only || gpu__uses(gpu, of->target->pid, one.items->device))
			add_readings_of(job, &one, of, uses);
}

static void put_more_use(const struct minute_use *use, struct arrow *arrow)
{
	tables__put_known(arrow, use->throttles && use->throttled_ns <= INT64_MAX ? (int64_t)use->throttled_ns : -1);
	put_ratio(arrow, use->busy_percent_cnt, use->busy_percent / 100 / use->busy_percent_cnt);
	put_ratio(arrow, use->mhz_cnt, use->mhz / use->mhz_cnt);
	put_ratio(arrow, use->milliwatts_cnt, use->milliwatts / 1000 / use->milliwatts_cnt);
}

static void put_window(struct tables *tables, const struct minutes_of *of, size_t i, struct looks *looks,
		       const struct minute_use *use, struct arrow *arrow)
{
	const struct minute *minute = &of->minutes[i];
	uint64_t end_ns = (of->first + i + 1) * MINUTE_NS - job__wall_ns(tables->job, 0);

	tables__put_key(tables, of, arrow);
	tables__put_minute(arrow, of->first + i);
	arrow__int(arrow, minute->seen_ns);
	arrow__int(arrow, minute->rested_ns);
	arrow__int(arrow, minute->steps);
	arrow__int(arrow, minute->rest_steps);
	arrow__int(arrow, minute->step_ns);
	arrow__int(arrow, minute->longest_ns);
	for (int p = 0; p < PHASE__COUNT; p++)
		arrow__int(arrow, minute->phase_ns[p]);
	tables__put_known(arrow, minute->waits ? (int64_t)minute->on_cpu_ns : -1);
	arrow__int(arrow, minute->gc_ns);
	arrow__int(arrow, minute->slow_steps);
	arrow__int(arrow, lost(tables->job));
	put_cost(tables->job, of->target->pid, arrow);
	put_use(looks, end_ns, arrow);
	put_more_use(use, arrow);
	arrow__end_row(arrow);
}

static int put_windows(struct tables *tables, struct arrow *arrow)
{
	const struct gpu *gpu = job__gpu(tables->job);
	const struct minutes_of *of;
	size_t at = 0;

	while (gpu && (of = tables__next(tables, &at))) {
		struct looks looks = {.samples = resource_samples__of(tables->job, of->target->pid)};
		struct minute_use *uses = calloc(of->cnt, sizeof(*uses));

		if (!uses)
			return -ENOMEM;
		add_throttles(tables->job, of, uses);
		add_gpu_readings(tables->job, gpu, of, uses);
		for (size_t i = 0; i < of->cnt; i++)
			if (of->minutes[i].seen_ns || of->minutes[i].rested_ns || of->minutes[i].steps)
				put_window(tables, of, i, &looks, &uses[i], arrow);
		free(uses);
	}
	return gpu ? 0 : -ENOMEM;
}

const struct table table_windows = {COLUMNS(window_columns), put_windows};

/* ---- steps ---- */

/* The thread was on the CPU (CAUSE_NONE), or waited. */
#define CAUSE_COLUMN(id, name) NULLABLE(sizeof(name) == 1 ? "oncpu_ns" : "wait_" name "_ns", INT64),

static const struct arrow_column step_columns[] = {
	KEY_COLUMNS,
	COLUMN("minute", TIME),
	COLUMN("start", TIME),
	COLUMN("step", INT64),
	COLUMN("duration_ns", INT64),
	STEPFLAME_PHASES(PHASE_COLUMN) COLUMN("gc_ns", INT64),
	STEPFLAME_WAIT_CAUSES(CAUSE_COLUMN) STEPFLAME_REFINED_CAUSES(CAUSE_COLUMN) NULLABLE("cause", TEXT),
};

static void put_step(struct tables *tables, const struct minutes_of *of, const struct step *step, const char *cause,
		     struct arrow *arrow)
{
	uint64_t ns[CAUSE__END] = {0};

	for (uint32_t i = 0; i < step->part_cnt; i++)
		ns[step->parts[i].cause] += step->parts[i].ns;
	tables__put_key(tables, of, arrow);
	tables__put_minute(arrow, job__minute(tables->job, step->end_ns));
	tables__put_time(tables, step->start_ns, arrow);
	arrow__int(arrow, step->index);
	arrow__int(arrow, step__ns(step));
	for (int p = 0; p < PHASE__COUNT; p++)
		arrow__int(arrow, step->phase_ns[p]);
	arrow__int(arrow, step->gc_ns);
	for (int c = 0; c < CAUSE__END; c++)
		tables__put_known(arrow, of->track->thread ? (int64_t)ns[c] : -1);
	arrow__text(arrow, cause);
	arrow__end_row(arrow);
}

static int put_steps(struct tables *tables, struct arrow *arrow)
{
	const struct minutes_of *of;
	size_t at = 0;

	while ((of = tables__next(tables, &at))) {
		const struct step_track *track = of->track;
		size_t slow = 0;

		for (size_t i = 0; track && i < track->step_cnt; i++) {
			const char *cause = NULL;

			if (slow < track->slow_cnt && track->slow[slow] == i)
				cause = blame_cause__name(of->blame.groups[of->blame.steps[slow++].group].cause);
			put_step(tables, of, &track->steps[i], cause, arrow);
		}
	}
	return 0;
}

const struct table table_steps = {COLUMNS(step_columns), put_steps};

/* ---- waits ---- */

static const struct arrow_column wait_columns[] = {
	KEY_COLUMNS,           COLUMN("minute", TIME),  COLUMN("phase", TEXT),
	COLUMN("cause", TEXT), NULLABLE("place", TEXT), COLUMN("n", INT64),
	COLUMN("ns", INT64),
};

static int put_wait(struct tables *tables, const struct minutes_of *of, size_t minute, size_t number,
		    struct arrow *arrow)
{
	const struct minute_wait *wait = &of->minutes[minute].waits[number];
	char *place = wait->hotspot.code ? hotspot__text(tables->job, &wait->hotspot) : NULL;

	if (wait->hotspot.code && !place)
		return -ENOMEM;
	tables__put_key(tables, of, arrow);
	tables__put_minute(arrow, of->first + minute);
	arrow__text(arrow, phase__name(number / CAUSE__END));
	arrow__text(arrow, sample_cause__name(number % CAUSE__END));
	arrow__text(arrow, place);
	arrow__int(arrow, wait->cnt);
	arrow__int(arrow, wait->ns);
	arrow__end_row(arrow);
	free(place);
	return 0;
}

static int put_waits(struct tables *tables, struct arrow *arrow)
{
	const struct minutes_of *of;
	size_t at = 0;
	int err = 0;

	while (!err && (of = tables__next(tables, &at)))
		for (size_t i = 0; i < of->cnt; i++)
			for (size_t w = 0; !err && of->minutes[i].waits && w < PHASE__COUNT * CAUSE__END; w++)
				if (of->minutes[i].waits[w].ns)
					err = put_wait(tables, of, i, w, arrow);
	return err;
}

const struct table table_waits = {COLUMNS(wait_columns), put_waits};
