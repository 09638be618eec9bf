// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The advanced report: for each action, the table that Lightning's AdvancedProfiler prints
 * (lightning/pytorch/profilers/advanced.py, 2.6), made from samples or exact calls; below it, what
 * the table is made from.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/profile.h"
#include "user/lib/array.h"
#include "user/lib/compare.h"
#include "user/lib/digits.h"
#include "user/lib/utf8.h"
#include "user/model/job.h"
#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/model/samples.h"
#include "user/report/common.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"

/* ---- what the interpreter itself costs: waits for its lock (the GIL), and garbage collections ---- */

struct gc_generation {
	uint64_t cnt, total_ns, max_ns;
	uint32_t max_step;
};

struct interpreter {
	uint64_t gil_ns, gil_main_ns;
	struct gc_generation gc[GC_GENERATIONS];
};

static void add_interpreter_waits(struct job *job, const struct samples *samples, uint32_t pid, struct interpreter *sum)
{
	for (size_t i = 0; i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);

		if (sample.cause != CAUSE_GIL || sample.passed || !processes__in_scope(job, sample.pid, pid))
			continue;
		sum->gil_ns += sample.weight_ns;
		if (sample.tid == sample.pid)
			sum->gil_main_ns += sample.weight_ns;
	}
}

static void add_gc_pauses(struct job *job, const struct samples *samples, uint32_t pid, struct interpreter *sum)
{
	size_t cnt;
	const struct gc_pause *pauses = samples__gc_pauses(samples, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		int generation = labels__gc_generation(job__name(job, pauses[i].name));
		struct gc_generation *g = &sum->gc[generation < 0 ? 0 : generation];

		if (generation < 0 || !processes__in_scope(job, pauses[i].pid, pid))
			continue;
		g->cnt++;
		g->total_ns += pauses[i].duration_ns;
		if (pauses[i].duration_ns > g->max_ns) {
			g->max_ns = pauses[i].duration_ns;
			g->max_step = pauses[i].step;
		}
	}
}

static struct interpreter collect_shares(struct job *job, uint32_t pid)
{
	const struct samples *samples = job__samples(job);
	struct interpreter sum = {0};

	if (samples) {
		add_interpreter_waits(job, samples, pid, &sum);
		add_gc_pauses(job, samples, pid, &sum);
	}
	return sum;
}

/*
 * Prints the paragraphs `gil` and `gc` below a table of pid, or of PROCESSES_ALL_MAIN. Omits a
 * paragraph without events.
 */
static void interpreter__text(struct job *job, uint32_t pid, FILE *out)
{
	struct interpreter sum = collect_shares(job, pid);

	if (sum.gil_ns)
		text__paragraph(out, "gil: threads waited %s s for it, main threads %s s of that",
				DIGITS(sum.gil_ns / 1e9, 3), DIGITS(sum.gil_main_ns / 1e9, 3));
	for (int i = 0; i < GC_GENERATIONS; i++) {
		const struct gc_generation *g = &sum.gc[i];

		if (g->cnt)
			text__paragraph(out,
					"gc: %" PRIu64 " collection%s of generation %d, %s s; the longest %s s, "
					"in step %u",
					g->cnt, g->cnt == 1 ? "" : "s", i, DIGITS(g->total_ns / 1e9, 3),
					DIGITS(g->max_ns / 1e9, 3), g->max_step);
	}
}

SHAPE(gc_shape, "gc", "generation:I count:I total_s:f max_s:f max_step:I");

SHAPE(interpreter_shape, "interpreter", "gil_s:f gil_main_s:f gc:[gc]");

/*
 * Returns {gil_s, gil_main_s, gc: [{generation, count, total_s, max_s, max_step}]}: seconds that
 * all threads, and main threads alone, waited for the GIL; max_s is the longest collection of a
 * generation, and max_step the step in which it ran. NULL: no memory.
 */
static json_t *interpreter__json(struct job *job, uint32_t pid)
{
	struct interpreter sum = collect_shares(job, pid);
	json_t *gc = json_array();
	int failed = 0;

	for (int i = 0; i < GC_GENERATIONS; i++) {
		const struct gc_generation *g = &sum.gc[i];

		if (g->cnt)
			failed |= json_array_append_new(gc, SHAPE_PACK(gc_shape, json_integer(i), json_integer(g->cnt),
								       json_real(g->total_ns / 1e9),
								       json_real(g->max_ns / 1e9),
								       json_integer(g->max_step)));
	}
	gc = common__json_unless_failed(gc, failed);
	return SHAPE_PACK(interpreter_shape, json_real(sum.gil_ns / 1e9), json_real(sum.gil_main_ns / 1e9), gc);
}

/* ---- a table of functions, as CPython's pstats prints it: Stats(...).strip_dirs().sort_stats(KEY).print_stats(LIMIT) ---- */

struct pstats_line {
	const char *file; /* without its folders */
	uint32_t line;
	const char *name;
	char *label; /* func_std_string(), owned; not escaped */
	uint64_t calls, primitive_calls, samples;
	double self_s, total_s;
	size_t order;
};

struct pstats_lines {
	struct pstats_line *items;
	size_t cnt;
};

/* ---- strip_dirs ---- */

/* malloc'ed; NULL: no memory. */
static char *std_string(const char *file, uint32_t line, const char *name)
{
	size_t length = strlen(name);
	char *label;
	int got;

	if (strcmp(file, FUNCTION_BUILTIN_FILE) || line)
		got = asprintf(&label, "%s:%u(%s)", file, line, name);
	else if (length > 1 && name[0] == '<' && name[length - 1] == '>')
		got = asprintf(&label, "{%.*s}", (int)(length - 2), name + 1);
	else
		got = asprintf(&label, "%s", name);
	return got < 0 ? NULL : label;
}

static int compare_function(const void *a, const void *b)
{
	const struct pstats_line *x = a, *y = b;
	int result = strcmp(x->file, y->file);

	if (!result)
		result = COMPARE(x->line, y->line);
	if (!result)
		result = strcmp(x->name, y->name);
	return result ? result : COMPARE(x->order, y->order);
}

static bool same_function(const struct pstats_line *x, const struct pstats_line *y)
{
	return x->line == y->line && !strcmp(x->file, y->file) && !strcmp(x->name, y->name);
}

/* Merges functions that differ only by folder; the result takes the place of the first. */
static void merge_lines(struct pstats_lines *lines)
{
	size_t unique_cnt = 0;

	qsort(lines->items, lines->cnt, sizeof(*lines->items), compare_function);
	for (size_t i = 0; i < lines->cnt; i++) {
		struct pstats_line *line = &lines->items[i], *last = unique_cnt ? &lines->items[unique_cnt - 1] : NULL;

		if (!last || !same_function(last, line)) {
			lines->items[unique_cnt++] = *line;
			continue;
		}
		last->calls += line->calls;
		last->primitive_calls += line->primitive_calls;
		last->samples += line->samples;
		last->self_s += line->self_s;
		last->total_s += line->total_s;
	}
	lines->cnt = unique_cnt;
}

static int make_lines(const struct profile *profile, const struct profile_table *table, struct pstats_lines *lines)
{
	lines->cnt = table->row_cnt;
	lines->items = calloc(table->row_cnt + 1, sizeof(*lines->items));
	if (!lines->items)
		return -ENOMEM;
	for (size_t i = 0; i < table->row_cnt; i++) {
		const struct profile_row *row = &table->rows[i];
		const struct function *function = profile__function(profile, row->function);
		const char *slash = strrchr(function->file, '/');

		lines->items[i] = (struct pstats_line){
			.file = slash ? slash + 1 : function->file,
			.line = function->line,
			.name = function->name,
			.calls = row->calls,
			.primitive_calls = row->primitive_calls,
			.samples = row->samples,
			.self_s = row->self_ns / 1e9,
			.total_s = row->total_ns / 1e9,
			.order = row->function,
		};
	}
	merge_lines(lines);
	for (size_t i = 0; i < lines->cnt; i++) {
		lines->items[i].label = std_string(lines->items[i].file, lines->items[i].line, lines->items[i].name);
		if (!lines->items[i].label)
			return -ENOMEM;
	}
	return 0;
}

static void release_lines(struct pstats_lines *lines)
{
	for (size_t i = 0; lines->items && i < lines->cnt; i++)
		free(lines->items[i].label);
	free(lines->items);
}

/* ---- sort_stats ---- */

/* Key, comparison of x and y, the name that pstats prints. Samples have no calls. */
#define SORT_KEYS(X)                                                                                                \
	X(tottime, COMPARE(y->self_s, x->self_s), "internal time")                                                  \
	X(time, COMPARE(y->self_s, x->self_s), "internal time")                                                     \
	X(cumulative, COMPARE(y->total_s, x->total_s), "cumulative time")                                           \
	X(cumtime, COMPARE(y->total_s, x->total_s), "cumulative time")                                              \
	X(ncalls, COMPARE(y->calls ?: y->samples, x->calls ?: x->samples), "call count")                            \
	X(calls, COMPARE(y->calls ?: y->samples, x->calls ?: x->samples), "call count")                             \
	X(pcalls, COMPARE(primitive_calls(y), primitive_calls(x)), "primitive call count")                          \
	X(name, strcmp(x->name, y->name), "function name")                                                          \
	X(file, strcmp(x->file, y->file), "file name")                                                              \
	X(filename, strcmp(x->file, y->file), "file name")                                                          \
	X(module, strcmp(x->file, y->file), "file name")                                                            \
	X(line, COMPARE(x->line, y->line), "line number")                                                           \
	X(nfl, strcmp(x->name, y->name) ?: strcmp(x->file, y->file) ?: COMPARE(x->line, y->line), "name/file/line") \
	X(stdname, strcmp(x->label, y->label), "standard name")

/* The keys of pstats, NULL-terminated; the first is the default. */
static const char *const pstats_table__sort_keys[] = {
#define X(key, result, text) #key,
	SORT_KEYS(X)
#undef X
		NULL,
};

static const char *const sort_texts[] = {
#define X(key, result, text) text,
	SORT_KEYS(X)
#undef X
};

enum pstats_sort_key {
#define X(key, result, text) BY_##key,
	SORT_KEYS(X)
#undef X
};

static uint64_t primitive_calls(const struct pstats_line *line)
{
	return line->calls ? line->primitive_calls : line->samples;
}

static int compare_by(const struct pstats_line *x, const struct pstats_line *y, enum pstats_sort_key key)
{
	switch (key) {
#define X(key, result, text) \
	case BY_##key:       \
		return result;
		SORT_KEYS(X)
#undef X
	}
	return 0;
}

static int compare_lines(const void *a, const void *b, void *ctx)
{
	const struct pstats_line *x = a, *y = b;
	int result = compare_by(x, y, *(enum pstats_sort_key *)ctx);

	/* Python's sort is stable. */
	return result ? result : COMPARE(x->order, y->order);
}

static enum pstats_sort_key find_sort(const char *name)
{
	for (enum pstats_sort_key key = 0; name && pstats_table__sort_keys[key]; key++)
		if (!strcmp(name, pstats_table__sort_keys[key]))
			return key;
	return 0;
}

/* ---- print_stats ---- */

static void print_call_count(const struct pstats_lines *lines, FILE *out)
{
	uint64_t calls = 0, primitive_calls = 0;
	double self_s = 0;

	for (size_t i = 0; i < lines->cnt; i++) {
		calls += lines->items[i].calls;
		primitive_calls += lines->items[i].primitive_calls;
		self_s += lines->items[i].self_s;
	}
	fprintf(out, "         %" PRIu64 " function calls ", calls);
	if (calls != primitive_calls)
		fprintf(out, "(%" PRIu64 " primitive calls) ", primitive_calls);
	fprintf(out, "in %.3f seconds\n", self_s);
}

static void print_samples(const struct profile_table *table, FILE *out)
{
	double wall_ns = (double)table->cpu_ns + table->wait_ns;

	fprintf(out, "         %" PRIu64 " sample%s, ", table->samples, table->samples == 1 ? "" : "s");
	if (table->wait_ns)
		fprintf(out, "%.3f s of wall time (%.3f s on CPU, %.3f s waiting)", wall_ns / 1e9, table->cpu_ns / 1e9,
			table->wait_ns / 1e9);
	else
		fprintf(out, "%.3f s on CPU", table->cpu_ns / 1e9);
	if (table->squares > 0)
		fprintf(out, ", error at most +-%s %% (95 %%)",
			DIGITS(100 * profile__error_ns(table->squares) / wall_ns, 3));
	fputc('\n', out);
}

static void print_per_call(double seconds, uint64_t calls, FILE *out)
{
	if (calls)
		fprintf(out, "%8.3f ", seconds / calls);
	else
		fputs("         ", out);
}

static int print_pstats_line(const struct pstats_line *line, bool exact, FILE *out)
{
	char calls[48] = "-", *label = utf8__escape(line->label);

	if (!label)
		return -ENOMEM;
	if (exact && line->calls != line->primitive_calls)
		snprintf(calls, sizeof(calls), "%" PRIu64 "/%" PRIu64, line->calls, line->primitive_calls);
	else if (exact)
		snprintf(calls, sizeof(calls), "%" PRIu64, line->calls);
	fprintf(out, "%9s %8.3f ", calls, line->self_s);
	print_per_call(line->self_s, line->calls, out);
	fprintf(out, "%8.3f ", line->total_s);
	print_per_call(line->total_s, line->primitive_calls, out);
	fprintf(out, "%s\n", label);
	free(label);
	return 0;
}

/*
 * Prints byte for byte what Lib/pstats.py (3.8 to 3.15) prints for the same functions, with two
 * exceptions: control characters in names are escaped; and the first line of a table of samples
 * gives the number of samples, while calls, which samples do not count, are "-" (and percall is
 * empty, as pstats leaves it where there are no calls). limit: rows; 0: all. 0 or -ENOMEM.
 */
static int pstats_table__print(const struct profile *profile, const struct profile_table *table, const char *sort,
			       size_t limit, FILE *out)
{
	enum pstats_sort_key key = find_sort(sort);
	struct pstats_lines lines = {0};
	int err = make_lines(profile, table, &lines);
	size_t cnt = lines.cnt;

	if (err)
		goto out;
	qsort_r(lines.items, lines.cnt, sizeof(*lines.items), compare_lines, &key);
	if (table->exact)
		print_call_count(&lines, out);
	else
		print_samples(table, out);
	fprintf(out, "\n   Ordered by: %s\n", sort_texts[key]);
	if (limit < cnt) {
		fprintf(out, "   List reduced from %zu to %zu due to restriction <%zu>\n", cnt, limit, limit);
		cnt = limit;
	}
	fputs("\n   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n", out);
	for (size_t i = 0; i < cnt && !err; i++)
		err = print_pstats_line(&lines.items[i], table->exact, out);
	fputs("\n\n", out);
out:
	release_lines(&lines);
	return err;
}

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

static void write_sections(struct array *sections, FILE *out)
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
		write_sections(&text.sections, out);
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
