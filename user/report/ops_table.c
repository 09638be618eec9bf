// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * torch's table of operators. Times are converted to double us before they are added or divided, as
 * in torch, so that they round alike.
 */
#include "user/report/ops_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"
#include "user/report/print/text.h"

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
static int put_op_name(cell_text cell, const char *name)
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
static int put_source_path(cell_text cell, const char *path, size_t width)
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

static void put_device(const struct table_layout *layout, const struct ops_row *row, cell_text *cells)
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

	if (put_op_name(cells[NAME], row->name) || put_op_name(cells[OVERLOAD], row->overload) ||
	    put_source_path(cells[MODULE], row->module, layout->width[MODULE]) ||
	    put_source_path(cells[SOURCE], row->source, layout->width[SOURCE]))
		return -ENOMEM;
	format_share(cells[SELF_SHARE], self_us, layout->self_us);
	format_us(cells[SELF], self_us);
	format_share(cells[TOTAL_SHARE], total_us, layout->self_us);
	format_us(cells[TOTAL], total_us);
	format_us(cells[AVERAGE], total_us / val->calls);
	put_device(layout, row, cells);
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

int ops_table__print(const struct ops_row *rows, size_t cnt, const struct ops_table_options *options, FILE *out)
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
