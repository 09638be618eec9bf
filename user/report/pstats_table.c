// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/pstats_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/utf8.h"

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

const char *const pstats_table__sort_keys[] = {
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
		fprintf(out, ", error at most +-%.3g %% (95 %%)", 100 * profile__error_ns(table->squares) / wall_ns);
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

int pstats_table__print(const struct profile *profile, const struct profile_table *table, const char *sort,
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
