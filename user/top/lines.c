// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/lines.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/columns.h"
#include "user/lib/digits.h"
#include "user/lib/json.h"
#include "user/lib/utf8.h"
#include "user/report/common.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"

#define COLUMN_MIN 7
#define NAME_MIN   12
#define HOT        25 /* in %: highlights a row whose percentage in the sort column reaches it */
#define WHOLE      4096

void top_state__init(struct top_state *state)
{
	*state = (struct top_state){0};
	for (int i = 0; i < TOP__VIEWS; i++)
		state->sort[i] = top_views[i].sort;
}

/* by: 1 or -1 */
static void top_state__next_sort(struct top_state *state, int by)
{
	int cnt = top_views[state->view].column_cnt + 1;

	state->sort[state->view] = (state->sort[state->view] + by + cnt) % cnt;
	state->scroll = 0;
}

static const char *sort_title(const struct top_state *state, enum top_view view)
{
	int sort = state->sort[view];

	return sort < top_views[view].column_cnt ? top_views[view].columns[sort].title : "name";
}

/* ---- text ---- */

/*
 * Escapes text and truncates it to width columns (0: no limit): at the end, or in the middle for
 * names. malloc'ed; NULL: no memory.
 */
static char *fit_text(const char *text, size_t width, bool middle, bool utf8)
{
	char *escaped = utf8__escape(text), *out;
	size_t have = escaped ? (utf8 ? columns__of_text : text__width)(escaped) : 0, at = 0, bytes = 0;
	size_t head = width, skip = 0;
	const char *c = escaped, *end = escaped ? escaped + strlen(escaped) : NULL;

	out = escaped ? malloc(strlen(escaped) + 3) : NULL;
	if (out && width && have > width) {
		head = middle && width > 8 ? width / 2 - 1 : width - 2;
		skip = have - (width - 2);
	}
	while (out && c < end) {
		uint32_t code = utf8__next(&c, end, NULL);
		size_t cells = utf8 ? columns__of_code(code) : 1;

		if (skip && at <= head && at + cells > head)
			bytes += sprintf(out + bytes, "..");
		if (!skip || at + cells <= head || at >= head + skip)
			bytes += utf8__put(out + bytes, code < 0x80 || utf8 ? code : '?');
		at += cells;
	}
	if (out)
		out[bytes] = 0;
	free(escaped);
	return out;
}

/* NULL: no memory. */
static struct top_line *append_line(struct array *lines, enum top_style style, char *text)
{
	struct top_line *line = text ? array__add(lines, sizeof(*line)) : NULL;

	if (!line) {
		free(text);
		return NULL;
	}
	line->text = text;
	line->style = style;
	return line;
}

static int __attribute__((format(printf, 4, 5)))
put_line(struct array *lines, const struct top_state *state, enum top_style style, const char *fmt, ...)
{
	char *raw, *text;
	va_list ap;
	int bytes;

	va_start(ap, fmt);
	bytes = vasprintf(&raw, fmt, ap);
	va_end(ap);
	if (bytes < 0)
		return -ENOMEM;
	text = fit_text(raw, state->width, false, state->utf8);
	free(raw);
	return append_line(lines, style, text) ? 0 : -ENOMEM;
}

static int add_marked(struct array *lines, const struct top_state *state, enum top_style style, const char *text,
		      size_t mark_at, size_t mark_cnt)
{
	struct top_line *line;

	if (put_line(lines, state, style, "%s", text))
		return -ENOMEM;
	line = &((struct top_line *)lines->items)[lines->cnt - 1];
	line->mark_at = mark_at;
	line->mark_cnt = mark_cnt;
	return 0;
}

static void format_value(double value, enum top_format format, char *out, size_t size)
{
	if (isnan(value))
		snprintf(out, size, "-");
	else if (format == TOP_PERCENT && value > 999.9)
		snprintf(out, size, ">999");
	else if (format == TOP_PERCENT)
		snprintf(out, size, "%.1f", value);
	else if (value >= 1e7)
		snprintf(out, size, "%.1fM", value / 1e6);
	else if (format == TOP_NUMBER && value == floor(value))
		snprintf(out, size, "%.0f", value);
	else if (value > 0 && value < 0.001)
		snprintf(out, size, "<0.001");
	else
		snprintf(out, size, "%.*f", value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3, value);
}

/* ---- header ---- */

static void __attribute__((format(printf, 4, 5)))
add_reading(char *text, size_t size, uint32_t value, const char *fmt, ...)
{
	size_t used = strlen(text);
	va_list ap;

	if (value == GPU_UNKNOWN)
		return;
	va_start(ap, fmt);
	vsnprintf(text + used, size - used, fmt, ap);
	va_end(ap);
}

static int add_gpu_line(const struct rec_gpu_usage *gpu, const struct top_state *state, struct array *lines)
{
	char text[160] = "";

	add_reading(text, sizeof(text), gpu->busy_percent, "  busy %u %%  idle %u %%", gpu->busy_percent,
		    gpu->busy_percent < 100 ? 100 - gpu->busy_percent : 0);
	if (gpu->memory_bytes)
		add_reading(text, sizeof(text), 0, "  memory %.1f of %.1f GB", gpu->memory_used_bytes / 1e9,
			    gpu->memory_bytes / 1e9);
	add_reading(text, sizeof(text), gpu->power_mw, "  %.0f W", gpu->power_mw / 1e3);
	add_reading(text, sizeof(text), gpu->temperature_c, "  %u C", gpu->temperature_c);
	add_reading(text, sizeof(text), gpu->sm_mhz, "  %u MHz", gpu->sm_mhz);
	return put_line(lines, state, STYLE_PLAIN, "GPU %u%s  %s", gpu->device, text, gpu->name);
}

/* "memory 1.92 GB in 3 processes, 9 threads  limits 3.10 of 8.00 GB, 2.5 CPUs": of its cgroup. */
static int add_memory(const struct top_frame *frame, const struct top_state *state, struct array *lines)
{
	const struct cgroup_limits *limits = &frame->limits;
	double cpus = limits->processors && (!limits->cpus || limits->processors < limits->cpus) ? limits->processors
												 : limits->cpus;
	char memory[32], used[32], most[32], text[160] = "";
	int at = 0;

	format_value(frame->rss_bytes / 1e9, TOP_MS, memory, sizeof(memory));
	if (limits->memory_bytes) {
		format_value((limits->memory_bytes - limits->memory_left_bytes) / 1e9, TOP_MS, used, sizeof(used));
		format_value(limits->memory_bytes / 1e9, TOP_MS, most, sizeof(most));
		at = snprintf(text, sizeof(text), "  limits %s of %s GB", used, most);
	}
	if (cpus)
		snprintf(text + at, sizeof(text) - at, "%s %s CPU%s", at ? "," : "  limits", DIGITS(cpus, 4),
			 cpus == 1 ? "" : "s");
	return put_line(lines, state, STYLE_PLAIN, "memory %s GB in %zu process%s, %zu threads%s", memory,
			frame->processes, frame->processes == 1 ? "" : "es", frame->threads, text);
}

static int add_header(const struct top_frame *frame, const struct top_state *state, struct array *lines)
{
	char cpu[32] = "?", rate[32];
	int err;

	if (!isnan(frame->cpu_percent))
		snprintf(cpu, sizeof(cpu), "%.0f", frame->cpu_percent);
	format_value(frame->steps_per_s, TOP_MS, rate, sizeof(rate));
	err = put_line(lines, state, STYLE_TITLE, "stepflame top  %s", frame->target);
	err = err
		      ?: put_line(lines, state, STYLE_PLAIN, "up %.1f s  CPU %s %%  %llu steps  %s steps/s (%s)",
				  frame->elapsed_s, cpu, (unsigned long long)frame->steps, rate, frame->step_rule);
	err = err ?: add_memory(frame, state, lines);
	err = err
		      ?: put_line(lines, state, STYLE_PLAIN,
				  "cost %.0f hits/s, about %s %% of the job; stepflame %.1f %% CPU, %.1f MB",
				  frame->hits_per_s, DIGITS(frame->cost_percent, 2), frame->own_percent, frame->own_mb);
	err = err
		      ?: put_line(lines, state, *frame->losses ? STYLE_WARN : STYLE_PLAIN, "lost %s",
				  *frame->losses ? frame->losses : "nothing");
	for (size_t i = 0; i < frame->gpu_cnt && !err; i++)
		err = add_gpu_line(&frame->gpus[i], state, lines);
	if (!err && *frame->note)
		err = put_line(lines, state, STYLE_WARN, "note %s", frame->note);
	return err;
}

static int add_tabs(const struct top_state *state, struct array *lines)
{
	char text[256];
	size_t at = 0, mark_at = 0, mark_cnt = 0;

	for (int i = 0; i < TOP__VIEWS; i++) {
		int bytes = snprintf(text + at, sizeof(text) - at, "%d %s", i + 1, top_views[i].title);

		if (i == (int)state->view) {
			mark_at = at;
			mark_cnt = bytes;
		}
		at += bytes;
		text[at++] = ' ';
	}
	if (*state->filter || state->typing)
		at += snprintf(text + at, sizeof(text) - at, " /%s%s", state->filter, state->typing ? "_" : "");
	else
		at += snprintf(text + at, sizeof(text) - at, "by %s", sort_title(state, state->view));
	snprintf(text + at, sizeof(text) - at, "%s", state->paused ? "  PAUSED" : "");
	return add_marked(lines, state, STYLE_TABS, text, mark_at, mark_cnt);
}

/* ---- tables ---- */

static size_t column_width(const struct top_column *column)
{
	size_t width = strlen(column->title);

	return width > COLUMN_MIN ? width : COLUMN_MIN;
}

static int add_titles(const struct top_state *state, enum top_view view, struct array *lines)
{
	const struct top_view_info *info = &top_views[view];
	char text[256];
	size_t at = 0, mark_at = 0, mark_cnt = 0;

	for (int i = 0; i <= info->column_cnt; i++) {
		int width = i < info->column_cnt ? (int)column_width(&info->columns[i]) : 0;
		const char *title = i < info->column_cnt ? info->columns[i].title : info->rows;

		if (i == state->sort[view]) {
			mark_at = at + (width > (int)strlen(title) ? width - strlen(title) : 0);
			mark_cnt = strlen(title);
		}
		at += snprintf(text + at, sizeof(text) - at, "%*s%s", width, title, width ? " " : "");
	}
	return add_marked(lines, state, STYLE_COLUMNS, text, mark_at, mark_cnt);
}

/* Draws the newest steps that fit, as bars relative to the longest of them. */
static void add_history(const struct top_history *history, size_t room, bool utf8, FILE *out)
{
	static const char ascii[] = "_.-=+*#@";
	size_t first = history->cnt > room ? history->cnt - room : 0;
	double max = 0;

	for (size_t i = first; i < history->cnt; i++)
		max = fmax(max, history->ms[i]);
	for (size_t i = first; i < history->cnt; i++) {
		int level = max > 0 ? (int)fmin(7, history->ms[i] / max * 8) : 0;

		if (utf8)
			fprintf(out, "\xe2\x96%c", 0x81 + level); /* U+2581 to U+2588 */
		else
			fputc(ascii[level], out);
	}
}

static int add_row_line(const struct top_row *row, const struct top_state *state, enum top_view view,
			struct array *lines)
{
	const struct top_view_info *info = &top_views[view];
	int sort = state->sort[view];
	size_t bytes, used = 0, room = 0;
	char *text = NULL, *name;
	bool hot = sort < info->column_cnt && info->columns[sort].format == TOP_PERCENT && row->values[sort] >= HOT;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return -ENOMEM;
	for (int i = 0; i < info->column_cnt; i++) {
		int width = column_width(&info->columns[i]);
		char value[32];

		format_value(row->values[i], info->columns[i].format, value, sizeof(value));
		fprintf(out, "%*s ", width, value);
		used += width + 1;
	}
	if (state->width)
		room = state->width > (int)(used + NAME_MIN) ? state->width - used : NAME_MIN;
	name = fit_text(row->name, room, true, state->utf8);
	fputs(name ?: "", out);
	if (name && row->history) {
		size_t left = room ? room - columns__of_text(name) : WHOLE;

		fputc(' ', out);
		add_history(row->history, left ? left - 1 : 0, state->utf8, out);
	}
	if (fclose(out) || !name) {
		free(text);
		text = NULL;
	}
	free(name);
	return append_line(lines, hot ? STYLE_HOT : STYLE_PLAIN, text) ? 0 : -ENOMEM;
}

/* Adds rows from `from` on, at most limit (0: all). *cnt: the number of rows that match the filter. */
static int add_rows(const struct top_frame *frame, const struct top_state *state, enum top_view view, size_t from,
		    size_t limit, struct array *lines)
{
	size_t cnt;
	const struct top_row **rows = top_frame__sorted(frame, view, state->sort[view], state->filter, &cnt);
	int err = rows ? 0 : -ENOMEM;

	for (size_t i = from; !err && i < cnt && (!limit || i - from < limit); i++)
		err = add_row_line(rows[i], state, view, lines);
	free(rows);
	return err;
}

static size_t count_chosen(const struct top_frame *frame, const struct top_state *state)
{
	size_t cnt;

	free(top_frame__sorted(frame, state->view, state->sort[state->view], state->filter, &cnt));
	return cnt;
}

/* ---- screen and file ---- */

static const char keys[] = "q quit  p pause  s sort  / filter  Tab 1-6 view  r reset  h help";

static int add_help(const struct top_state *state, struct array *lines)
{
	static const char *const help[] = {
		"q, Ctrl-C          quit; the job goes on",
		"Tab, 1 to 6        the next view; that one",
		"s or >, <          sort by the next column; by the one before",
		"/                  show rows with a text; Enter applies it, Esc removes it",
		"arrows, PgUp, PgDn scroll; also Home, End, j and k",
		"p or space         hold the picture; stepflame goes on counting",
		"r                  count totals from now on",
		"h or ?             this; any key goes back",
		"",
	};
	const struct top_view_info *info = &top_views[state->view];
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(help) / sizeof(*help); i++)
		err = put_line(lines, state, STYLE_PLAIN, "%s", help[i]);
	err = err ?: put_line(lines, state, STYLE_TITLE, "%s", info->title);
	for (int i = 0; !err && i < info->column_cnt; i++)
		err = put_line(lines, state, STYLE_PLAIN, "%-18s %s", info->columns[i].title, info->columns[i].help);
	return err;
}

int top_lines__screen(const struct top_frame *frame, struct top_state *state, struct array *lines)
{
	size_t cnt = count_chosen(frame, state), room;
	int err;

	if (state->help)
		return add_help(state, lines);
	err = add_header(frame, state, lines) ?: add_tabs(state, lines) ?: add_titles(state, state->view, lines);
	if (err)
		return err;
	room = state->height > (int)lines->cnt + 1 ? state->height - lines->cnt - 1 : 1;
	if (state->scroll + room > cnt)
		state->scroll = cnt > room ? cnt - room : 0;
	err = add_rows(frame, state, state->view, state->scroll, room, lines);
	if (!err && !cnt)
		err = put_line(lines, state, STYLE_PLAIN,
			       *state->filter ? "no row has that text" : "nothing was seen yet");
	while (!err && lines->cnt + 1 < (size_t)state->height)
		err = put_line(lines, state, STYLE_PLAIN, "%s", "");
	return err ?: put_line(lines, state, STYLE_TABS, "%s", keys);
}

int top_lines__batch(const struct top_frame *frame, const struct top_state *state, size_t limit, struct array *lines)
{
	int err = add_header(frame, state, lines);

	for (int view = 0; view < TOP__VIEWS && !err; view++) {
		if (state->view != TOP__VIEWS && state->view != (enum top_view)view)
			continue;
		err = put_line(lines, state, STYLE_PLAIN, "%s", "") ?: add_titles(state, view, lines);
		err = err ?: add_rows(frame, state, view, 0, limit, lines);
	}
	return err;
}

void top_lines__release(struct array *lines)
{
	struct top_line *all = lines->items;

	for (size_t i = 0; i < lines->cnt; i++)
		free(all[i].text);
	free(all);
	*lines = (struct array){0};
}

/* ---- for programs ---- */

static json_t *number_or_null(double value)
{
	return common__json_real(!isnan(value), value);
}

/* The screen formats a value as its column says (add_row_line): "12.3k" is a number to no program. */
static int add_top_row(struct table *table, const struct top_row *row, const struct top_view_info *info)
{
	struct cell cells[1 + TOP_VALUES] = {cell__json("name", json__string(row->name))};

	for (int i = 0; i < info->column_cnt; i++)
		cells[1 + i] = cell__json(info->columns[i].key, number_or_null(row->values[i]));
	return table__add(table, cells, 1 + info->column_cnt);
}

static json_t *json_rows(const struct top_frame *frame, enum top_view view, size_t limit)
{
	size_t cnt;
	const struct top_row **rows = top_frame__sorted(frame, view, top_views[view].sort, "", &cnt);
	struct table table = {.list = json_array()};
	int err = rows ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < cnt && (!limit || i < limit); i++)
		err = add_top_row(&table, rows[i], &top_views[view]);
	free(rows);
	return common__json_unless_failed(table.list, err);
}

static json_t *known(uint32_t value, double unit)
{
	return common__json_real(value != GPU_UNKNOWN, value / unit);
}

/* Of memory that is known. */
static json_t *bytes_or_null(bool is_known, uint64_t bytes)
{
	return is_known ? common__json_integer(bytes) : json_null();
}

static int add_gpu(struct table *table, const struct rec_gpu_usage *gpu)
{
	return TABLE_ADD(table, ((const struct cell[]){
					cell__json("device", json_integer(gpu->device)),
					cell__json("name", common__json_text(gpu->name)),
					cell__json("busy_percent", known(gpu->busy_percent, 1)),
					cell__json("memory_used_bytes",
						   bytes_or_null(gpu->memory_bytes, gpu->memory_used_bytes)),
					cell__json("memory_bytes", bytes_or_null(gpu->memory_bytes, gpu->memory_bytes)),
					cell__json("power_w", known(gpu->power_mw, 1e3)),
					cell__json("temperature_c", known(gpu->temperature_c, 1)),
				}));
}

static json_t *json_gpus(const struct top_frame *frame)
{
	struct table table = {.list = json_array()};
	int err = 0;

	for (size_t i = 0; i < frame->gpu_cnt && !err; i++)
		err = add_gpu(&table, &frame->gpus[i]);
	return common__json_unless_failed(table.list, err);
}

static json_t *json_limits(const struct cgroup_limits *limits)
{
	bool memory = limits->memory_bytes;

	return json_pack("{s:o, s:o, s:o, s:o}", "memory_bytes", bytes_or_null(memory, limits->memory_bytes),
			 "memory_left_bytes", bytes_or_null(memory, limits->memory_left_bytes), "cpus",
			 common__json_real(limits->cpus, limits->cpus), "processors",
			 limits->processors ? json_integer(limits->processors) : json_null());
}

int top_lines__json(const struct top_frame *frame, enum top_view view, size_t limit, FILE *out)
{
	json_t *object = json_pack(
		"{s:s, s:f, s:f, s:o, s:I, s:I, s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:o, s:{s:o, s:f}, s:s, s:o, s:o}",
		"report", "top", "elapsed_s", frame->elapsed_s, "interval_s", frame->interval_s, "target",
		json__string(frame->target), "process_count", (json_int_t)frame->processes, "thread_count",
		(json_int_t)frame->threads, "cpu_percent", number_or_null(frame->cpu_percent), "rss_bytes",
		common__json_integer(frame->rss_bytes), "limits", json_limits(&frame->limits), "step_count",
		(json_int_t)frame->steps, "steps_per_s", number_or_null(frame->steps_per_s), "step_rule",
		frame->step_rule, "hits_per_s", number_or_null(frame->hits_per_s), "cost_percent",
		number_or_null(frame->cost_percent), "own", "cpu_percent", number_or_null(frame->own_percent), "rss_mb",
		frame->own_mb, "lost", frame->losses, "note", json__string(frame->note), "gpus", json_gpus(frame));
	int err = object ? 0 : -ENOMEM;

	for (int i = 0; i < TOP__VIEWS && !err; i++)
		if (view == TOP__VIEWS || view == (enum top_view)i)
			err = json_object_set_new(object, top_views[i].name, json_rows(frame, i, limit));
	if (!err)
		err = json__print(object, JSON_COMPACT | JSON_REAL_PRECISION(15), out);
	json_decref(object);
	fputc('\n', out);
	return err ? -ENOMEM : common__flush(out);
}

/* ---- CSV ---- */

/* Takes row over; NULL: no memory. Returns it behind the time of its frame; NULL: no memory. */
static json_t *timed_row(const struct top_frame *frame, json_t *row)
{
	json_t *timed = json_pack("{s:f}", "elapsed_s", frame->elapsed_s);
	int failed = json_object_update(timed, row);

	json_decref(row);
	return common__json_unless_failed(timed, failed);
}

static json_t *blank_top_row(const struct top_view_info *info)
{
	const struct top_row row = {.name = ""};
	struct table table = {.list = json_array()};

	return common__json_first(table.list, add_top_row(&table, &row, info));
}

int top_lines__csv(const struct top_frame *frame, enum top_view view, size_t limit, struct csv *csv)
{
	json_t *rows = json_rows(frame, view, limit);
	int err = rows ? 0 : -ENOMEM;

	if (!err && !csv->columns)
		err = csv__heads(csv, timed_row(frame, blank_top_row(&top_views[view])));
	for (size_t i = 0; !err && i < json_array_size(rows); i++)
		err = csv__row(csv, timed_row(frame, json_incref(json_array_get(rows, i))));
	json_decref(rows);
	return err ?: common__flush(csv->out);
}

/* ---- keys ---- */

static void type_filter(struct top_state *state, int key)
{
	size_t length = strlen(state->filter);

	state->scroll = 0;
	if (key == '\n' || key == '\r') {
		state->typing = false;
	} else if (key == TOP_KEY_ESCAPE) {
		state->typing = false;
		*state->filter = 0;
	} else if ((key == TOP_KEY_BACKSPACE || key == '\b') && length) {
		state->filter[length - 1] = 0;
	} else if (key >= ' ' && key < TOP_KEY_BACKSPACE && length + 1 < sizeof(state->filter)) {
		state->filter[length] = key;
		state->filter[length + 1] = 0;
	}
}

/*
 * Returns how many rows a key scrolls down; below 0: up. Making the lines limits it to the rows
 * that exist.
 */
static long scroll_by(const struct top_state *state, int key)
{
	long page = state->height > 11 ? state->height - 9 : 2;

	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		return -1;
	case TOP_KEY_DOWN:
	case 'j':
		return 1;
	case TOP_KEY_PAGE_UP:
		return -page;
	case TOP_KEY_PAGE_DOWN:
		return page;
	case TOP_KEY_HOME:
		return -(long)state->scroll;
	case TOP_KEY_END:
		return 1 << 24;
	default:
		return 0;
	}
}

static void show_view(struct top_state *state, int view)
{
	state->view = view;
	state->scroll = 0;
}

enum top_command top_state__key(struct top_state *state, int key)
{
	long scroll = (long)state->scroll + scroll_by(state, key);

	if (key == TOP_KEY_NONE || key == TOP_KEY_RESIZE)
		return TOP_GO_ON;
	if (state->typing) {
		type_filter(state, key);
		return TOP_GO_ON;
	}
	if (state->help && key != 'q') {
		state->help = false;
		return TOP_GO_ON;
	}
	state->scroll = scroll < 0 ? 0 : scroll;
	if (key >= '1' && key < '1' + TOP__VIEWS)
		show_view(state, key - '1');
	else if (key == '\t')
		show_view(state, (state->view + 1) % TOP__VIEWS);
	else if (key == TOP_KEY_BACK_TAB)
		show_view(state, (state->view + TOP__VIEWS - 1) % TOP__VIEWS);
	else if (key == 's' || key == '>')
		top_state__next_sort(state, 1);
	else if (key == '<')
		top_state__next_sort(state, -1);
	else if (key == 'p' || key == ' ')
		state->paused = !state->paused;
	else if (key == 'h' || key == '?')
		state->help = true;
	else if (key == '/')
		state->typing = true;
	else if (key == TOP_KEY_ESCAPE)
		*state->filter = 0;
	return key == 'q' ? TOP_QUIT : key == 'r' ? TOP_RESET : TOP_GO_ON;
}
