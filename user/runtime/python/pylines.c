/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Line tables of CPython. In: bytes of a process, which may be anything. Out: struct code_line. No
 * state. Code and line deltas are bounded by the size of the table, so sums in 64 bits do not
 * overflow.
 */
#include "user/runtime/python/pylines.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/search.h"
#include "user/proc/process.h"
#include "user/runtime/python/pyobject.h"

struct line_decoder {
	const uint8_t *at, *end;
	struct code_line *lines;
	uint32_t cnt, max;
	uint64_t offset; /* of the next code */
	int64_t line;
};

/*
 * The code has that line from d->offset on. The last place is reserved for the end of what is
 * known.
 */
static void line_decoder__put(struct line_decoder *d, int64_t line)
{
	struct code_line entry = {(uint32_t)d->offset, line > 0 && line <= INT32_MAX ? (int32_t)line : 0};

	if (d->cnt && d->lines[d->cnt - 1].offset == entry.offset)
		d->cnt--;
	if (d->cnt + 1 >= d->max && d->lines[d->cnt - 1].line != entry.line) {
		entry.line = 0;
		d->at = d->end;
	}
	if (d->cnt == 0 || d->lines[d->cnt - 1].line != entry.line)
		d->lines[d->cnt++] = entry;
}

/*
 * co_lnotab, up to 3.9: pairs {bytes of code, signed lines} to add; lines hold from where the sum
 * of the bytes is.
 */
static void line_decoder__lnotab(struct line_decoder *d)
{
	line_decoder__put(d, d->line);
	while (d->end - d->at >= 2) {
		d->offset += d->at[0];
		d->line += (int8_t)d->at[1];
		d->at += 2;
		line_decoder__put(d, d->line);
	}
}

/*
 * co_linetable of 3.10: pairs {bytes of code, signed lines}: a range, whose line is the last one
 * plus lines; -128: none.
 */
static void line_decoder__ranges(struct line_decoder *d)
{
	while (d->end - d->at >= 2) {
		uint8_t bytes = d->at[0];
		int8_t lines = (int8_t)d->at[1];

		d->at += 2;
		if (lines != -128)
			d->line += lines;
		if (bytes)
			line_decoder__put(d, lines == -128 ? 0 : d->line);
		d->offset += bytes;
	}
	line_decoder__put(d, 0);
}

/*
 * A signed varint: 6 bits a byte, the lowest first; bit 6 says that more follow; the lowest bit of
 * the value is the sign. Clipped to 30 bits.
 */
static int32_t line_decoder__svarint(struct line_decoder *d)
{
	uint32_t value = 0;

	for (uint32_t shift = 0; d->at < d->end && !(*d->at & 0x80); shift += 6) {
		uint8_t byte = *d->at++;

		if (shift < 30)
			value |= (uint32_t)(byte & 63) << shift;
		if (!(byte & 64))
			break;
	}
	return value & 1 ? -(int32_t)(value >> 1) : (int32_t)(value >> 1);
}

/*
 * The location table of 3.11 and later: entries that begin with a byte 1 kkkk lll: kind, and length
 * less 1 in code units of 2 bytes. No other byte has its highest bit set.
 */
static void line_decoder__locations(struct line_decoder *d)
{
	enum { ONE_LINE_0 = 10, ONE_LINE_2 = 12, NO_COLUMNS = 13, LONG = 14, NONE = 15 };

	while (d->at < d->end && *d->at & 0x80) {
		uint8_t kind = *d->at >> 3 & 15, units = (*d->at & 7) + 1;

		d->at++;
		if (kind == NO_COLUMNS || kind == LONG)
			d->line += line_decoder__svarint(d);
		else if (kind >= ONE_LINE_0 && kind <= ONE_LINE_2)
			d->line += kind - ONE_LINE_0;
		while (d->at < d->end && !(*d->at & 0x80)) /* columns */
			d->at++;
		line_decoder__put(d, kind == NONE ? 0 : d->line);
		d->offset += 2u * units;
	}
	line_decoder__put(d, 0);
}

uint32_t py_lines__decode(int minor, const uint8_t *table, size_t size, uint32_t first_line, struct code_line *lines,
			  uint32_t max)
{
	struct line_decoder d = {.at = table, .end = table + size, .lines = lines, .max = max, .line = first_line};

	if (minor >= 11)
		line_decoder__locations(&d);
	else if (minor == 10)
		line_decoder__ranges(&d);
	else
		line_decoder__lnotab(&d);
	return d.cnt;
}

int32_t py_lines__at(const struct code_line *lines, uint32_t line_cnt, uint32_t first_line, int64_t offset)
{

	size_t low = SEARCH(i, 0, line_cnt, lines[i].offset <= offset);

	if (offset < 0)
		return first_line <= INT32_MAX ? (int32_t)first_line : 0;
	return low ? lines[low - 1].line : 0;
}

/* Reads the line table from its process, malloc'ed. */
static int read_line_table(const struct py_layout *layout, const struct rec_code *code, uint8_t **out, uint64_t *length)
{
	uint8_t *table;
	int err;

	if (!code->line_table)
		return -ENOENT;
	if (!py_object__is((pid_t)code->pid, layout, code->line_table, "bytes"))
		return -EINVAL;
	err = process__read_memory((pid_t)code->pid, code->line_table + layout->bytes_length, length, sizeof(*length));
	if (err)
		return err;
	if (*length > PY_LINE_TABLE_MAX)
		return -E2BIG;
	table = malloc(*length + 1);
	if (!table)
		return -ENOMEM;
	err = process__read_memory((pid_t)code->pid, code->line_table + layout->bytes_data, table, *length + 1);
	if (!err && table[*length])
		err = -EINVAL;
	if (err)
		free(table);
	else
		*out = table;
	return err;
}

int py_lines__complete(const struct py_layout *layout, const struct rec_code *code, struct rec_code **out)
{
	const uint8_t *table = (const uint8_t *)(code + 1);
	uint64_t length = code->table_bytes > 0 ? code->table_bytes : 0;
	struct rec_code *record;
	uint8_t *read = NULL;
	int err = 0;

	*out = NULL;
	if (length > code->hdr.size - sizeof(*code))
		return -EINVAL;
	if (code->table_bytes < 0) {
		err = read_line_table(layout, code, &read, &length);
		table = read;
	}
	if (err)
		return err;
	record = malloc(sizeof(*record) + PY_LINES_MAX * sizeof(record->lines[0]));
	if (record) {
		*record = *code;
		record->line_table = record->table_bytes = 0;
		record->line_cnt =
			py_lines__decode(layout->minor, table, length, code->first_line, record->lines, PY_LINES_MAX);
		record->hdr.size = (uint32_t)(sizeof(*record) + record->line_cnt * sizeof(record->lines[0]));
		*out = record;
	}
	free(read);
	return record ? 0 : -ENOMEM;
}
