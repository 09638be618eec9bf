// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/export/flatbuffer.h"

#include <stdlib.h>
#include <string.h>

/* Returns where they begin. */
static size_t add_zeros(struct flatbuffer *buffer, size_t cnt)
{
	size_t at = buffer->cnt, need = at + cnt;

	if (need > buffer->room && !buffer->failed) {
		size_t room = need > 2 * buffer->room ? need + 1024 : 2 * buffer->room;
		uint8_t *bytes = realloc(buffer->bytes, room);

		buffer->failed = !bytes;
		buffer->bytes = bytes ?: buffer->bytes;
		buffer->room = bytes ? room : buffer->room;
	}
	if (buffer->failed)
		return 0;
	memset(buffer->bytes + at, 0, cnt);
	buffer->cnt = need;
	return at;
}

/* Adds zeros until `ahead` bytes more are a multiple of align. */
static void pad(struct flatbuffer *buffer, size_t ahead, size_t align)
{
	add_zeros(buffer, (align - (buffer->cnt + ahead) % align) % align);
}

void flatbuffer__begin(struct flatbuffer *buffer)
{
	buffer->cnt = 0;
	add_zeros(buffer, FLATBUFFER_OFFSET);
}

void flatbuffer__set(struct flatbuffer *buffer, size_t at, uint64_t value, size_t bytes)
{
	if (!buffer->failed)
		memcpy(buffer->bytes + at, &value, bytes); /* both little-endian */
}

void flatbuffer__refer(struct flatbuffer *buffer, size_t at, size_t to)
{
	flatbuffer__set(buffer, at, to - at, FLATBUFFER_OFFSET);
}

/* The vtable comes first: bytes of itself, bytes of the table, and the place of each field in it, which are uint16_t. */
struct flatbuffer_table flatbuffer__table(struct flatbuffer *buffer, const uint8_t *bytes, size_t field_cnt)
{
	struct flatbuffer_table table = {0};
	size_t vtable_bytes = (2 + field_cnt) * sizeof(uint16_t), table_bytes = sizeof(int32_t), vtable;

	for (size_t i = 0; i < field_cnt; i++) {
		if (!bytes[i])
			continue;
		table_bytes = (table_bytes + bytes[i] - 1) / bytes[i] * bytes[i];
		table.fields[i] = table_bytes;
		table_bytes += bytes[i];
	}
	pad(buffer, vtable_bytes, sizeof(uint64_t));
	vtable = add_zeros(buffer, vtable_bytes);
	table.at = add_zeros(buffer, table_bytes);
	flatbuffer__set(buffer, vtable, vtable_bytes, sizeof(uint16_t));
	flatbuffer__set(buffer, vtable + 2, table_bytes, sizeof(uint16_t));
	for (size_t i = 0; i < field_cnt; i++)
		flatbuffer__set(buffer, vtable + 4 + 2 * i, table.fields[i], sizeof(uint16_t));
	flatbuffer__set(buffer, table.at, table.at - vtable, sizeof(int32_t));
	return table;
}

size_t flatbuffer__vector(struct flatbuffer *buffer, size_t item_cnt, size_t item_bytes, size_t align)
{
	size_t at;

	pad(buffer, FLATBUFFER_ITEMS, align);
	at = add_zeros(buffer, FLATBUFFER_ITEMS + item_cnt * item_bytes);
	flatbuffer__set(buffer, at, item_cnt, FLATBUFFER_ITEMS);
	return at;
}

/* As a vector of bytes, behind which there is a 0. */
size_t flatbuffer__text(struct flatbuffer *buffer, const char *text)
{
	size_t bytes = strlen(text), at;

	at = flatbuffer__vector(buffer, bytes + 1, 1, FLATBUFFER_OFFSET);
	flatbuffer__set(buffer, at, bytes, FLATBUFFER_ITEMS);
	if (!buffer->failed)
		memcpy(buffer->bytes + at + FLATBUFFER_ITEMS, text, bytes);
	return at;
}
