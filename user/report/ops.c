// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The operator report: torch.profiler's table of the operators counted, and what the table is made
 * from.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/digits.h"
#include "user/lib/saturating.h"
#include "user/lib/utf8.h"
#include "user/lib/words.h"
#include "user/model/labels.h"
#include "user/report/common.h"
#include "user/report/ops_rows.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"

struct ops_table_options {
	size_t limit; /* rows to print; widths and sums are those of all rows */
	bool shapes;  /* columns; the table omits one for which no row has a value */
	bool flops;
	bool memory;
	bool device_memory;
	bool device; /* columns of times on GPUs */
};

/* ---- torch's table of operators ---- */

/*
 * Times are converted to double us before they are added or divided, as in torch, so that they round alike.
 */
#define NUMBER_WIDTH  12
#define NAME_WIDEST   55 /* code points of the widest column of this kind */
#define SHAPES_WIDEST 80
#define SOURCE_WIDEST 75

#define COLUMNS(X)                             \
	X(NAME, "Name")                        \
	X(OVERLOAD, "Overload Name")           \
	X(SELF_SHARE, "Self CPU %")            \
	X(SELF, "Self CPU")                    \
	X(TOTAL_SHARE, "CPU total %")          \
	X(TOTAL, "CPU total")                  \
	X(AVERAGE, "CPU time avg")             \
	X(SELF_DEVICE, "Self CUDA")            \
	X(SELF_DEVICE_SHARE, "Self CUDA %")    \
	X(DEVICE_TOTAL, "CUDA total")          \
	X(DEVICE_AVERAGE, "CUDA time avg")     \
	X(MEMORY, "CPU Mem")                   \
	X(SELF_MEMORY, "Self CPU Mem")         \
	X(DEVICE_MEMORY, "CUDA Mem")           \
	X(SELF_DEVICE_MEMORY, "Self CUDA Mem") \
	X(CALLS, "# of Calls")                 \
	X(SHAPES, "Input Shapes")              \
	X(MODULE, "Module")                    \
	X(SOURCE, "Source Location")           \
	X(FLOPS, NULL)

enum op_column {
#define X(column, title) column,
	COLUMNS(X)
#undef X
		COLUMN__COUNT
};

static const char *const titles[] = {
#define X(column, title) title,
	COLUMNS(X)
#undef X
};

struct table_layout {
	size_t width[COLUMN__COUNT]; /* 0: no such column */
	double self_us;              /* sum over all rows */
	double device_us;            /* the same, for GPU time */
	double flops_scale;
	const char *flops_title;
};

/* One cell of a line as text. The largest is SHAPES_WIDEST code points of up to 4 bytes. */
typedef char cell_text[4 * SHAPES_WIDEST + 8];

static bool is_left(enum op_column column)
{
	return column == SOURCE || column == MODULE;
}

/* ---- pieces of text, counted in code points ---- */

static const char *skip_code_points(const char *text, size_t cnt)
{
	while (cnt && *text) {
		do
			text++;
		while ((*text & 0xc0) == 0x80);
		cnt--;
	}
	return text;
}

static void copy_head(cell_text cell, const char *text, size_t cnt)
{
	size_t bytes = skip_code_points(text, cnt) - text;

	memcpy(cell, text, bytes);
	cell[bytes] = 0;
}

/* Truncates a name at its end. NULL stands for no name. 0 or -ENOMEM. */
static int write_op_name(cell_text cell, const char *name)
{
	char *escaped = utf8__escape(name ?: "");

	if (!escaped)
		return -ENOMEM;
	copy_head(cell, escaped, NAME_WIDEST - 3);
	if (text__width(escaped) >= NAME_WIDEST - 3)
		strcat(cell, "...");
	free(escaped);
	return 0;
}

/* Truncates a path at its start. NULL stands for no path. 0 or -ENOMEM. */
static int write_source_path(cell_text cell, const char *path, size_t width)
{
	char *escaped = utf8__escape(path ?: "");
	size_t have = escaped ? text__width(escaped) : 0;

	if (!escaped)
		return -ENOMEM;
	if (have <= width)
		copy_head(cell, escaped, width);
	else
		snprintf(cell, sizeof(cell_text), "...%s", skip_code_points(escaped, have - width + 3));
	free(escaped);
	return 0;
}

/* ---- numbers ---- */

static void format_us(cell_text cell, double us)
{
	if (us >= 1e6)
		snprintf(cell, sizeof(cell_text), "%.3fs", us / 1e6);
	else if (us >= 1e3)
		snprintf(cell, sizeof(cell_text), "%.3fms", us / 1e3);
	else
		snprintf(cell, sizeof(cell_text), "%.3fus", us);
}

static void format_share(cell_text cell, double us, double all_us)
{
	if (all_us == 0)
		strcpy(cell, "NaN");
	else
		snprintf(cell, sizeof(cell_text), "%.2f%%", us * 100 / all_us);
}

static void format_bytes(cell_text cell, int64_t bytes)
{
	static const char *const units[] = {"KB", "MB", "GB"};
	double size = fabs((double)bytes);
	int unit = -1;

	while (unit < 2 && size >= ldexp(1, 10 * (unit + 2)))
		unit++;
	if (unit < 0)
		snprintf(cell, sizeof(cell_text), "%" PRId64 " B", bytes);
	else
		snprintf(cell, sizeof(cell_text), "%.2f %s", ldexp(bytes, -10 * (unit + 1)), units[unit]);
}

/* ---- layout ---- */

/* Returns the width of the widest text plus 4, at most `most`. 0: no memory. */
static size_t text_width(const char *text, size_t most)
{
	char *escaped = utf8__escape(text);
	size_t width = escaped ? text__width(escaped) + 4 : 0;

	free(escaped);
	return width < most ? width : most;
}

static void widen_column(size_t *width, size_t other)
{
	if (other > *width)
		*width = other;
}

static int measure_texts(struct table_layout *layout, const struct ops_row *rows, size_t cnt)
{
	size_t *width = layout->width;

	for (size_t i = 0; i < cnt; i++) {
		size_t name = text_width(rows[i].name, NAME_WIDEST);

		if (!name)
			return -ENOMEM;
		widen_column(&width[NAME], name);
		if (rows[i].module)
			widen_column(&width[MODULE], text_width(rows[i].module, SOURCE_WIDEST));
		if (rows[i].source)
			widen_column(&width[SOURCE], text_width(rows[i].source, SOURCE_WIDEST));
	}
	return 0;
}

/* The row with the fewest FLOPs decides the unit. */
static void measure_flops(struct table_layout *layout, const struct ops_row *rows, size_t cnt)
{
	static const char *const units[] = {"Total FLOPs",  "Total KFLOPs", "Total MFLOPs",
					    "Total GFLOPs", "Total TFLOPs", "Total PFLOPs"};
	uint64_t least = 0;
	double unit;

	for (size_t i = 0; i < cnt; i++)
		if (rows[i].flops && (!least || rows[i].flops < least))
			least = rows[i].flops;
	if (!least)
		return;
	unit = floor(fmin(log10(least) / 3, 5));
	layout->width[FLOPS] = NUMBER_WIDTH;
	layout->flops_title = units[(int)unit];
	layout->flops_scale = pow(10, -3 * unit);
}

static int measure_columns(struct table_layout *layout, const struct ops_row *rows, size_t cnt,
			   const struct ops_table_options *options)
{
	size_t *width = layout->width, shapes = 0;
	bool overloads = false, some_shapes = false;

	for (size_t i = 0; i < cnt; i++) {
		layout->self_us += rows[i].val.self_ns / 1e3;
		if (rows[i].activity)
			layout->device_us += rows[i].self_device_ns / 1e3;
		overloads |= rows[i].overload && *rows[i].overload;
		some_shapes |= rows[i].word_cnt;
		if (rows[i].shapes)
			widen_column(&shapes, strlen(rows[i].shapes) + 4);
	}
	for (enum op_column c = SELF_SHARE; c <= CALLS; c++)
		width[c] = NUMBER_WIDTH;
	for (enum op_column c = SELF_DEVICE; c <= DEVICE_AVERAGE && !options->device; c++)
		width[c] = 0;
	if (!options->memory)
		width[MEMORY] = width[SELF_MEMORY] = 0;
	if (!options->device_memory)
		width[DEVICE_MEMORY] = width[SELF_DEVICE_MEMORY] = 0;
	if (options->shapes && some_shapes)
		width[SHAPES] = shapes < SHAPES_WIDEST ? shapes : SHAPES_WIDEST;
	if (options->flops)
		measure_flops(layout, rows, cnt);
	if (measure_texts(layout, rows, cnt))
		return -ENOMEM;
	if (overloads)
		width[OVERLOAD] = width[NAME];
	return 0;
}

/* ---- lines ---- */

static void print_cells_line(const struct table_layout *layout, cell_text *cells, FILE *out)
{
	for (enum op_column c = 0; c < COLUMN__COUNT; c++) {
		size_t have = text__width(cells[c]);
		int pad = have < layout->width[c] ? (int)(layout->width[c] - have) : 0;

		if (layout->width[c])
			fprintf(out, "%*s%s%*s  ", is_left(c) ? 0 : pad, "", cells[c], is_left(c) ? pad : 0, "");
	}
	fputc('\n', out);
}

static void print_ops_dashes(const struct table_layout *layout, FILE *out)
{
	for (enum op_column c = 0; c < COLUMN__COUNT; c++) {
		for (size_t i = 0; i < layout->width[c]; i++)
			fputc('-', out);
		if (layout->width[c])
			fputs("  ", out);
	}
	fputc('\n', out);
}

static void print_header(const struct table_layout *layout, FILE *out)
{
	cell_text cells[COLUMN__COUNT] = {""};

	for (enum op_column c = 0; c < COLUMN__COUNT; c++)
		if (layout->width[c])
			strcpy(cells[c], c == FLOPS ? layout->flops_title : titles[c]);
	print_ops_dashes(layout, out);
	print_cells_line(layout, cells, out);
	print_ops_dashes(layout, out);
}

static void write_device(const struct table_layout *layout, const struct ops_row *row, cell_text *cells)
{
	double total_us = row->device_ns / 1e3, self_us = row->self_device_ns / 1e3;

	if (row->device_unknown) {
		for (enum op_column c = SELF_DEVICE; c <= DEVICE_AVERAGE; c++)
			strcpy(cells[c], "--");
		return;
	}
	format_us(cells[SELF_DEVICE], self_us);
	format_share(cells[SELF_DEVICE_SHARE], self_us, layout->device_us);
	format_us(cells[DEVICE_TOTAL], total_us);
	format_us(cells[DEVICE_AVERAGE], total_us / row->val.calls);
}

static int print_op_row(const struct table_layout *layout, const struct ops_row *row, FILE *out)
{
	cell_text cells[COLUMN__COUNT] = {""};
	const struct op_val *val = &row->val;
	double total_us = val->total_ns / 1e3, self_us = val->self_ns / 1e3;

	if (write_op_name(cells[NAME], row->name) || write_op_name(cells[OVERLOAD], row->overload) ||
	    write_source_path(cells[MODULE], row->module, layout->width[MODULE]) ||
	    write_source_path(cells[SOURCE], row->source, layout->width[SOURCE]))
		return -ENOMEM;
	format_share(cells[SELF_SHARE], self_us, layout->self_us);
	format_us(cells[SELF], self_us);
	format_share(cells[TOTAL_SHARE], total_us, layout->self_us);
	format_us(cells[TOTAL], total_us);
	format_us(cells[AVERAGE], total_us / val->calls);
	write_device(layout, row, cells);
	format_bytes(cells[MEMORY], val->total_bytes[OP_MEMORY_CPU]);
	format_bytes(cells[SELF_MEMORY], val->self_bytes[OP_MEMORY_CPU]);
	format_bytes(cells[DEVICE_MEMORY], val->total_bytes[OP_MEMORY_DEVICE]);
	format_bytes(cells[SELF_DEVICE_MEMORY], val->self_bytes[OP_MEMORY_DEVICE]);
	snprintf(cells[CALLS], sizeof(cell_text), "%" PRIu64, (uint64_t)val->calls);
	if (row->shapes)
		copy_head(cells[SHAPES], row->shapes, layout->width[SHAPES]);
	if (row->flops)
		snprintf(cells[FLOPS], sizeof(cell_text), "%8.3f", row->flops * layout->flops_scale);
	else
		strcpy(cells[FLOPS], "--");
	print_cells_line(layout, cells, out);
	if (layout->width[SOURCE]) /* torch reserves space for the rest of a stack */
		print_cells_line(layout, (cell_text[COLUMN__COUNT]){""}, out);
	return 0;
}

/*
 * Prints the table alone, with rows in the given order: byte for byte what torch 2.15's
 * EventList.table() returns (_build_table() in torch/autograd/profiler_util.py), with three
 * exceptions: control characters in names are escaped; there is a Module column, which torch lacks;
 * and Source Location and Total FLOPs together have their own titles, where torch prints the values
 * of each below the title of the other. 0 or -ENOMEM; the caller checks out for errors.
 */
static int ops_table__print(const struct ops_row *rows, size_t cnt, const struct ops_table_options *options, FILE *out)
{
	struct table_layout layout = {0};
	cell_text sum;
	int err = measure_columns(&layout, rows, cnt, options);

	if (err || !cnt)
		return err;
	print_header(&layout, out);
	for (size_t i = 0; i < cnt && i < options->limit && !err; i++)
		err = print_op_row(&layout, &rows[i], out);
	print_ops_dashes(&layout, out);
	format_us(sum, layout.self_us);
	fprintf(out, "Self CPU time total: %s\n", sum);
	if (options->device) {
		format_us(sum, layout.device_us);
		fprintf(out, "Self CUDA time total: %s\n", sum);
	}
	return err;
}

/* ---- what is in the report ---- */

#define DEFAULT_LIMIT 20 /* as in Lightning's PyTorchProfiler */

/*
 * torch shows memory columns when profile_memory is set; this report, when there is any memory to
 * show.
 */
static bool saw_memory(struct job *job, enum op_memory memory)
{
	size_t cnt;
	const struct op_row *ops = job__ops(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (ops[i].val.self_bytes[memory] || ops[i].val.total_bytes[memory])
			return true;
	return false;
}

/* ---- text ---- */

/* malloc'ed; NULL: no memory. */
static char *no_ops_text(struct job *job, const struct ops_rows *rows, const struct report_options *options,
			 uint32_t pid)
{
	const char *where = pid == PROCESSES_ALL_MAIN ? "" : " in this process";
	size_t window_cnt;
	char *text;
	int bytes;

	job__op_windows(job, &window_cnt);
	if (rows->has_rows)
		bytes = asprintf(&text,
				 "No operator was seen%s in an action named \"%s\". Names are matched exactly; "
				 "--by-action shows every action, and %s has what is in no action.",
				 where, options->action, OPS_NO_ACTION);
	else if (window_cnt)
		bytes = asprintf(&text,
				 "No operator was seen%s while operators were counted. Is the job training, past its "
				 "imports and set-up? Then record for longer; --per-rank lists what its children did.",
				 where);
	else
		bytes = asprintf(&text, "This recording has no operators: stepflame counts them only on request, "
					"because each call costs. Record again with --ops: stepflame record --ops -p "
					"PID");
	return bytes < 0 ? NULL : text;
}

static char *why_no_ops(struct job *job, const struct report_options *options, uint32_t pid)
{
	struct ops_rows rows;
	char *text;

	if (ops_rows__collect(job, options, pid, options->by_action, &rows))
		return NULL;
	text = rows.cnt ? NULL : no_ops_text(job, &rows, options, pid);
	ops_rows__release(&rows);
	return text;
}

static int explain_no_ops(struct job *job, const struct ops_rows *rows, const struct report_options *options,
			  uint32_t pid, FILE *out)
{
	char *text = no_ops_text(job, rows, options, pid);

	if (text)
		text__paragraph(out, "%s", text);
	free(text);
	return text ? 0 : -ENOMEM;
}

/* Explains options that ask for something no row has: the recording was made without it. */
static void explain_missing(const struct ops_rows *rows, const struct report_options *options, FILE *out)
{
	bool shapes = options->shapes || options->flops, stacks = options->stacks, modules = options->modules;

	for (size_t i = 0; i < rows->cnt; i++) {
		shapes &= !rows->items[i].shaped;
		stacks &= !rows->items[i].source;
		modules &= !rows->items[i].module;
	}
	if (shapes || stacks || modules)
		text__paragraph(out, "not recorded:%s%s%s; record with the same switches to have them",
				shapes ? " --shapes" : "", stacks ? " --stacks" : "", modules ? " --modules" : "");
}

/* Operator windows begin with the recording, CUPTI windows once the process has CUDA. */
#define CUPTI_LATE_NS 100000000

static void explain_unwatched(struct job *job, uint32_t pid, FILE *out)
{
	const struct gpu *gpu = job__gpu(job);
	size_t cnt, process_cnt = 0;
	const struct rec_op_window *windows = job__op_windows(job, &cnt);
	const struct gpu_process *processes = gpu ? gpu__processes(gpu, &process_cnt) : NULL;

	for (size_t p = 0; p < process_cnt; p++) {
		uint64_t counted_ns = 0;

		if (processes[p].tier != GPU_TIER_CUPTI || !processes__in_scope(job, processes[p].pid, pid))
			continue;
		for (size_t i = 0; i < cnt; i++)
			if (windows[i].pid == processes[p].pid && windows[i].end_ns > windows[i].start_ns)
				counted_ns = saturating__add(counted_ns, windows[i].end_ns - windows[i].start_ns);
		if (counted_ns > processes[p].cupti_ns && counted_ns - processes[p].cupti_ns > CUPTI_LATE_NS)
			text__paragraph(
				out,
				"device times: of pid %u CUPTI watched at most %s s of the %s s in which operators "
				"were counted: device times lack the calls outside, and averages by call are too low",
				REC_PID(processes[p].pid), DIGITS(processes[p].cupti_ns / 1e9, 4),
				DIGITS(counted_ns / 1e9, 4));
	}
}

static void explain_device(const struct ops_rows *rows, FILE *out)
{
	bool unknown = false;

	for (size_t i = 0; i < rows->cnt; i++)
		unknown |= rows->items[i].device_unknown;
	if (unknown)
		text__paragraph(out,
				"device times: -- means that it is not known which of these rows' calls launched the "
				"work");
	if (rows->gpu.without_paths)
		text__paragraph(out,
				"device times: CUDA total has only the innermost operators, because without samples "
				"it is not known what is around them");
}

static int print_ops_tables(struct job *job, const struct report_options *options, uint32_t pid, FILE *out)
{
	struct ops_table_options table = {
		.limit = report_options__limit(options, DEFAULT_LIMIT),
		.shapes = options->shapes,
		.flops = options->flops,
		.memory = saw_memory(job, OP_MEMORY_CPU),
		.device_memory = saw_memory(job, OP_MEMORY_DEVICE),
	};
	struct ops_rows rows;
	int err = ops_rows__collect(job, options, pid, options->by_action, &rows);

	if (err)
		return err;
	table.device = rows.has_device;
	if (!rows.cnt)
		err = explain_no_ops(job, &rows, options, pid, out);
	for (size_t first = 0, next; first < rows.cnt && !err; first = next) {
		const char *action = rows.items[first].action;

		for (next = first; next < rows.cnt && ops_rows__same_action(&rows.items[first], &rows.items[next]);)
			next++;
		if (options->by_action)
			text__line(out, "Profile stats for: %s", action ? action : OPS_NO_ACTION);
		err = ops_table__print(&rows.items[first], next - first, &table, out);
		common__left_out(next - first, table.limit, "row", out);
		if (options->by_action)
			fputc('\n', out);
	}
	if (!err && rows.cnt)
		explain_missing(&rows, options, out);
	if (!err && rows.has_device) {
		explain_unwatched(job, pid, out);
		explain_device(&rows, out);
	}
	if (!err && rows.processes > 1)
		text__paragraph(out, "rows: added over %zu processes (--per-rank: apart)", rows.processes);
	ops_rows__release(&rows);
	return err;
}

static void print_op_windows(struct job *job, FILE *out)
{
	size_t cnt, processes = 0;
	const struct rec_op_window *windows = job__op_windows(job, &cnt);
	uint64_t steps = 0, cut = 0, ns = 0;

	for (size_t i = 0; i < cnt; i++) {
		processes += !i || windows[i].pid != windows[i - 1].pid;
		steps += windows[i].steps;
		cut += windows[i].cut;
		ns += windows[i].end_ns - windows[i].start_ns;
	}
	if (!cnt)
		return;
	text__paragraph(out, "operators: counted in %zu window%s, %" PRIu64 " step%s, %s s%s", cnt, cnt == 1 ? "" : "s",
			steps, steps == 1 ? "" : "s", DIGITS(ns / 1e9, 4),
			processes > 1 ? ", added over the processes" : "");
	if (cut)
		text__paragraph(out, "timeline: %" PRIu64 " span%s did not fit; the table has them", cut,
				cut == 1 ? "" : "s");
}

/* ---- JSON ---- */

/* Returns lists of dims, one per argument, as in the Input Shapes column. */
static json_t *json_shapes(const struct ops_row *row)
{
	json_t *list = json_array();
	struct word_arg arg;
	size_t at = 0;
	int failed = 0;

	while (words__next(row->words, row->word_cnt, &at, &arg) && arg.tag != OP_WORD_CUT) {
		json_t *dims = json_array();

		for (uint32_t i = 0; arg.tag == OP_WORD_TENSOR && i < arg.cnt; i++)
			failed |= json_array_append_new(dims, json_integer((json_int_t)arg.values[i]));
		failed |= json_array_append_new(list, dims);
	}
	return common__json_unless_failed(list, failed);
}

static json_t *json_dtypes(const struct ops_row *row)
{
	json_t *list = json_array();
	struct word_arg arg;
	size_t at = 0;

	while (words__next(row->words, row->word_cnt, &at, &arg) && arg.tag != OP_WORD_CUT) {
		bool tensor = arg.tag == OP_WORD_TENSOR || arg.tag == OP_WORD_OPAQUE;

		common__json_append(&list, common__json_text(tensor ? words__dtype(arg.dtype) : NULL));
	}
	return list;
}

static json_t *json_bytes(bool known, int64_t bytes)
{
	return known ? json_integer(bytes) : json_null();
}

static const char *row_kind(const struct ops_row *row)
{
	static const char *const works[GPU_ACTIVITY__COUNT] = {
		[GPU_ACTIVITY_KERNEL] = "kernel",
		[GPU_ACTIVITY_COPY] = "copy",
		[GPU_ACTIVITY_SET] = "set",
		[GPU_ACTIVITY_GRAPH] = "graph",
	};

	return row->activity ? works[row->activity] : labels__kind(row->kind);
}

static json_t *json_device(const struct ops_rows *rows, const struct ops_row *row, uint64_t ns)
{
	return rows->has_device && !row->device_unknown ? json_real(ns / 1e3) : json_null();
}

SHAPE(op_shape, "op",
      "name:s overload:s? kind:s action:s? count:I self_cpu_us:f cpu_total_us:f cpu_avg_us:f self_device_us:f? "
      "device_total_us:f? input_shapes:[[I]]? input_dtypes:[s?]? source:s? module:s? self_cpu_memory:I? cpu_memory:I? "
      "flops:I? pid:I?");

static json_t *json_op_row(const struct ops_rows *rows, const struct ops_row *row, bool memory)
{
	const struct op_val *val = &row->val;
	bool shapes = row->word_cnt;

	return SHAPE_PACK(op_shape, json_string(row->name), common__json_text(row->overload),
			  json_string(row_kind(row)), common__json_text(row->action), json_integer(val->calls),
			  json_real(val->self_ns / 1e3), json_real(val->total_ns / 1e3),
			  json_real(val->total_ns / 1e3 / val->calls), json_device(rows, row, row->self_device_ns),
			  json_device(rows, row, row->device_ns), shapes ? json_shapes(row) : json_null(),
			  shapes && row->same_words ? json_dtypes(row) : json_null(), common__json_text(row->source),
			  common__json_text(row->module), json_bytes(memory, val->self_bytes[OP_MEMORY_CPU]),
			  json_bytes(memory, val->total_bytes[OP_MEMORY_CPU]),
			  row->flops ? json_integer(row->flops) : json_null(),
			  row->pid == PROCESSES_ALL_MAIN ? json_null() : json_integer(row->pid));
}

/* Returns all rows, unless a limit is given. NULL: no memory. */
static json_t *json_op_rows(struct job *job, const struct report_options *options, uint32_t pid)
{
	bool memory = saw_memory(job, OP_MEMORY_CPU);
	size_t limit = report_options__limit(options, 0);
	struct ops_rows rows;
	json_t *list;

	if (ops_rows__collect(job, options, pid, true, &rows))
		return NULL;
	list = json_array();
	for (size_t i = 0; i < rows.cnt && i < limit; i++)
		common__json_append(&list, json_op_row(&rows, &rows.items[i], memory));
	ops_rows__release(&rows);
	return list;
}

SHAPE(op_window_shape, "op_window", "pid:I index:I first_step:I steps:I seconds:f cut:I");
SHAPE(ops_process_shape, "ops_of_process", "@process ops:[op]");
SHAPE_REPORT(ops_shape, "ops", "ops", "@report ops:[op] processes?:[ops_of_process] op_windows:[op_window]");

static json_t *json_op_windows(struct job *job)
{
	size_t cnt;
	const struct rec_op_window *windows = job__op_windows(job, &cnt);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_op_window *w = &windows[i];

		common__json_append(&list,
				    SHAPE_PACK(op_window_shape, json_integer(w->pid), json_integer(w->index),
					       json_integer(w->first_step), json_integer(w->steps),
					       json_real((w->end_ns - w->start_ns) / 1e9), json_integer(w->cut)));
	}
	return list;
}

/* ---- together ---- */

static const struct common_tables tables = {
	.processes = ops_rows__processes,
	.print = print_ops_tables,
	.rows = json_op_rows,
	.why_empty = why_no_ops,
	.key = "ops",
};

static char *why_empty(struct job *job, const struct report_options *options)
{
	return common__why_empty(&tables, job, options);
}

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_op(void)
{
	return json_op_row(&(struct ops_rows){0}, &(struct ops_row){.name = "", .val.calls = 1}, false);
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	int err = common__print_tables(&tables, job, options, out);

	if (!err)
		print_op_windows(job, out);
	return common__end(err, job, out);
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "ops", NULL};
	json_t *object = common__json_tables(report_ops.name, &tables, job, options);

	common__json_set(&object, "op_windows", json_op_windows(job));
	return common__print_object(object, options, path, blank_op(), out);
}

const struct report_ops report_ops = {
	.name = "ops",
	.sort_keys = ops_rows__sort_keys,
	.by_action = true,
	.text = print_text,
	.json = print_json,
	.why_empty = why_empty,
};
