// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The advanced report: for each action, the table that Lightning's AdvancedProfiler prints
 * (lightning/pytorch/profilers/advanced.py, 2.6), made from samples or exact calls; below it, what
 * the table is made from.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/profile.h"
#include "user/lib/array.h"
#include "user/lib/compare.h"
#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/interpreter.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"
#include "user/report/pstats_table.h"

#define DEFAULT_LIMIT 20
#define SAMPLES_MIN   20 /* with fewer samples, each time of a table may be off by half */

/* The data of a report of some processes. */
struct advanced {
	struct job *job;
	struct profile *profile; /* owned */
	size_t processes;
	bool has_any;   /* these processes have samples or calls */
	size_t dropped; /* tables with too few samples */
	size_t callers; /* actions whose tables include the callers of the action */
};

static int advanced__add_records(struct advanced *a, const struct samples *samples, uint32_t pid)
{
	size_t call_cnt;
	const struct calls *calls = samples__calls(samples, &call_cnt);
	int err = 0;

	for (size_t i = 0; i < samples__cnt(samples) && !err; i++) {
		struct sample sample = samples__get(samples, i);

		if (!processes__in_scope(a->job, sample.pid, pid))
			continue;
		a->has_any = true;
		err = profile__add_sample(a->profile, &sample);
	}
	for (size_t i = 0; i < call_cnt && !err; i++) {
		if (!processes__in_scope(a->job, calls[i].pid, pid))
			continue;
		a->has_any = true;
		err = profile__add_calls(a->profile, &calls[i]);
	}
	return err;
}

/* Collects the pids of samples and calls, with duplicates. malloc'ed; NULL: no memory. */
static uint32_t *collect_pids(const struct samples *samples, size_t *cnt)
{
	size_t call_cnt, thread_end = samples__thread_end(samples);
	const struct calls *calls = samples__calls(samples, &call_cnt);
	uint32_t *pids = calloc(thread_end + call_cnt, sizeof(*pids)), tid;

	*cnt = 0;
	for (uint32_t i = 1; pids && i < thread_end; i++)
		samples__thread(samples, i, &pids[(*cnt)++], &tid);
	for (size_t i = 0; pids && i < call_cnt; i++)
		if (!*cnt || pids[*cnt - 1] != calls[i].pid)
			pids[(*cnt)++] = calls[i].pid;
	return pids;
}

static int list_advanced_processes(struct job *job, struct rec_target **out, size_t *cnt)
{
	const struct samples *samples = job__samples(job);
	size_t pid_cnt = 0;
	uint32_t *pids = samples ? collect_pids(samples, &pid_cnt) : NULL;
	int err = processes__list(job, pids, pid_cnt, out, cnt);

	free(pids);
	return err;
}

static size_t count_processes(struct job *job, const struct rec_target *targets, size_t cnt, uint32_t pid)
{
	size_t in_scope = 0;

	for (size_t i = 0; i < cnt; i++)
		in_scope += processes__in_scope(job, targets[i].pid, pid);
	return in_scope;
}

static int collect_sections(struct job *job, const struct report_options *options, uint32_t pid, struct advanced *out)
{
	const struct profile_options profile_options = {.all = options->all,
							.action = options->action,
							.cpu = options->cpu,
							.leaf = options->leaf || options->native,
							.native = options->native};
	const struct samples *samples = job__samples(job);
	struct rec_target *targets = NULL;
	size_t cnt = 0;
	int err = -ENOMEM;

	*out = (struct advanced){.job = job, .profile = samples ? profile__new(job, &profile_options) : NULL};
	if (out->profile)
		err = list_advanced_processes(job, &targets, &cnt);
	if (!err) {
		out->processes = count_processes(job, targets, cnt, pid);
		err = advanced__add_records(out, samples, pid);
	}
	free(targets);
	if (err)
		profile__free(out->profile);
	return err;
}

/*
 * Calls fn with the table of each chosen action that has data, in order of first occurrence, and
 * with the table for no action last. fn returns 0 or -errno. *cnt counts the calls of fn.
 */
static int for_each_action(struct advanced *a, const struct report_options *options,
			   int (*fn)(struct advanced *a, const struct profile_action *action,
				     struct profile_table *table, void *ctx),
			   void *ctx, size_t *cnt)
{
	size_t action_cnt;
	const struct profile_action *actions = profile__actions(a->profile, &action_cnt);
	int err = 0;

	*cnt = 0;
	for (size_t i = PROFILE__SPECIAL; i < action_cnt + PROFILE__SPECIAL && !err; i++) {
		size_t action = i < action_cnt ? i : i - action_cnt;
		struct profile_table table;

		if (action == PROFILE_EVERYTHING || (options->action && strcmp(options->action, actions[action].name)))
			continue;
		err = profile__table(a->profile, action, &table);
		if (!err && table.row_cnt) {
			err = fn(a, &actions[action], &table, ctx);
			++*cnt;
		}
		profile_table__release(&table);
	}
	return err;
}

/* ---- text ---- */

struct section {
	char *text;  /* owned */
	double time; /* samples: total time of the table; exact calls: time in the functions themselves */
	bool last;   /* the table for no action */
	size_t order;
};

struct text_context {
	const struct report_options *options;
	int rank; /* -1: unknown, or several ranks */
	struct array sections;
};

static double table_time(const struct profile_table *table)
{
	double time = (double)table->cpu_ns + table->wait_ns;

	for (size_t i = 0; table->exact && i < table->row_cnt; i++)
		time += table->rows[i].self_ns;
	return time;
}

static int write_section(struct advanced *a, const struct text_context *text, const struct profile_action *action,
			 struct profile_table *table, FILE *out)
{
	char rank[32] = "";
	int err;

	if (text->rank >= 0)
		snprintf(rank, sizeof(rank), " rank: %d", text->rank);
	text__line(out, "Profile stats for: %s%s", action->name, rank);
	err = pstats_table__print(a->profile, table, text->options->sort,
				  report_options__limit(text->options, DEFAULT_LIMIT), out);
	fputc('\n', out);
	return err;
}

static int add_section(struct advanced *a, const struct profile_action *action, struct profile_table *table, void *ctx)
{
	struct text_context *text = ctx;
	struct section *section;
	size_t bytes;
	FILE *out;
	int err;

	if (!table->exact && table->samples < SAMPLES_MIN && !text->options->all && !text->options->action) {
		a->dropped++;
		return 0;
	}
	section = array__add(&text->sections, sizeof(*section));
	if (!section)
		return -ENOMEM;
	section->time = table_time(table);
	section->last = action->kind == SPAN_NONE;
	section->order = text->sections.cnt;
	a->callers += table->callers > 0;
	out = open_memstream(&section->text, &bytes);
	if (!out)
		return -ENOMEM;
	err = write_section(a, text, action, table, out);
	return fclose(out) ? -ENOMEM : err;
}

/* Longest first, with the tables for no action after all others. */
static int compare_sections(const void *a, const void *b)
{
	const struct section *x = a, *y = b;

	if (x->last != y->last)
		return x->last - y->last;
	return x->time != y->time ? COMPARE(y->time, x->time) : COMPARE(x->order, y->order);
}

static void put_sections(struct array *sections, FILE *out)
{
	struct section *items = sections->items;

	if (sections->cnt)
		qsort(items, sections->cnt, sizeof(*items), compare_sections);
	for (size_t i = 0; i < sections->cnt; i++)
		fputs(items[i].text, out);
}

static void free_sections(struct array *sections)
{
	struct section *items = sections->items;

	for (size_t i = 0; i < sections->cnt; i++)
		free(items[i].text);
	free(items);
}

/* malloc'ed; NULL: no memory. */
static char *empty_section_text(struct advanced *a, const struct report_options *options, uint32_t pid)
{
	const char *where = pid == PROCESSES_ALL_MAIN ? "" : " in this process";
	const struct samples *samples = job__samples(a->job);
	size_t call_cnt;
	char *text;
	int bytes;

	samples__calls(samples, &call_cnt);
	if (a->has_any && options->action)
		bytes = asprintf(
			&text,
			"No sample was taken%s in an action named \"%s\". Names are matched exactly; --all lists "
			"every action, and (none) has what is in no action.",
			where, options->action);
	else if (a->has_any)
		bytes = asprintf(&text, "No sample%s was taken on the CPU. Leave out --cpu to list the waits.", where);
	else if (samples__cnt(samples) || call_cnt)
		bytes = asprintf(&text, "No sample was taken%s. Record for longer; --per-rank lists what children did.",
				 where);
	else
		bytes = asprintf(&text, "This recording has no samples of what Python ran. Record again, with samples "
					"and for some seconds: stepflame record -p PID -d 30s");
	return bytes < 0 ? NULL : text;
}

static int explain_empty_section(struct advanced *a, const struct report_options *options, uint32_t pid, FILE *out)
{
	char *text = empty_section_text(a, options, pid);

	if (text)
		text__paragraph(out, "%s", text);
	free(text);
	return text ? 0 : -ENOMEM;
}

static int count_section(struct advanced *a, const struct profile_action *action, struct profile_table *table,
			 void *ctx)
{
	return 0;
}

static char *why_no_sections(struct job *job, const struct report_options *options, uint32_t pid)
{
	struct advanced a;
	char *text = NULL;
	size_t cnt;

	if (collect_sections(job, options, pid, &a))
		return NULL;
	if (!for_each_action(&a, options, count_section, NULL, &cnt) && !cnt)
		text = empty_section_text(&a, options, pid);
	profile__free(a.profile);
	return text;
}

/* Returns the rank; -1 where there is not exactly one. */
static int known_rank(const struct job *job, uint32_t pid)
{
	size_t cnt, found = 0;
	const struct rec_target *targets = job__targets(job, &cnt);
	int rank = -1;

	for (size_t i = 0; i < cnt; i++) {
		if (!processes__in_scope(job, targets[i].pid, pid))
			continue;
		rank = targets[i].rank;
		found++;
	}
	return found == 1 ? rank : -1;
}

/* Says what the tables lack, and what they include but should not. */
static void print_remarks(const struct advanced *a, FILE *out)
{
	if (a->dropped)
		text__paragraph(out, "left out: %zu table%s of fewer than %d samples (--all prints them)", a->dropped,
				a->dropped == 1 ? "" : "s", SAMPLES_MIN);
	if (a->callers)
		text__paragraph(out,
				"callers: the recording does not say where %zu action%s begin%s: their tables have the "
				"callers, too",
				a->callers, a->callers == 1 ? "" : "s", a->callers == 1 ? "s" : "");
}

static int print_action_tables(struct job *job, const struct report_options *options, uint32_t pid, FILE *out)
{
	struct text_context text = {.options = options, .rank = known_rank(job, pid)};
	const struct job_action *actions;
	struct advanced a;
	const char *stage;
	size_t cnt;
	int err = collect_sections(job, options, pid, &a);

	if (err)
		return err;
	actions = job__actions(job, &cnt);
	stage = labels__stage(actions, cnt);
	fprintf(out, "%s%sProfiler Report\n", stage ? stage : "", stage ? " " : "");
	err = for_each_action(&a, options, add_section, &text, &cnt);
	if (!err)
		put_sections(&text.sections, out);
	if (!err && !cnt)
		err = explain_empty_section(&a, options, pid, out);
	if (!err)
		print_remarks(&a, out);
	if (!err)
		interpreter__text(job, pid, out);
	if (!err && a.processes > 1)
		text__paragraph(out, "times: added over %zu processes (--per-rank: apart)", a.processes);
	free_sections(&text.sections);
	profile__free(a.profile);
	return err;
}

/* ---- JSON ---- */

static json_t *json_count(bool known, uint64_t cnt)
{
	return known ? json_integer((json_int_t)cnt) : json_null();
}

SHAPE(function_shape, "function",
      "file:s line:I name:s qualname:s ncalls:I? primitive_calls:I? samples:I? tottime_s:f cumtime_s:f error_s:f?");

static json_t *json_function(const struct function *function, const struct profile_row *row, bool exact)
{
	return SHAPE_PACK(function_shape, json_string(function->file), json_integer(function->line),
			  json_string(function->name), json_string(function->qualname), json_count(exact, row->calls),
			  json_count(exact, row->primitive_calls), json_count(!exact, row->samples),
			  json_real(row->self_ns / 1e9), json_real(row->total_ns / 1e9),
			  exact ? json_null() : json_real(profile__error_ns(row->squares) / 1e9));
}

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_function(void)
{
	static const struct function none = {.file = "", .name = "", .qualname = ""};

	return json_function(&none, &(struct profile_row){0}, false);
}

static int compare_total(const void *a, const void *b)
{
	const struct profile_row *x = a, *y = b;

	if (x->total_ns != y->total_ns)
		return x->total_ns < y->total_ns ? 1 : -1;
	return COMPARE(x->function, y->function);
}

/* Sorted by cumulative time. NULL: no memory. */
static json_t *json_functions(const struct advanced *a, struct profile_table *table, size_t limit)
{
	json_t *list = json_array();

	qsort(table->rows, table->row_cnt, sizeof(*table->rows), compare_total);
	for (size_t i = 0; i < table->row_cnt && i < limit; i++)
		common__json_append(&list, json_function(profile__function(a->profile, table->rows[i].function),
							 &table->rows[i], table->exact));
	return list;
}

/* Seconds by cause, for the causes that occur. */
static json_t *json_table_waits(const struct profile_table *table)
{
	json_t *waits = json_object();

	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		if (table->waits_ns[cause])
			common__json_set(&waits, sample_cause__name(cause), json_real(table->waits_ns[cause] / 1e9));
	return waits;
}

struct json_context {
	const struct report_options *options;
	json_t *list;
};

SHAPE(profile_shape, "profile",
      "name:s kind:s? exact:b samples:I? wall_s:f? cpu_s:f? wait_s:f? error_s:f? waits:{f}? callers:I? "
      "functions:[function]");
SHAPE(profiles_shape, "profiles_of_process", "@process actions:[profile]");
SHAPE_REPORT(advanced_shape, "advanced", "advanced",
	     "@report actions:[profile] interpreter:interpreter processes?:[profiles_of_process]");

static int add_json_action(struct advanced *a, const struct profile_action *action, struct profile_table *table,
			   void *ctx)
{
	const struct json_context *json = ctx;
	double wall_ns = (double)table->cpu_ns + table->wait_ns;
	bool sampled = !table->exact;
	json_t *object =
		SHAPE_PACK(profile_shape, json_string(action->name),
			   action->kind == SPAN_NONE ? json_null() : json_string(labels__kind(action->kind)),
			   json_boolean(table->exact), json_count(sampled, table->samples),
			   common__json_real(sampled, wall_ns / 1e9), common__json_real(sampled, table->cpu_ns / 1e9),
			   common__json_real(sampled, table->wait_ns / 1e9),
			   common__json_real(sampled, profile__error_ns(table->squares) / 1e9),
			   sampled ? json_table_waits(table) : json_null(), json_count(sampled, table->callers),
			   json_functions(a, table, report_options__limit(json->options, 0)));

	return json_array_append_new(json->list, object) ? -ENOMEM : 0;
}

/* NULL: no memory. */
static json_t *json_actions(struct job *job, const struct report_options *options, uint32_t pid)
{
	struct json_context json = {.options = options};
	struct advanced a;
	size_t cnt;
	int err;

	if (collect_sections(job, options, pid, &a))
		return NULL;
	json.list = json_array();
	err = for_each_action(&a, options, add_json_action, &json, &cnt);
	profile__free(a.profile);
	return common__json_unless_failed(json.list, err);
}

/* ---- together ---- */

static const struct common_tables tables = {
	.processes = list_advanced_processes,
	.print = print_action_tables,
	.rows = json_actions,
	.key = "actions",
	.more = interpreter__json,
	.more_key = "interpreter",
	.why_empty = why_no_sections,
};

static char *why_empty(struct job *job, const struct report_options *options)
{
	return common__why_empty(&tables, job, options);
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	return common__end(common__print_tables(&tables, job, options, out), job, out);
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "actions", "functions", NULL};

	return common__print_object(common__json_tables(report_advanced.name, &tables, job, options), options, path,
				    blank_function(), out);
}

const struct report_ops report_advanced = {
	.name = "advanced",
	.sort_keys = pstats_table__sort_keys,
	.by_action = true,
	.text = print_text,
	.json = print_json,
	.why_empty = why_empty,
};
