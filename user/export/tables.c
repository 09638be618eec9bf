// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A recording as tables, written as Arrow IPC: for each its columns, and a function that puts its rows. To
 * add one: these, and a line in TABLES at the end. docs/tables.md describes them.
 */
#include "user/export/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/cause/minutes.h"
#include "user/analysis/gpu/gpu_ops.h"
#include "user/analysis/gpu/gpu_readings.h"
#include "user/analysis/gpu/gpu_time.h"
#include "user/analysis/resources/resources.h"
#include "user/export/arrow.h"
#include "user/identity/job_id.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/lib/utf8.h"
#include "user/model/gpu.h"
#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/model/resources.h"
#include "user/model/rests.h"
#include "user/report/common.h"

/* What all rows of a process say. */
struct table_key {
	char job[160], host[72];
};

struct tables {
	struct job *job;
	struct steps *steps;
	struct minutes *minutes;
	struct table_key *keys; /* by index in minutes__all */
	uint32_t pid;           /* 0: all */
};

struct table {
	const struct arrow_column *columns;
	size_t column_cnt;
	int (*put)(struct tables *tables, struct arrow *arrow); /* all rows. 0 or -ENOMEM */
};

#define COLUMN(name, type)                \
	{                                 \
		name, ARROW_##type, false \
	}
#define NULLABLE(name, type)             \
	{                                \
		name, ARROW_##type, true \
	}

#define COLUMNS(list) .columns = (list), .column_cnt = sizeof(list) / sizeof(*(list))

/* The columns that say which process a row is of. */
#define KEY_COLUMNS                                                      \
	COLUMN("job", TEXT), COLUMN("host", TEXT), COLUMN("pid", INT32), \
	{                                                                \
		"rank", ARROW_INT32, true                                \
	}

#define PHASE_COLUMN(id, name) COLUMN(name "_ns", INT64),

/* ---- keys ---- */

/* Where its ranks meet, which those of a job without a name have in common: "HOST-29500". `far`: only if that is not on each one's own host. */
static void put_meeting(const struct rec_job *known, const char *host, bool far, char *job, size_t size)
{
	char address[80];
	char *port;
	bool own;

	snprintf(address, sizeof(address), "%.*s", (int)sizeof(known->meets), known->meets);
	port = strchr(address, ' ');
	if (!port || known->world_size == 1)
		return;
	*port++ = 0;
	own = !strncmp(address, "127.", 4) || !strcmp(address, "localhost") || !strcmp(address, "::1");
	if (!own || !far)
		snprintf(job, size, "%s-%s", own ? host : address, port);
}

/*
 * The process that has started a rank and others of the same job: of those without a name, each has another rank. The rank's own: it has started
 * one alone, or ranks of several jobs.
 */
static uint32_t starter_of(const struct job *job, const struct rec_target *target)
{
	size_t cnt, siblings = 0;
	const struct rec_target *all = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		bool sibling = all[i].role == ROLE_MAIN && all[i].parent_pid == target->parent_pid && all[i].rank >= 0;

		if (sibling && all[i].pid != target->pid && all[i].rank == target->rank)
			return target->pid;
		siblings += sibling;
	}
	return target->rank >= 0 && siblings > 1 ? target->parent_pid : target->pid;
}

static void find_key(struct job *job, const struct rec_target *target, struct table_key *key)
{
	const struct rec_job *known = resources__job(job__resources(job), target->pid);
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	const char *other = job__target_host(job, target - targets);

	snprintf(key->host, sizeof(key->host), "%.64s", other ?: job__host(job)->hostname);
	if (known)
		snprintf(key->job, sizeof(key->job), "%.64s", known->name);
	/* each rank of a job may be in a container of its own */
	if (known && (!key->job[0] || known->launcher == LAUNCHER_CONTAINER))
		put_meeting(known, key->host, key->job[0], key->job, sizeof(key->job));
	if (!key->job[0])
		snprintf(key->job, sizeof(key->job), "%s-pid-%u", key->host, REC_PID(starter_of(job, target)));
}

static int find_keys(struct tables *tables)
{
	size_t cnt;
	const struct minutes_of *all = minutes__all(tables->minutes, &cnt);

	tables->keys = calloc(cnt + 1, sizeof(*tables->keys));
	for (size_t i = 0; tables->keys && i < cnt; i++)
		find_key(tables->job, all[i].target, &tables->keys[i]);
	return tables->keys ? 0 : -ENOMEM;
}

/* ---- all tables ---- */

struct tables *tables__new(struct job *job, uint32_t pid, int *err)
{
	struct tables *tables = calloc(1, sizeof(*tables));

	*err = -ENOMEM;
	if (!tables)
		return NULL;
	tables->job = job;
	tables->pid = pid;
	tables->steps = steps__new(job);
	if (tables->steps)
		tables->minutes = minutes__new(job, tables->steps, err);
	if (tables->minutes)
		*err = find_keys(tables);
	if (!*err)
		return tables;
	tables__free(tables);
	return NULL;
}

void tables__free(struct tables *tables)
{
	if (!tables)
		return;
	free(tables->keys);
	minutes__free(tables->minutes);
	steps__free(tables->steps);
	free(tables);
}

/* The next process of the tables that is to be written; set *at to 0 before the first call. NULL: no more. */
static const struct minutes_of *next_process(const struct tables *tables, size_t *at)
{
	size_t cnt;
	const struct minutes_of *all = minutes__all(tables->minutes, &cnt);

	while (*at < cnt) {
		const struct minutes_of *of = &all[(*at)++];

		if (!tables->pid || of->target->pid == tables->pid)
			return of;
	}
	return NULL;
}

bool tables__any_process(const struct tables *tables)
{
	size_t at = 0;

	return next_process(tables, &at);
}

/* NULL: the process has no rows. */
static const struct minutes_of *known_process(const struct tables *tables, uint32_t pid)
{
	size_t at = 0;
	const struct minutes_of *of;

	while ((of = next_process(tables, &at)))
		if (of->target->pid == pid)
			return of;
	return NULL;
}

static void put_known(struct arrow *arrow, int64_t value)
{
	if (value < 0)
		arrow__null(arrow);
	else
		arrow__int(arrow, value);
}

static void put_table_key(const struct tables *tables, const struct minutes_of *of, struct arrow *arrow)
{
	size_t cnt;
	const struct table_key *key = &tables->keys[of - minutes__all(tables->minutes, &cnt)];

	arrow__text(arrow, key->job);
	arrow__text(arrow, key->host);
	arrow__int(arrow, REC_PID(of->target->pid));
	put_known(arrow, of->target->rank);
}

static void put_minute(struct arrow *arrow, int64_t minute)
{
	arrow__int(arrow, minute * 60 * 1000000);
}

static void put_time(const struct tables *tables, uint64_t monotonic_ns, struct arrow *arrow)
{
	arrow__int(arrow, job__wall_ns(tables->job, monotonic_ns) / 1000);
}

/* ---- ranks ---- */

static const struct arrow_column rank_columns[] = {
	KEY_COLUMNS,
	NULLABLE("local_rank", INT32),
	NULLABLE("world_size", INT32),
	COLUMN("launcher", TEXT),
	NULLABLE("job_id", TEXT),
	NULLABLE("restarts", INT32),
	NULLABLE("uid", INT64),
	NULLABLE("cgroup", TEXT),
	NULLABLE("gpu", TEXT),
	COLUMN("cpus", INT32),
	NULLABLE("python", TEXT),
	NULLABLE("torch", TEXT),
	NULLABLE("jax", TEXT),
	COLUMN("stepflame", TEXT),
	COLUMN("kernel", TEXT),
	NULLABLE("steps_by", TEXT),
	COLUMN("since", TIME),
	COLUMN("until", TIME),
	COLUMN("ended", BOOL),
	NULLABLE("ending", TEXT),
};

/* A text that is not 0-terminated when full. empty: what "" becomes. */
static void put_field(struct arrow *arrow, const char *field, size_t bytes, const char *empty)
{
	char text[512];

	utf8__copy(text, sizeof(text), field, bytes);
	arrow__text(arrow, text[0] ? text : empty);
}

#define PUT_FIELD(arrow, field) put_field(arrow, field, sizeof(field), NULL)

static void put_job(const struct tables *tables, uint32_t pid, struct arrow *arrow)
{
	static const struct rec_job unknown = {
		.uid = JOB_UID_UNKNOWN, .local_rank = -1, .world_size = -1, .restarts = -1};
	const struct rec_job *known = resources__job(job__resources(tables->job), pid) ?: &unknown;

	put_known(arrow, known->local_rank);
	put_known(arrow, known->world_size);
	arrow__text(arrow, launcher__name(known->launcher));
	PUT_FIELD(arrow, known->id);
	put_known(arrow, known->restarts);
	put_known(arrow, known->uid == JOB_UID_UNKNOWN ? -1 : (int64_t)known->uid);
	PUT_FIELD(arrow, known->cgroup);
}

static const char *gpu_of(const struct gpu *gpu, uint32_t pid)
{
	size_t cnt;
	const struct rec_gpu_device *devices = gpu__devices(gpu, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (devices[i].pid == pid)
			return devices[i].name;
	return NULL;
}

static int put_ranks(struct tables *tables, struct arrow *arrow)
{
	const struct rec_host *host = job__host(tables->job);
	const struct gpu *gpu = job__gpu(tables->job);
	const struct minutes_of *of;
	size_t at = 0;

	while (gpu && (of = next_process(tables, &at))) {
		const struct rec_target *target = of->target;
		const struct rec_proc *exit = job__exit(tables->job, target->pid);
		char *ending = exit ? processes__end_text(exit->exit_code) : NULL;

		put_table_key(tables, of, arrow);
		put_job(tables, target->pid, arrow);
		arrow__text(arrow, gpu_of(gpu, target->pid));
		arrow__int(arrow, host->cpus);
		PUT_FIELD(arrow, target->python);
		PUT_FIELD(arrow, target->torch);
		PUT_FIELD(arrow, target->jax);
		put_field(arrow, host->version, sizeof(host->version), "");
		put_field(arrow, host->kernel, sizeof(host->kernel), "");
		arrow__text(arrow, of->track ? common__step_rule_name(of->track->rule) : NULL);
		put_time(tables, of->since_ns, arrow);
		put_time(tables, of->until_ns, arrow);
		arrow__int(arrow, exit != NULL);
		arrow__text(arrow, ending);
		arrow__end_row(arrow);
		free(ending);
	}
	return gpu ? 0 : -ENOMEM;
}

static const struct table table_ranks = {COLUMNS(rank_columns), put_ranks};

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

static uint64_t lost_in_job(struct job *job)
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
static const struct rec_resources *reading_before(const struct resource_samples *samples, uint64_t time_ns, size_t *at)
{
	while (*at < samples->cnt && samples->items[*at].time_ns <= time_ns)
		++*at;
	return *at ? &samples->items[*at - 1] : NULL;
}

struct readings {
	struct resource_samples samples;
	size_t at;
	const struct rec_resources *last; /* before the minute */
};

/* What it used between the last reading before the minute, or the first of all, and the last one in it: readings are a second apart. */
static void put_use(struct readings *readings, uint64_t end_ns, struct arrow *arrow)
{
	const struct resource_samples *samples = &readings->samples;
	const struct rec_resources *now = reading_before(samples, end_ns, &readings->at), *before = readings->last;
	int64_t cpu_ns = -1, rss_bytes = -1;

	if (!before && samples->cnt)
		before = &samples->items[0];
	if (now && now != before) {
		cpu_ns = now->user_ns + now->system_ns - before->user_ns - before->system_ns;
		rss_bytes = now->known & RESOURCES_MEMORY ? (int64_t)now->rss_bytes : -1;
	}
	put_known(arrow, cpu_ns);
	put_known(arrow, rss_bytes);
	readings->last = now;
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

/* How long its quotas were used up, between readings a second apart. */
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
	put_known(arrow, use->throttles && use->throttled_ns <= INT64_MAX ? (int64_t)use->throttled_ns : -1);
	put_ratio(arrow, use->busy_percent_cnt, use->busy_percent / 100 / use->busy_percent_cnt);
	put_ratio(arrow, use->mhz_cnt, use->mhz / use->mhz_cnt);
	put_ratio(arrow, use->milliwatts_cnt, use->milliwatts / 1000 / use->milliwatts_cnt);
}

static void put_window(struct tables *tables, const struct minutes_of *of, size_t i, struct readings *readings,
		       const struct minute_use *use, struct arrow *arrow)
{
	const struct minute *minute = &of->minutes[i];
	uint64_t end_ns = (of->first + i + 1) * MINUTE_NS - job__wall_ns(tables->job, 0);

	put_table_key(tables, of, arrow);
	put_minute(arrow, of->first + i);
	arrow__int(arrow, minute->seen_ns);
	arrow__int(arrow, minute->rested_ns);
	arrow__int(arrow, minute->steps);
	arrow__int(arrow, minute->rest_steps);
	arrow__int(arrow, minute->step_ns);
	arrow__int(arrow, minute->longest_ns);
	for (int p = 0; p < PHASE__COUNT; p++)
		arrow__int(arrow, minute->phase_ns[p]);
	put_known(arrow, minute->waits ? (int64_t)minute->on_cpu_ns : -1);
	arrow__int(arrow, minute->gc_ns);
	arrow__int(arrow, minute->slow_steps);
	arrow__int(arrow, lost_in_job(tables->job));
	put_cost(tables->job, of->target->pid, arrow);
	put_use(readings, end_ns, arrow);
	put_more_use(use, arrow);
	arrow__end_row(arrow);
}

static int put_windows(struct tables *tables, struct arrow *arrow)
{
	const struct gpu *gpu = job__gpu(tables->job);
	const struct minutes_of *of;
	size_t at = 0;

	while (gpu && (of = next_process(tables, &at))) {
		struct readings readings = {.samples = resource_samples__of(tables->job, of->target->pid)};
		struct minute_use *uses = calloc(of->cnt, sizeof(*uses));

		if (!uses)
			return -ENOMEM;
		add_throttles(tables->job, of, uses);
		add_gpu_readings(tables->job, gpu, of, uses);
		for (size_t i = 0; i < of->cnt; i++)
			if (of->minutes[i].seen_ns || of->minutes[i].rested_ns || of->minutes[i].steps)
				put_window(tables, of, i, &readings, &uses[i], arrow);
		free(uses);
	}
	return gpu ? 0 : -ENOMEM;
}

static const struct table table_windows = {COLUMNS(window_columns), put_windows};

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
	put_table_key(tables, of, arrow);
	put_minute(arrow, job__minute(tables->job, step->end_ns));
	put_time(tables, step->start_ns, arrow);
	arrow__int(arrow, step->index);
	arrow__int(arrow, step__ns(step));
	for (int p = 0; p < PHASE__COUNT; p++)
		arrow__int(arrow, step->phase_ns[p]);
	arrow__int(arrow, step->gc_ns);
	for (int c = 0; c < CAUSE__END; c++)
		put_known(arrow, of->track->thread ? (int64_t)ns[c] : -1);
	arrow__text(arrow, cause);
	arrow__end_row(arrow);
}

static int put_steps(struct tables *tables, struct arrow *arrow)
{
	const struct minutes_of *of;
	size_t at = 0;

	while ((of = next_process(tables, &at))) {
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

static const struct table table_steps = {COLUMNS(step_columns), put_steps};

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
	put_table_key(tables, of, arrow);
	put_minute(arrow, of->first + minute);
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

	while (!err && (of = next_process(tables, &at)))
		for (size_t i = 0; i < of->cnt; i++)
			for (size_t w = 0; !err && of->minutes[i].waits && w < PHASE__COUNT * CAUSE__END; w++)
				if (of->minutes[i].waits[w].ns)
					err = put_wait(tables, of, i, w, arrow);
	return err;
}

static const struct table table_waits = {COLUMNS(wait_columns), put_waits};

/* Of a sample: the number of its stack, or without Python frames its native function, a REC_NAME id. */
struct stack_key {
	uint64_t stack, native;
};

/* ---- stacks ---- */

/* "train.py:42 main": malloc'ed; NULL: no memory. */
static char *frame_text(struct job *job, const struct frame *frame)
{
	struct code code = stacks__code(job__stacks(job), frame->code);
	struct hotspot line = {.code = frame->code, .line = code__line(&code, frame->offset), .ns = 1};

	return hotspot__text(job, &line);
}

/* What the frames of a stack are called: the same on all hosts, so that a hash of them tells stacks apart. */
struct frame_texts {
	char **texts; /* outermost first */
	size_t cnt;
};

static void release_texts(struct frame_texts *texts)
{
	for (size_t i = 0; i < texts->cnt; i++)
		free(texts->texts[i]);
	free(texts->texts);
}

static int make_texts(struct job *job, const struct stack_key *key, struct frame_texts *out)
{
	struct stack stack = stacks__stack(job__stacks(job), key->stack);
	const char *native = key->native ? job__name_or_lost(job, key->native) : NULL;

	*out = (struct frame_texts){.texts = calloc(stack.cnt + 1, sizeof(*out->texts))};
	if (!out->texts)
		return -ENOMEM;
	for (size_t i = stack.cnt; i-- > 0;) {
		char *text = frame_text(job, &stack.frames[i]);

		if (!text)
			return -ENOMEM;
		out->texts[out->cnt++] = text;
	}
	if (!stack.cnt) {
		out->texts[0] = strdup(native ?: "(no Python frames)");
		out->cnt = out->texts[0] != NULL;
	}
	return out->cnt ? 0 : -ENOMEM;
}

/* FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/), of the texts with the 0 behind each. */
static int64_t hash_of(const struct frame_texts *texts)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < texts->cnt; i++)
		for (const char *c = texts->texts[i];; c++) {
			hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
			if (!*c)
				break;
		}
	return hash;
}

/* The hash of a stack. */
struct stack_id {
	struct stack_key key;
	int64_t id;
};

/* `ids`: those that are known already, struct stack_id. 0 or -ENOMEM. */
static int find_id(struct tables *tables, const struct sample *sample, struct map *ids, const struct stack_id **out)
{
	struct stack stack = stacks__stack(job__stacks(tables->job), sample->stack);
	const struct stack_key key = {.stack = stack.known ? sample->stack : 0,
				      .native = stack.known && stack.cnt ? 0 : sample->native};
	struct frame_texts texts;
	struct stack_id *id;
	int err;

	*out = MAP_FIND(ids, struct stack_id, &key);
	if (*out)
		return 0;
	err = make_texts(tables->job, &key, &texts);
	*out = id = err ? NULL : MAP_ADD(ids, struct stack_id, &key);
	if (id)
		id->id = hash_of(&texts);
	release_texts(&texts);
	return id ? 0 : -ENOMEM;
}

/* Calls fn with each sample of the tables' processes, until it returns nonzero, and returns that. 0 or -ENOMEM. */
static int each_sample(struct tables *tables,
		       int (*fn)(struct tables *tables, const struct minutes_of *of, const struct sample *sample,
				 const struct stack_id *id, void *ctx),
		       void *ctx)
{
	const struct samples *samples = job__samples(tables->job);
	struct map ids = {0};
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);
		const struct minutes_of *of = known_process(tables, sample.pid);
		const struct stack_id *id;

		if (!of)
			continue;
		err = find_id(tables, &sample, &ids, &id);
		if (!err)
			err = fn(tables, of, &sample, id, ctx);
	}
	map__free(&ids);
	return err;
}

static const struct arrow_column stack_columns[] = {
	COLUMN("stack", INT64),
	COLUMN("frames", TEXTS),
};

struct put_stacks {
	struct arrow *arrow;
	struct intern done; /* ids; different instructions of one line are one stack */
};

static int put_stack(struct tables *tables, const struct minutes_of *of, const struct sample *sample,
		     const struct stack_id *id, void *ctx)
{
	struct put_stacks *put = ctx;
	struct frame_texts texts;
	uint32_t number;
	int err;

	if (intern__find(&put->done, id->id))
		return 0;
	err = intern__add(&put->done, id->id, &number) ?: make_texts(tables->job, &id->key, &texts);
	if (err)
		return err;
	arrow__int(put->arrow, id->id);
	for (size_t i = 0; i < texts.cnt; i++)
		arrow__item(put->arrow, texts.texts[i]);
	arrow__end_list(put->arrow);
	arrow__end_row(put->arrow);
	release_texts(&texts);
	return 0;
}

static int put_stacks(struct tables *tables, struct arrow *arrow)
{
	struct put_stacks put = {.arrow = arrow};
	int err = each_sample(tables, put_stack, &put);

	intern__free(&put.done);
	return err;
}

static const struct table table_stacks = {COLUMNS(stack_columns), put_stacks};

/* ---- samples ---- */

static const struct arrow_column sample_columns[] = {
	KEY_COLUMNS,          COLUMN("minute", TIME),     NULLABLE("phase", TEXT),
	COLUMN("main", BOOL), NULLABLE("cause", TEXT),    COLUMN("stack", INT64),
	COLUMN("n", INT64),   COLUMN("weight_ns", INT64),
};

struct sample_row {
	struct {
		int64_t minute, stack;
		uint32_t pid;
		uint16_t cause;
		int16_t phase; /* -1: not the thread that makes the steps */
	} key;
	uint64_t cnt, weight_ns;
};

static int add_sample(struct tables *tables, const struct minutes_of *of, const struct sample *sample,
		      const struct stack_id *id, void *rows)
{
	bool main = of->track && sample->thread == of->track->thread;
	struct sample_row *row;
	const __typeof__(row->key) key = {
		.minute = job__minute(tables->job, sample->time_ns),
		.stack = id->id,
		.pid = sample->pid,
		.cause = sample->cause,
		.phase = main ? (int16_t)step_track__phase(of->track, tables->steps, sample) : -1,
	};

	row = MAP_ADD((struct map *)rows, struct sample_row, &key);
	if (!row)
		return -ENOMEM;
	row->cnt += sample->waits ?: 1;
	row->weight_ns += sample->weight_ns;
	return 0;
}

static int put_samples(struct tables *tables, struct arrow *arrow)
{
	struct map rows = {0};
	int err = each_sample(tables, add_sample, &rows);
	const struct sample_row *all = rows.items.items;

	for (size_t i = 0; i < rows.items.cnt && !err; i++) {
		const struct sample_row *row = &all[i];

		put_table_key(tables, known_process(tables, row->key.pid), arrow);
		put_minute(arrow, row->key.minute);
		arrow__text(arrow, row->key.phase < 0 ? NULL : phase__name(row->key.phase));
		arrow__int(arrow, row->key.phase >= 0);
		arrow__text(arrow, row->key.cause ? sample_cause__name(row->key.cause) : NULL);
		arrow__int(arrow, row->key.stack);
		arrow__int(arrow, row->cnt);
		arrow__int(arrow, row->weight_ns);
		arrow__end_row(arrow);
	}
	map__free(&rows);
	return err;
}

static const struct table table_samples = {COLUMNS(sample_columns), put_samples};

#define SPAN_COLUMNS COLUMN("since", TIME), COLUMN("until", TIME), COLUMN("kind", TEXT), COLUMN("name", TEXT)

static void put_window_of(const struct tables *tables, uint64_t from_ns, uint64_t to_ns, struct arrow *arrow)
{
	put_time(tables, from_ns, arrow);
	put_time(tables, to_ns, arrow);
}

/* ---- actions ---- */

static const struct arrow_column action_columns[] = {
	KEY_COLUMNS,
	SPAN_COLUMNS,
	COLUMN("n", INT64),
	COLUMN("total_ns", INT64),
	COLUMN("self_ns", INT64),
	COLUMN("min_ns", INT64),
	COLUMN("max_ns", INT64),
};

static int put_actions(struct tables *tables, struct arrow *arrow)
{
	const struct rec_window *window = job__window(tables->job);
	size_t cnt;
	const struct job_action *actions = job__actions(tables->job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct job_action *action = &actions[i];
		const struct minutes_of *of = known_process(tables, action->pid);

		if (!of)
			continue;
		put_table_key(tables, of, arrow);
		put_window_of(tables, window->start_ns, of->until_ns, arrow);
		arrow__text(arrow, labels__kind(action->kind));
		arrow__text(arrow, action->name);
		arrow__int(arrow, action->val.calls);
		arrow__int(arrow, action->val.total_ns);
		arrow__int(arrow, action->val.self_ns);
		arrow__int(arrow, action->val.min_ns);
		arrow__int(arrow, action->val.max_ns);
		arrow__end_row(arrow);
	}
	return 0;
}

static const struct table table_actions = {COLUMNS(action_columns), put_actions};

/* ---- operators ---- */

static const struct arrow_column op_columns[] = {
	KEY_COLUMNS,
	SPAN_COLUMNS,
	NULLABLE("action", TEXT),
	COLUMN("n", INT64),
	COLUMN("total_ns", INT64),
	COLUMN("self_ns", INT64),
	COLUMN("self_cpu_bytes", INT64),
	COLUMN("self_device_bytes", INT64),
};

/* The rows of one operator in one action, whatever their overloads and shapes. */
struct op_sum {
	struct {
		uint64_t action;
		uint32_t name; /* index among the names */
		uint32_t pid, kind, pad;
	} key;
	const struct op_row *row; /* the first of them */
	struct op_val val;
};

static int add_ops(const struct tables *tables, const struct op_row *rows, size_t cnt, struct map *names,
		   struct map *sums)
{
	for (size_t i = 0; i < cnt; i++) {
		struct op_sum *sum;
		__typeof__(sum->key) key = {.action = rows[i].action_id, .pid = rows[i].pid, .kind = rows[i].kind};

		if (!known_process(tables, rows[i].pid))
			continue;
		if (map__add_text(names, rows[i].name, &key.name))
			return -ENOMEM;
		sum = MAP_ADD(sums, struct op_sum, &key);
		if (!sum)
			return -ENOMEM;
		sum->row = sum->row ?: &rows[i];
		sum->val.calls += rows[i].val.calls;
		sum->val.total_ns += rows[i].val.total_ns;
		sum->val.self_ns += rows[i].val.self_ns;
		for (int m = 0; m < OP_MEMORY__COUNT; m++)
			sum->val.self_bytes[m] += (uint64_t)rows[i].val.self_bytes[m];
	}
	return 0;
}

static int put_ops(struct tables *tables, struct arrow *arrow)
{
	const struct rec_window *window = job__window(tables->job);
	struct map names = {0}, sums = {0};
	size_t cnt;
	const struct op_row *rows = job__ops(tables->job, &cnt);
	int err = add_ops(tables, rows, cnt, &names, &sums);
	const struct op_sum *all = sums.items.items;

	for (size_t i = 0; i < sums.items.cnt && !err; i++) {
		const struct op_row *row = all[i].row;
		const struct minutes_of *of = known_process(tables, row->pid);

		put_table_key(tables, of, arrow);
		put_window_of(tables, window->start_ns, of->until_ns, arrow);
		arrow__text(arrow, labels__kind(row->kind));
		arrow__text(arrow, row->name);
		arrow__text(arrow, row->action);
		arrow__int(arrow, all[i].val.calls);
		arrow__int(arrow, all[i].val.total_ns);
		arrow__int(arrow, all[i].val.self_ns);
		arrow__int(arrow, all[i].val.self_bytes[OP_MEMORY_CPU]);
		arrow__int(arrow, all[i].val.self_bytes[OP_MEMORY_DEVICE]);
		arrow__end_row(arrow);
	}
	map__free(&sums);
	map__free_texts(&names);
	return err;
}

static const struct table table_ops = {COLUMNS(op_columns), put_ops};

/* ---- GPUs ---- */

static const struct arrow_column gpu_columns[] = {
	KEY_COLUMNS, COLUMN("device", INT32), SPAN_COLUMNS, COLUMN("n", INT64), COLUMN("ns", INT64),
};

struct gpu_sum {
	struct {
		uint64_t name;
		uint32_t pid, window; /* window: index in gpu__windows */
		uint32_t kind, direction;
		uint32_t device, pad;
	} key;
	uint64_t cnt, ns;
};

static int add_gpu_work(const struct tables *tables, const struct gpu *gpu, struct map *sums)
{
	size_t cnt, window_cnt;
	const struct gpu_act *acts = gpu__activities(gpu, &cnt);
	const struct rec_gpu_window *windows = gpu__windows(gpu, &window_cnt);

	for (size_t i = 0; i < cnt; i++) {
		size_t w = 0;
		struct gpu_sum *sum;

		if (!gpu_act__is_work(&acts[i]) || !known_process(tables, acts[i].pid))
			continue;
		while (w < window_cnt && (windows[w].pid != acts[i].pid || windows[w].end_ns < acts[i].start_ns))
			w++;
		const __typeof__(sum->key) key = {acts[i].name,      acts[i].pid,    w, acts[i].kind,
						  acts[i].direction, acts[i].device, 0};

		sum = MAP_ADD(sums, struct gpu_sum, &key);
		if (!sum)
			return -ENOMEM;
		sum->cnt++;
		sum->ns += acts[i].duration_ns;
	}
	return 0;
}

/* What all rows of a process's GPU begin with. window: index in gpu__windows; behind the last one: all of the recording. */
static void put_gpu_key(const struct tables *tables, const struct gpu *gpu, uint32_t pid, uint32_t device,
			size_t window, struct arrow *arrow)
{
	const struct rec_window *whole = job__window(tables->job);
	size_t cnt;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &cnt);
	bool known = window < cnt;

	put_table_key(tables, known_process(tables, pid), arrow);
	arrow__int(arrow, (int32_t)device);
	put_window_of(tables, known ? windows[window].start_ns : whole->start_ns,
		      known ? windows[window].end_ns : whole->end_ns, arrow);
}

static int put_gpu_sum(struct tables *tables, const struct gpu *gpu, const struct gpu_sum *sum, struct arrow *arrow)
{
	static const char *const kinds[] = {[GPU_ACTIVITY_KERNEL] = "kernel",
					    [GPU_ACTIVITY_COPY] = "memcpy",
					    [GPU_ACTIVITY_SET] = "memset",
					    [GPU_ACTIVITY_GRAPH] = "graph"};
	char *name = gpu_work__text(tables->job, sum->key.kind, sum->key.direction, sum->key.name);

	if (!name)
		return -ENOMEM;
	put_gpu_key(tables, gpu, sum->key.pid, sum->key.device, sum->key.window, arrow);
	arrow__text(arrow, kinds[sum->key.kind]);
	arrow__text(arrow, name);
	arrow__int(arrow, sum->cnt);
	arrow__int(arrow, sum->ns);
	arrow__end_row(arrow);
	free(name);
	return 0;
}

/* How a GPU spent a window, in parts that add up to what CUPTI watched of it from the GPU's first work to its last. */
static void put_gpu_time(struct tables *tables, const struct gpu *gpu, const struct gpu_line *line, size_t window,
			 struct arrow *arrow)
{
	size_t cnt;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &cnt);
	uint64_t from_ns = window < cnt ? windows[window].start_ns : 0,
		 to_ns = window < cnt ? windows[window].end_ns : UINT64_MAX,
		 work_ns = gpu_spans__within(&line->work, from_ns, to_ns),
		 kernel_ns = gpu_spans__within(&line->kernels, from_ns, to_ns),
		 compute_ns = gpu_spans__within(&line->compute, from_ns, to_ns);
	static const char *const idle_names[] = {
#define X(id, name, meaning) "idle_" name,
		STEPFLAME_GPU_IDLE(X)
#undef X
	};
	struct {
		const char *name;
		uint64_t ns;
	} parts[3 + GPU_IDLE__COUNT] = {
		{"compute", compute_ns}, {"communication", kernel_ns - compute_ns}, {"copy", work_ns - kernel_ns}};

	for (int i = 0; i < GPU_IDLE__COUNT; i++) {
		parts[3 + i].name = idle_names[i];
		parts[3 + i].ns = gpu_spans__within(&line->idle[i], from_ns, to_ns);
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (!parts[i].ns)
			continue;
		put_gpu_key(tables, gpu, line->pid, line->device, window, arrow);
		arrow__text(arrow, "time");
		arrow__text(arrow, parts[i].name);
		arrow__int(arrow, 0);
		arrow__int(arrow, parts[i].ns);
		arrow__end_row(arrow);
	}
}

static int put_gpu_times(struct tables *tables, const struct gpu *gpu, struct arrow *arrow)
{
	struct gpu_time *time = gpu_time__new(tables->job, tables->steps);
	size_t cnt = 0, window_cnt;
	const struct gpu_line *lines = time ? gpu_time__lines(time, &cnt) : NULL;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &window_cnt);

	for (size_t i = 0; i < cnt; i++) {
		bool has_windows = false;

		if (!known_process(tables, lines[i].pid))
			continue;
		for (size_t w = 0; w < window_cnt; w++) {
			if (windows[w].pid != lines[i].pid)
				continue;
			has_windows = true;
			put_gpu_time(tables, gpu, &lines[i], w, arrow);
		}
		if (!has_windows)
			put_gpu_time(tables, gpu, &lines[i], window_cnt, arrow);
	}
	gpu_time__free(time);
	return time ? 0 : -ENOMEM;
}

static int put_gpu(struct tables *tables, struct arrow *arrow)
{
	const struct gpu *gpu = job__gpu(tables->job);
	struct map sums = {0};
	int err = gpu ? add_gpu_work(tables, gpu, &sums) : -ENOMEM;
	const struct gpu_sum *all = sums.items.items;

	for (size_t i = 0; i < sums.items.cnt && !err; i++)
		err = put_gpu_sum(tables, gpu, &all[i], arrow);
	err = err ?: put_gpu_times(tables, gpu, arrow);
	map__free(&sums);
	return err;
}

static const struct table table_gpu = {COLUMNS(gpu_columns), put_gpu};

/* ---- the format ---- */

/* X(name): table_NAME is its struct table. */
#define TABLES(X) X(ranks) X(windows) X(steps) X(waits) X(samples) X(stacks) X(actions) X(ops) X(gpu)

static const struct {
	const char *name;
	const struct table *table;
} tables_of[] = {
#define X(name) {#name, &table_##name},
	TABLES(X)
#undef X
};

size_t tables__cnt(void)
{
	return sizeof(tables_of) / sizeof(*tables_of);
}

const char *tables__name(size_t table)
{
	return tables_of[table].name;
}

int tables__write(struct tables *tables, size_t table, FILE *out)
{
	const struct table *is = tables_of[table].table;
	struct arrow *arrow = arrow__new(is->columns, is->column_cnt, out);
	int err = arrow ? is->put(tables, arrow) : -ENOMEM;

	if (!err)
		err = arrow__finish(arrow);
	arrow__free(arrow);
	return err;
}

static int write_arrow(struct job *job, const struct timeline *timeline, const struct export_options *options,
		       FILE *out)
{
	return tables__write(options->tables, options->table, out);
}

const struct export_ops export_arrow = {
	.name = "arrow", .binary = true, .folder = true, .source = EXPORT_TABLES, .write = write_arrow};
