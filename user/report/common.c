// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "include/counters.h"
#include "user/lib/compare.h"
#include "user/lib/digits.h"
#include "user/lib/json.h"
#include "user/model/boundaries.h"
#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/model/rests.h"
#include "user/report/print/csv.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"
#include "user/report/rows.h"

#define MALFORMED_NAME    "malformed_records"
#define MALFORMED_MEANING "records that made no sense, skipped"

static const struct {
	const char *json; /* NULL: null in JSON */
	const char *text;
} step_rules[] = {
	[STEP_NONE] = {NULL, "no step boundary found"},
	[STEP_LIGHTNING] = {"lightning", "Lightning's run_training_batch"},
	[STEP_LOADER_OPTIMIZER] = {"loader_optimizer", "the first Optimizer.step after a batch"},
	[STEP_OPTIMIZER] = {"optimizer", "Optimizer.step"},
	[STEP_PROFILER] = {"profiler_step", "ProfilerStep#"},
	[STEP_ANNOTATION] = {"step_annotation", "StepTraceAnnotation"},
	[STEP_BACKWARD] = {"backward", "backward alone, several of which may be one update"},
	[STEP_JIT] = {"jit", "calls of a jitted function"},
	[STEP_LOADER] = {"loader", "DataLoader's next alone"},
	[STEP_USER] = {"step_at", "--step-at"},
	[STEP_TICK] = {"backwards", "as many backwards as a step has"},
	[STEP_ZERO_GRAD] = {"zero_grad", "the last backward before a zero_grad"},
};
_Static_assert(sizeof(step_rules) / sizeof(*step_rules) == STEP__COUNT + 1, "a rule without a text");

const char *common__counter_meaning(const char *name)
{
	static const char *const known[][2] = {
#define X(id, name, meaning) {name, meaning},
		STEPFLAME_COUNTERS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(known[i][0], name))
			return known[i][1];
	return NULL;
}

const char *common__step_rule_name(uint32_t rule)
{
	return step_rules[rule < sizeof(step_rules) / sizeof(*step_rules) ? rule : STEP_NONE].json;
}

const char *common__step_rule(uint32_t rule)
{
	return step_rules[rule < sizeof(step_rules) / sizeof(*step_rules) ? rule : STEP_NONE].text;
}

struct rec_target common__target(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);

	if (target)
		return *target;
	return (struct rec_target){.pid = pid, .role = job__is_main(job, pid) ? ROLE_MAIN : ROLE_CHILD, .rank = -1};
}

void common__process(const struct rec_target *target, FILE *out)
{
	fprintf(out, "pid %u (%s", REC_PID(target->pid), labels__role(target->role));
	if (target->rank >= 0)
		fprintf(out, ", rank %d", target->rank);
	fputs(")\n", out);
}

int common__flush(FILE *out)
{
	errno = 0;
	if (!fflush(out) && !ferror(out))
		return 0;
	/* The failed write may be long ago, and its errno lost. */
	return errno ? -errno : -EIO;
}

void common__left_out(size_t cnt, size_t limit, const char *what, FILE *out)
{
	const char *plural = what[0] && what[strlen(what) - 1] == 's' ? "es" : "s";

	if (cnt > limit)
		text__paragraph(out, "%zu more %s%s (--limit %zu)", cnt - limit, what, cnt - limit == 1 ? "" : plural,
				limit);
}

int common__end(int err, struct job *job, FILE *out)
{
	if (err)
		return err;
	common__text(job, out);
	return common__flush(out);
}

/* ---- the cost, in percent; negative: unknown ---- */

/* With the rests: a budget is of all the time. */
static double whole_s(const struct job *job)
{
	return job__seen(job).whole_ns / 1e9;
}

double common__target_percent(const struct job *job)
{
	const struct rec_cost *cost = job__cost(job);
	double window_s = whole_s(job);

	if (!cost->hdr.type || window_s <= 0 || (cost->busiest_hits && !cost->hit_ns))
		return -1;
	return 100.0 *
	       ((double)cost->busiest_hits * cost->hit_ns + (double)cost->busiest_calls * cost->call_ns +
		cost->busiest_sampler_ns) /
	       1e9 / window_s;
}

double common__own_percent(const struct job *job)
{
	const struct rec_cost *cost = job__cost(job);
	double window_s = whole_s(job);

	return cost->hdr.type && window_s > 0 ? 100.0 * cost->own_cpu_ns / 1e9 / window_s : -1;
}

/* ---- text ---- */

static void print_window(struct job *job, FILE *out)
{
	const struct seen seen = job__seen(job);
	char of[96] = "", why[32] = "paused in between";
	uint64_t steps;
	uint32_t rule;

	if (!job__window(job)->hdr.type) {
		text__paragraph(out, "window: not recorded");
		return;
	}
	boundaries__count(job, &steps, &rule);
	if (seen.budget_micros)
		snprintf(why, sizeof(why), "for --budget %g", seen.budget_micros / 1e4);
	if (seen.rests)
		snprintf(of, sizeof(of), " of %s s (in %" PRIu32 " part%s, %s)", DIGITS(whole_s(job), 4), seen.parts,
			 seen.parts == 1 ? "" : "s", why);
	text__paragraph(out, "window: %s s%s, %" PRIu64 " step%s ended (%s)", DIGITS(seen.ns / 1e9, 4), of, steps,
			steps == 1 ? "" : "s", common__step_rule(rule));
}

/* What record --max-size has dropped. */
static void print_dropped(const struct job *job, FILE *out)
{
	const struct rec_dropped *dropped = job__dropped(job);

	if (!dropped->hdr.type)
		return;
	text__paragraph(
		out,
		"dropped: %" PRIu64 " samples, steps and other events of the first %s s (record --max-size, --last): "
		"what is said of them is of the rest; calls and totals are of the whole window",
		(uint64_t)dropped->events, DIGITS((job__events_from(job) - job__window(job)->start_ns) / 1e9, 4));
	if (dropped->states)
		text__paragraph(out, "dropped: %" PRIu64 " names, stacks and rows of that time, too",
				(uint64_t)dropped->states);
}

static void print_targets(const struct job *job, FILE *out)
{
	size_t cnt, children = job__target_cnt(job, ROLE_CHILD), workers = job__target_cnt(job, ROLE_WORKER);
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_target *t = &targets[i];
		const char *host = job__target_host(job, i);
		char rank[32] = "";

		if (t->role != ROLE_MAIN)
			continue;
		if (t->rank >= 0)
			snprintf(rank, sizeof(rank), ", rank %d", t->rank);
		text__paragraph(out, "target: pid %u%s%s%s%s%s%s%s%s%s", REC_PID(t->pid), host ? " on " : "",
				host ?: "", rank, t->python[0] ? ", Python " : "", t->python,
				t->torch[0] ? ", torch " : "", t->torch, t->jax[0] ? ", JAX " : "", t->jax);
	}
	if (children)
		text__paragraph(out, "inside: %zu child process%s (--per-rank: their rows)", children,
				children == 1 ? "" : "es");
	if (workers)
		text__paragraph(out, "inside: %zu DataLoader worker%s (--per-rank: their rows)", workers,
				workers == 1 ? "" : "s");
}

static void print_cost(const struct job *job, FILE *out)
{
	const struct rec_cost *cost = job__cost(job);
	char share[32] = "?", own[32] = "?", sampler[48] = "", calls[64] = "";

	if (!cost->hdr.type) {
		text__paragraph(out, "cost: not recorded");
		return;
	}
	if (common__target_percent(job) >= 0)
		snprintf(share, sizeof(share), "%s", DIGITS(common__target_percent(job), 2));
	if (common__own_percent(job) >= 0)
		snprintf(own, sizeof(own), "%s", DIGITS(common__own_percent(job), 2));
	if (cost->busiest_calls)
		snprintf(calls, sizeof(calls), " + %" PRIu64 " system calls x %" PRIu64 " ns",
			 (uint64_t)cost->busiest_calls, (uint64_t)cost->call_ns);
	if (cost->busiest_sampler_ns)
		snprintf(sampler, sizeof(sampler), " + %s s of sampling%s", DIGITS(cost->busiest_sampler_ns / 1e9, 3),
			 job__seen(job).budget_micros ? " and ticks" : "");
	text__paragraph(out,
			"cost: %" PRIu64 " hits x %" PRIu64
			" ns%s%s = about %s %% of the busiest process; stepflame itself: %s %% of a core, %s MB",
			(uint64_t)cost->busiest_hits, (uint64_t)cost->hit_ns, calls, sampler, share, own,
			DIGITS(cost->own_rss_bytes / 1e6, 3));
}

static void print_lost(struct job *job, FILE *out)
{
	size_t cnt;
	const struct job_counter *counters = job__counters(job, &cnt);
	uint64_t malformed = job__malformed(job);
	char *list = NULL;
	size_t bytes;
	FILE *text = open_memstream(&list, &bytes);

	if (!text)
		return;
	for (size_t i = 0; i < cnt; i++) {
		const char *meaning = common__counter_meaning(counters[i].name);

		fprintf(text, "%s%s=%" PRIu64, i ? ", " : "", counters[i].name, counters[i].value);
		if (meaning)
			fprintf(text, " (%s)", meaning);
	}
	if (malformed)
		fprintf(text, "%s" MALFORMED_NAME "=%" PRIu64 " (" MALFORMED_MEANING ")", cnt ? ", " : "", malformed);
	if (!fclose(text))
		text__paragraph(out, "lost: %s", bytes ? list : "nothing");
	free(list);
}

void common__text(struct job *job, FILE *out)
{
	size_t cnt;
	const char *const *notes = job__notes(job, &cnt);

	print_window(job, out);
	print_dropped(job, out);
	print_targets(job, out);
	print_cost(job, out);
	print_lost(job, out);
	for (size_t i = 0; i < cnt; i++)
		text__paragraph(out, "note: %s", notes[i]);
}

/* ---- JSON ---- */

json_t *common__json_text(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

json_t *common__json_real(bool known, double value)
{
	return known ? json_real(value) : json_null();
}

json_t *common__json_integer(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

json_t *common__json_percent(double part, double whole)
{
	return common__json_real(whole, 100 * part / whole);
}

void common__json_append(json_t **list, json_t *item)
{
	*list = common__json_unless_failed(*list, json_array_append_new(*list, item));
}

void common__json_set(json_t **object, const char *key, json_t *item)
{
	*object = common__json_unless_failed(*object, json_object_set_new(*object, key, item));
}

json_t *common__json_unless_failed(json_t *value, int failed)
{
	if (!failed)
		return value;
	json_decref(value);
	return NULL;
}

json_t *common__json_first(json_t *list, int failed)
{
	json_t *item = failed ? NULL : json_incref(json_array_get(list, 0));

	json_decref(list);
	return item;
}

/* A report adds what it says of the process. */
SHAPE(process_shape, "process", "pid:I role:s rank:I?");

json_t *common__json_process(const struct rec_target *target, const char *key, json_t *rows)
{
	json_t *object = SHAPE_PACK(process_shape, json_integer(target->pid), json_string(labels__role(target->role)),
				    target->rank >= 0 ? json_integer(target->rank) : json_null());

	if (key)
		common__json_set(&object, key, rows);
	return object;
}

/* malloc'ed; NULL: no memory. */
static uint32_t *copy_pids(const void *items, size_t cnt, size_t item_bytes, size_t pid_at)
{
	uint32_t *pids = calloc(cnt + 1, sizeof(*pids));

	for (size_t i = 0; pids && i < cnt; i++)
		memcpy(&pids[i], (const char *)items + i * item_bytes + pid_at, sizeof(*pids));
	return pids;
}

int common__processes(const struct job *job, const void *items, size_t cnt, size_t item_bytes, size_t pid_at,
		      struct rec_target **out, size_t *out_cnt)
{
	uint32_t *pids = copy_pids(items, cnt, item_bytes, pid_at);
	int err = processes__list(job, pids, cnt, out, out_cnt);

	free(pids);
	return err;
}

int common__count_processes(const void *items, size_t cnt, size_t item_bytes, size_t pid_at, size_t *out)
{
	uint32_t *pids = copy_pids(items, cnt, item_bytes, pid_at);

	*out = 0;
	if (!pids)
		return -ENOMEM;
	qsort(pids, cnt, sizeof(*pids), compare__u32);
	for (size_t i = 0; i < cnt; i++)
		*out += !i || pids[i] != pids[i - 1];
	free(pids);
	return 0;
}

int common__print_tables(const struct common_tables *tables, struct job *job, const struct report_options *options,
			 FILE *out)
{
	struct rec_target *targets = NULL;
	size_t cnt = 0;
	int err = options->per_rank ? tables->processes(job, &targets, &cnt) : 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		common__process(&targets[i], out);
		err = tables->print(job, options, targets[i].pid, out);
		fputc('\n', out);
	}
	if (!cnt && !err)
		err = tables->print(job, options, PROCESSES_ALL_MAIN, out);
	free(targets);
	return err;
}

char *common__why_empty(const struct common_tables *tables, struct job *job, const struct report_options *options)
{
	struct rec_target *targets = NULL;
	size_t cnt = 0;
	bool empty = !options->per_rank || !tables->processes(job, &targets, &cnt);

	for (size_t i = 0; i < cnt && empty; i++) {
		char *why = tables->why_empty(job, options, targets[i].pid);

		empty = why;
		free(why);
	}
	free(targets);
	return empty ? tables->why_empty(job, options, PROCESSES_ALL_MAIN) : NULL;
}

/* NULL: no memory. */
static json_t *json_table_processes(const struct common_tables *tables, struct job *job,
				    const struct report_options *options)
{
	struct rec_target *targets;
	json_t *list;
	size_t cnt;

	if (tables->processes(job, &targets, &cnt))
		return NULL;
	list = json_array();
	for (size_t i = 0; i < cnt; i++)
		common__json_append(&list, common__json_process(&targets[i], tables->key,
								tables->rows(job, options, targets[i].pid)));
	free(targets);
	return list;
}

json_t *common__json_tables(const char *name, const struct common_tables *tables, struct job *job,
			    const struct report_options *options)
{
	json_t *object = common__json(job, name);

	common__json_set(&object, tables->key, tables->rows(job, options, PROCESSES_ALL_MAIN));
	if (tables->more)
		common__json_set(&object, tables->more_key, tables->more(job, PROCESSES_ALL_MAIN));
	if (options->per_rank)
		common__json_set(&object, "processes", json_table_processes(tables, job, options));
	return object;
}

SHAPE(target_shape, "target", "pid:I role:s rank:I? python:s? torch:s? jax?:s? host?:s?");

json_t *common__json_target(const struct rec_target *target)
{
	json_t *object = SHAPE_PACK(target_shape, json_integer(target->pid), json_string(labels__role(target->role)),
				    target->rank >= 0 ? json_integer(target->rank) : json_null(),
				    common__json_text(target->python), common__json_text(target->torch));

	if (target->jax[0])
		json_object_set_new(object, "jax", common__json_text(target->jax));
	return object;
}

static json_t *json_targets(const struct job *job)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt; i++) {
		const char *host = job__target_host(job, i);
		json_t *target = common__json_target(&targets[i]);

		if (host)
			json_object_set_new(target, "host", common__json_text(host));
		json_array_append_new(list, target);
	}
	return list;
}

SHAPE(window_shape, "window",
      "seconds:f? steps:I? step_rule:s? whole_seconds?:f rests?:I rest_steps?:rest_steps events_from_seconds?:f");
SHAPE(rest_steps_shape, "rest_steps", "count:I median_s:f longest_s:f");

static json_t *json_window(struct job *job)
{
	const struct seen seen = job__seen(job);
	struct rest_steps rest_steps;
	json_t *window;
	uint64_t steps;
	uint32_t rule;

	if (!job__window(job)->hdr.type)
		return SHAPE_PACK(window_shape, json_null(), json_null(), json_null());
	boundaries__count(job, &steps, &rule);
	window = SHAPE_PACK(window_shape, json_real(rows__window_s(job)), json_integer(steps),
			    common__json_text(step_rules[rule].json));
	if (seen.rests) {
		common__json_set(&window, "whole_seconds", json_real(whole_s(job)));
		common__json_set(&window, "rests", json_integer(seen.rests));
		if (!job__rest_steps(job, seen.pid, &rest_steps) && rest_steps.cnt)
			common__json_set(&window, "rest_steps",
					 SHAPE_PACK(rest_steps_shape, json_integer(rest_steps.cnt),
						    json_real(rest_steps.median_ns / 1e9),
						    json_real(rest_steps.longest_ns / 1e9)));
	}
	if (job__dropped(job)->hdr.type)
		common__json_set(&window, "events_from_seconds",
				 json_real((job__events_from(job) - job__window(job)->start_ns) / 1e9));
	return window;
}

SHAPE(overhead_shape, "overhead",
      "percent:f? calls:I? call_ns:I? hits:I? hit_ns:I? budget_percent:f? own_cpu_percent:f? own_rss_bytes:I? "
      "attach_ms:f? detach_ms:f? measured_percent?:f measured_error_percent?:f accounted_percent?:f pairs?:I");

static json_t *json_overhead(const struct job *job)
{
	const struct rec_cost *cost = job__cost(job);
	const struct seen seen = job__seen(job);
	const struct rec_overhead *measured = rests__overhead(job__rests(job), seen.pid);
	bool known = cost->hdr.type;
	json_t *overhead;

	overhead = SHAPE_PACK(
		overhead_shape, common__json_real(common__target_percent(job) >= 0, common__target_percent(job)),
		known ? json_integer(cost->busiest_calls) : json_null(),
		known ? json_integer(cost->call_ns) : json_null(), known ? json_integer(cost->hits) : json_null(),
		known ? json_integer(cost->hit_ns) : json_null(),
		common__json_real(seen.budget_micros, seen.budget_micros / 1e4),
		common__json_real(common__own_percent(job) >= 0, common__own_percent(job)),
		known ? json_integer(cost->own_rss_bytes) : json_null(),
		common__json_real(known, cost->attach_ns / 1e6), common__json_real(known, cost->detach_ns / 1e6));
	if (measured && measured->pairs) {
		common__json_set(&overhead, "measured_percent", json_real(measured->measured_micros / 1e4));
		common__json_set(&overhead, "measured_error_percent", json_real(measured->error_micros / 1e4));
		common__json_set(&overhead, "accounted_percent", json_real(measured->accounted_micros / 1e4));
		common__json_set(&overhead, "pairs", json_integer(measured->pairs));
	}
	return overhead;
}

static json_t *json_lost(struct job *job)
{
	size_t cnt;
	const struct job_counter *counters = job__counters(job, &cnt);
	uint64_t malformed = job__malformed(job);
	json_t *lost = json_object();

	for (size_t i = 0; i < cnt; i++)
		json_object_set_new(lost, counters[i].name, json_integer(counters[i].value));
	if (malformed)
		json_object_set_new(lost, MALFORMED_NAME, json_integer(malformed));
	return lost;
}

static json_t *json_job_notes(const struct job *job)
{
	size_t cnt;
	const char *const *notes = job__notes(job, &cnt);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt; i++)
		json_array_append_new(list, json_string(notes[i]));
	return list;
}

SHAPE(report_shape, "report",
      "report:s stepflame:s target:[target] window:window overhead:overhead lost:{I} notes:[s]");

json_t *common__json(struct job *job, const char *name)
{
	return SHAPE_PACK(report_shape, json_string(name), json_string(STEPFLAME_VERSION), json_targets(job),
			  json_window(job), json_overhead(job), json_lost(job), json_job_notes(job));
}

int common__print_json(json_t *object, FILE *out)
{
	int err;

	if (!object)
		return -ENOMEM;
	/* With 15 digits, 0.1 prints as 0.1, and a week keeps its nanoseconds. */
	err = json__print(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15), out);
	json_decref(object);
	fputc('\n', out);
	return err ?: common__flush(out);
}

int common__print_csv(json_t *object, const char *const *path, json_t *blank, FILE *out)
{
	int err = object && blank ? csv__print(object, path, blank, out) : -ENOMEM;

	json_decref(object);
	json_decref(blank);
	return err ?: common__flush(out);
}

int common__print_object(json_t *object, const struct report_options *options, const char *const *path, json_t *blank,
			 FILE *out)
{
	if (options->csv)
		return common__print_csv(object, path + !json_object_get(object, *path), blank, out);
	json_decref(blank);
	return common__print_json(object, out);
}
