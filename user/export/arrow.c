// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/export/arrow.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/map.h"
#include "user/lib/utf8.h"

#define ARROW_BATCH_ROWS 16384

/*
 * ---- messages of FlatBuffers (https://flatbuffers.dev/internals/), from front to back: a table is written
 * before what its fields refer to, since such an offset counts forward ----
 */

/* All zeros: empty. A position is an offset from its start. */
struct flatbuffer {
	uint8_t *bytes; /* malloc'ed; the owner frees it */
	size_t cnt, room;
	bool failed; /* no memory; later calls do nothing */
};

#define FLATBUFFER_FIELDS 8
#define FLATBUFFER_OFFSET 4 /* bytes of a field that refers to something */

/* A table whose values are all 0 until they are set. */
struct flatbuffer_table {
	size_t at;
	uint16_t fields[FLATBUFFER_FIELDS]; /* from `at`; 0: left out */
};

/* What flatbuffer__refer is to be called with for the root. */
#define FLATBUFFER_ROOT  0

#define FLATBUFFER_ITEMS 4 /* from the start of a vector to its first item */

static inline size_t flatbuffer_table__field(const struct flatbuffer_table *table, unsigned int field)
{
	return table->at + table->fields[field];
}

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

/* Begins an empty buffer: room for the reference to its root. */
static void flatbuffer__begin(struct flatbuffer *buffer)
{
	buffer->cnt = 0;
	add_zeros(buffer, FLATBUFFER_OFFSET);
}

/* Sets a value of 1, 2, 4 or 8 bytes. */
static void flatbuffer__set(struct flatbuffer *buffer, size_t at, uint64_t value, size_t bytes)
{
	if (!buffer->failed)
		memcpy(buffer->bytes + at, &value, bytes); /* both little-endian */
}

/* Makes the field at a position refer to what begins at another one, behind it. */
static void flatbuffer__refer(struct flatbuffer *buffer, size_t at, size_t to)
{
	flatbuffer__set(buffer, at, to - at, FLATBUFFER_OFFSET);
}

/* The vtable comes first: bytes of itself, bytes of the table, and the place of each field in it, which are uint16_t. */
static struct flatbuffer_table flatbuffer__table(struct flatbuffer *buffer, const uint8_t *bytes, size_t field_cnt)
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

/* A vector of zeros, for items of item_bytes, of which 4 or 8 are aligned. Returns where it begins; its items follow after 4 bytes. */
static size_t flatbuffer__vector(struct flatbuffer *buffer, size_t item_cnt, size_t item_bytes, size_t align)
{
	size_t at;

	pad(buffer, FLATBUFFER_ITEMS, align);
	at = add_zeros(buffer, FLATBUFFER_ITEMS + item_cnt * item_bytes);
	flatbuffer__set(buffer, at, item_cnt, FLATBUFFER_ITEMS);
	return at;
}

/* As a vector of bytes, behind which there is a 0. */
static size_t flatbuffer__text(struct flatbuffer *buffer, const char *text)
{
	size_t bytes = strlen(text), at;

	at = flatbuffer__vector(buffer, bytes + 1, 1, FLATBUFFER_OFFSET);
	flatbuffer__set(buffer, at, bytes, FLATBUFFER_ITEMS);
	if (!buffer->failed)
		memcpy(buffer->bytes + at + FLATBUFFER_ITEMS, text, bytes);
	return at;
}

#define ARROW_COLUMNS_MAX 64

/* Values of a column in the batch, back to back. */
struct arrow_bytes {
	uint8_t *items;
	size_t cnt, room;
};

struct arrow_data {
	const struct arrow_column *is;
	struct arrow_bytes values;  /* an index into the texts for a TEXT; of TEXTS the index of each item */
	struct arrow_bytes present; /* a bit for each row */
	struct arrow_bytes ends;    /* TEXTS: int32_t, where the list of each row ends */
	size_t null_cnt;
	struct map texts; /* char * */
};

struct arrow {
	FILE *out;
	uint64_t written;
	struct arrow_data *columns;
	size_t column_cnt, at; /* at: the column whose value comes next */
	size_t row_cnt;        /* of the batch */
	struct flatbuffer message;
	struct array batches, dictionaries; /* struct block */
	int err;
};

/* Keeps the first error. */
static void arrow__fail(struct arrow *arrow, int err)
{
	if (!arrow->err)
		arrow->err = err;
}

static void arrow__add_bytes(struct arrow *arrow, struct arrow_bytes *to, const void *bytes, size_t cnt)
{
	if (!cnt)
		return;
	if (to->room - to->cnt < cnt) {
		size_t room = 2 * to->room + cnt + 64;
		void *grown = realloc(to->items, room);

		if (!grown) {
			arrow__fail(arrow, -ENOMEM);
			return;
		}
		to->items = grown;
		to->room = room;
	}
	memcpy(to->items + to->cnt, bytes, cnt);
	to->cnt += cnt;
}

static void arrow__add_int32(struct arrow *arrow, struct arrow_bytes *to, int32_t value)
{
	arrow__add_bytes(arrow, to, &value, sizeof(value));
}

/* ---- the file ---- */

/*
 * A magic, then messages, each a FlatBuffers message (format/Message.fbs and Schema.fbs of Arrow) and a body: the schema, batches of
 * rows, the dictionaries of the texts; a footer that lists where they are.
 */
#define MAGIC        "ARROW1"
#define CONTINUATION 0xffffffffu
#define ALIGN        8
#define VERSION_V5   4

enum message_header { HEADER_SCHEMA = 1, HEADER_DICTIONARY = 2, HEADER_BATCH = 3 };
enum type_id { TYPE_INT = 2, TYPE_FLOAT = 3, TYPE_UTF8 = 5, TYPE_BOOL = 6, TYPE_TIMESTAMP = 10, TYPE_LIST = 12 };
#define PRECISION_DOUBLE 2
#define UNIT_MICRO       2

/* The fields of the tables that are written, in the order of the schema. */
enum { MESSAGE_VERSION, MESSAGE_TYPE, MESSAGE_HEADER, MESSAGE_BODY_BYTES };
enum { SCHEMA_ENDIANNESS, SCHEMA_FIELDS };
enum { FIELD_NAME, FIELD_NULLABLE, FIELD_TYPE_ID, FIELD_TYPE, FIELD_DICTIONARY, FIELD_CHILDREN };
enum { ENCODING_ID, ENCODING_INDEX };
enum { INT_BITS, INT_SIGNED };
enum { TIMESTAMP_UNIT, TIMESTAMP_ZONE };
enum { BATCH_ROWS, BATCH_NODES, BATCH_BUFFERS };
enum { DICTIONARY_ID, DICTIONARY_DATA };
enum { FOOTER_VERSION, FOOTER_SCHEMA, FOOTER_DICTIONARIES, FOOTER_BATCHES };

#define NODE_BYTES   16 /* FieldNode: rows, nulls */
#define BUFFER_BYTES 16 /* Buffer: offset, bytes */

/* The rows of some columns, or the texts of one, as a RecordBatch: its message says of each column the rows, and of each buffer its place. */
struct batch {
	struct {
		uint64_t rows, nulls;
	} nodes[2 * ARROW_COLUMNS_MAX];
	struct {
		const void *bytes;
		uint64_t cnt;
	} buffers[5 * ARROW_COLUMNS_MAX];
	size_t node_cnt, buffer_cnt;
};

static uint64_t body_bytes(const struct batch *batch)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < batch->buffer_cnt; i++)
		sum += (batch->buffers[i].cnt + ALIGN - 1) / ALIGN * ALIGN;
	return sum;
}

/* struct Block of File.fbs: where a message is. */
struct block {
	uint64_t offset;
	uint32_t message_bytes, pad;
	uint64_t body_bytes;
};

/* ---- messages ---- */

static void write_out(struct arrow *arrow, const void *bytes, size_t cnt)
{
	static const uint8_t zeros[ALIGN];
	size_t padding = (ALIGN - cnt % ALIGN) % ALIGN;

	if (cnt)
		fwrite(bytes, 1, cnt, arrow->out);
	fwrite(zeros, 1, padding, arrow->out);
	arrow->written += cnt + padding;
}

/* Sets a field of 8 bytes or less, which the table has. */
static void set_field(struct arrow *arrow, const struct flatbuffer_table *table, unsigned int field, uint64_t value,
		      size_t bytes)
{
	flatbuffer__set(&arrow->message, flatbuffer_table__field(table, field), value, bytes);
}

static void set_reference(struct arrow *arrow, const struct flatbuffer_table *table, unsigned int field, size_t to)
{
	flatbuffer__refer(&arrow->message, flatbuffer_table__field(table, field), to);
}

/* Begins a message, whose header the caller then adds, and refers to as MESSAGE_HEADER of the table. */
static struct flatbuffer_table begin_message(struct arrow *arrow, enum message_header header, uint64_t body_bytes)
{
	static const uint8_t fields[] = {2, 1, FLATBUFFER_OFFSET, 8};
	struct flatbuffer_table message;

	flatbuffer__begin(&arrow->message);
	message = flatbuffer__table(&arrow->message, fields, 4);
	flatbuffer__refer(&arrow->message, FLATBUFFER_ROOT, message.at);
	set_field(arrow, &message, MESSAGE_VERSION, VERSION_V5, 2);
	set_field(arrow, &message, MESSAGE_TYPE, header, 1);
	set_field(arrow, &message, MESSAGE_BODY_BYTES, body_bytes, 8);
	return message;
}

/* Writes the message without its body. blocks: where to note it; NULL: nowhere. */
static void write_message(struct arrow *arrow, struct array *blocks, uint64_t body_bytes)
{
	size_t bytes = (arrow->message.cnt + ALIGN - 1) / ALIGN * ALIGN;
	uint32_t prefix[2] = {CONTINUATION, bytes};

	if (arrow->message.failed) {
		arrow__fail(arrow, -ENOMEM);
		return;
	}
	if (blocks) {
		struct block *block = array__add(blocks, sizeof(*block));

		if (!block) {
			arrow__fail(arrow, -ENOMEM);
			return;
		}
		*block = (struct block){arrow->written, sizeof(prefix) + bytes, 0, body_bytes};
	}
	write_out(arrow, prefix, sizeof(prefix));
	write_out(arrow, arrow->message.bytes, arrow->message.cnt);
}

/* ---- the schema ---- */

static struct flatbuffer_table add_int_type(struct arrow *arrow, int bits)
{
	static const uint8_t fields[] = {4, 1};
	struct flatbuffer_table type = flatbuffer__table(&arrow->message, fields, 2);

	set_field(arrow, &type, INT_BITS, bits, 4);
	set_field(arrow, &type, INT_SIGNED, true, 1);
	return type;
}

/* Returns where the table of the type is. */
static size_t add_type(struct arrow *arrow, enum arrow_type type, enum type_id *id)
{
	static const uint8_t short_field[] = {2}, timestamp_fields[] = {2, FLATBUFFER_OFFSET};
	struct flatbuffer_table table;

	switch (type) {
	case ARROW_INT32:
	case ARROW_INT64:
		*id = TYPE_INT;
		return add_int_type(arrow, type == ARROW_INT32 ? 32 : 64).at;
	case ARROW_DOUBLE:
		*id = TYPE_FLOAT;
		table = flatbuffer__table(&arrow->message, short_field, 1);
		set_field(arrow, &table, 0, PRECISION_DOUBLE, 2);
		return table.at;
	case ARROW_TIME:
		*id = TYPE_TIMESTAMP;
		table = flatbuffer__table(&arrow->message, timestamp_fields, 2);
		set_field(arrow, &table, TIMESTAMP_UNIT, UNIT_MICRO, 2);
		set_reference(arrow, &table, TIMESTAMP_ZONE, flatbuffer__text(&arrow->message, "UTC"));
		return table.at;
	default:
		*id = type == ARROW_BOOL ? TYPE_BOOL : type == ARROW_TEXTS ? TYPE_LIST : TYPE_UTF8;
		return flatbuffer__table(&arrow->message, NULL, 0).at;
	}
}

/* Returns where the field is. id: of its dictionary, if it has one. */
static size_t add_field(struct arrow *arrow, const char *name, enum arrow_type type, bool nullable, int64_t id)
{
	const uint8_t fields[] = {
		FLATBUFFER_OFFSET, 1, 1, FLATBUFFER_OFFSET, type == ARROW_TEXT ? FLATBUFFER_OFFSET : 0,
		FLATBUFFER_OFFSET};
	static const uint8_t encoding_fields[] = {8, FLATBUFFER_OFFSET};
	struct flatbuffer_table field = flatbuffer__table(&arrow->message, fields, 6), encoding;
	size_t type_at, children;
	enum type_id type_id;

	set_reference(arrow, &field, FIELD_NAME, flatbuffer__text(&arrow->message, name));
	set_field(arrow, &field, FIELD_NULLABLE, nullable, 1);
	type_at = add_type(arrow, type, &type_id);
	set_field(arrow, &field, FIELD_TYPE_ID, type_id, 1);
	set_reference(arrow, &field, FIELD_TYPE, type_at);
	if (type == ARROW_TEXT) {
		encoding = flatbuffer__table(&arrow->message, encoding_fields, 2);
		set_reference(arrow, &field, FIELD_DICTIONARY, encoding.at);
		set_field(arrow, &encoding, ENCODING_ID, id, 8);
		set_reference(arrow, &encoding, ENCODING_INDEX, add_int_type(arrow, 32).at);
	}
	children = flatbuffer__vector(&arrow->message, type == ARROW_TEXTS, FLATBUFFER_OFFSET, FLATBUFFER_OFFSET);
	set_reference(arrow, &field, FIELD_CHILDREN, children);
	if (type == ARROW_TEXTS)
		flatbuffer__refer(&arrow->message, children + FLATBUFFER_ITEMS,
				  add_field(arrow, "item", ARROW_TEXT, false, id));
	return field.at;
}

static size_t add_schema(struct arrow *arrow)
{
	static const uint8_t fields[] = {2, FLATBUFFER_OFFSET};
	struct flatbuffer_table schema = flatbuffer__table(&arrow->message, fields, 2);
	size_t list = flatbuffer__vector(&arrow->message, arrow->column_cnt, FLATBUFFER_OFFSET, FLATBUFFER_OFFSET);

	set_reference(arrow, &schema, SCHEMA_FIELDS, list);
	for (size_t i = 0; i < arrow->column_cnt; i++) {
		const struct arrow_column *is = arrow->columns[i].is;

		flatbuffer__refer(&arrow->message, list + FLATBUFFER_ITEMS + i * FLATBUFFER_OFFSET,
				  add_field(arrow, is->name, is->type, is->nullable, i));
	}
	return schema.at;
}

/* ---- batches ---- */

static void add_node(struct batch *batch, uint64_t rows, uint64_t nulls)
{
	batch->nodes[batch->node_cnt].rows = rows;
	batch->nodes[batch->node_cnt++].nulls = nulls;
}

static void add_buffer(struct batch *batch, const void *bytes, uint64_t cnt)
{
	batch->buffers[batch->buffer_cnt].bytes = bytes;
	batch->buffers[batch->buffer_cnt++].cnt = cnt;
}

/* Returns where the table is. */
static size_t add_batch(struct arrow *arrow, const struct batch *batch, uint64_t rows)
{
	static const uint8_t fields[] = {8, FLATBUFFER_OFFSET, FLATBUFFER_OFFSET};
	struct flatbuffer_table table = flatbuffer__table(&arrow->message, fields, 3);
	size_t nodes, buffers;
	uint64_t offset = 0;

	set_field(arrow, &table, BATCH_ROWS, rows, 8);
	nodes = flatbuffer__vector(&arrow->message, batch->node_cnt, NODE_BYTES, ALIGN);
	set_reference(arrow, &table, BATCH_NODES, nodes);
	for (size_t i = 0; i < batch->node_cnt; i++) {
		size_t at = nodes + FLATBUFFER_ITEMS + i * NODE_BYTES;

		flatbuffer__set(&arrow->message, at, batch->nodes[i].rows, 8);
		flatbuffer__set(&arrow->message, at + 8, batch->nodes[i].nulls, 8);
	}
	buffers = flatbuffer__vector(&arrow->message, batch->buffer_cnt, BUFFER_BYTES, ALIGN);
	set_reference(arrow, &table, BATCH_BUFFERS, buffers);
	for (size_t i = 0; i < batch->buffer_cnt; i++) {
		size_t at = buffers + FLATBUFFER_ITEMS + i * BUFFER_BYTES;

		flatbuffer__set(&arrow->message, at, offset, 8);
		flatbuffer__set(&arrow->message, at + 8, batch->buffers[i].cnt, 8);
		offset += (batch->buffers[i].cnt + ALIGN - 1) / ALIGN * ALIGN;
	}
	return table.at;
}

static void write_body(struct arrow *arrow, const struct batch *batch)
{
	for (size_t i = 0; i < batch->buffer_cnt && !arrow->err; i++)
		write_out(arrow, batch->buffers[i].bytes, batch->buffers[i].cnt);
}

static void add_column(struct batch *batch, const struct arrow_data *column, size_t rows)
{
	bool list = column->is->type == ARROW_TEXTS;

	add_node(batch, rows, column->null_cnt);
	add_buffer(batch, column->present.items, column->null_cnt ? column->present.cnt : 0);
	if (list) {
		add_buffer(batch, column->ends.items, column->ends.cnt);
		add_node(batch, column->values.cnt / sizeof(int32_t), 0);
		add_buffer(batch, NULL, 0);
	}
	add_buffer(batch, column->values.items, column->values.cnt);
}

/* An empty batch. */
static void arrow__begin_batch(struct arrow *arrow)
{
	arrow->row_cnt = 0;
	for (size_t i = 0; i < arrow->column_cnt; i++) {
		struct arrow_data *column = &arrow->columns[i];

		column->values.cnt = column->present.cnt = column->ends.cnt = 0;
		column->null_cnt = 0;
		if (column->is->type == ARROW_TEXTS)
			arrow__add_int32(arrow, &column->ends, 0);
	}
}

/* Writes the batch, and begins another one. */
static void arrow__write_batch(struct arrow *arrow)
{
	struct batch batch = {0};
	struct flatbuffer_table message;
	uint64_t bytes;

	for (size_t i = 0; i < arrow->column_cnt; i++)
		add_column(&batch, &arrow->columns[i], arrow->row_cnt);
	bytes = body_bytes(&batch);
	message = begin_message(arrow, HEADER_BATCH, bytes);
	set_reference(arrow, &message, MESSAGE_HEADER, add_batch(arrow, &batch, arrow->row_cnt));
	write_message(arrow, &arrow->batches, bytes);
	write_body(arrow, &batch);
	arrow__begin_batch(arrow);
}

/* The texts of a column, each once: ends, and the bytes back to back. */
static void write_dictionary(struct arrow *arrow, const struct arrow_data *column, int64_t id)
{
	static const uint8_t fields[] = {8, FLATBUFFER_OFFSET};
	char *const *texts = column->texts.items.items;
	size_t cnt = column->texts.items.cnt;
	struct flatbuffer_table message, dictionary;
	struct arrow_bytes ends = {0}, all = {0};
	struct batch batch = {0};
	uint64_t bytes;

	arrow__add_int32(arrow, &ends, 0);
	for (size_t i = 0; i < cnt && !arrow->err; i++) {
		arrow__add_bytes(arrow, &all, texts[i], strlen(texts[i]));
		arrow__add_int32(arrow, &ends, all.cnt);
	}
	if (all.cnt > INT32_MAX)
		arrow__fail(arrow, -EFBIG);
	if (!arrow->err) {
		add_node(&batch, cnt, 0);
		add_buffer(&batch, NULL, 0);
		add_buffer(&batch, ends.items, ends.cnt);
		add_buffer(&batch, all.items, all.cnt);
		bytes = body_bytes(&batch);
		message = begin_message(arrow, HEADER_DICTIONARY, bytes);
		dictionary = flatbuffer__table(&arrow->message, fields, 2);
		set_reference(arrow, &message, MESSAGE_HEADER, dictionary.at);
		set_field(arrow, &dictionary, DICTIONARY_ID, id, 8);
		set_reference(arrow, &dictionary, DICTIONARY_DATA, add_batch(arrow, &batch, cnt));
		write_message(arrow, &arrow->dictionaries, bytes);
		write_body(arrow, &batch);
	}
	free(ends.items);
	free(all.items);
}

/* ---- its begin and end ---- */

/* Begins the file: its schema. */
static void arrow__write_head(struct arrow *arrow)
{
	struct flatbuffer_table message;

	write_out(arrow, MAGIC, strlen(MAGIC));
	message = begin_message(arrow, HEADER_SCHEMA, 0);
	set_reference(arrow, &message, MESSAGE_HEADER, add_schema(arrow));
	write_message(arrow, NULL, 0);
}

static void refer_to_blocks(struct arrow *arrow, const struct flatbuffer_table *footer, unsigned int field,
			    const struct array *blocks)
{
	size_t list = flatbuffer__vector(&arrow->message, blocks->cnt, sizeof(struct block), ALIGN);

	set_reference(arrow, footer, field, list);
	if (!arrow->message.failed && blocks->cnt)
		memcpy(arrow->message.bytes + list + FLATBUFFER_ITEMS, blocks->items,
		       blocks->cnt * sizeof(struct block));
}

static void write_footer(struct arrow *arrow)
{
	static const uint8_t fields[] = {2, FLATBUFFER_OFFSET, FLATBUFFER_OFFSET, FLATBUFFER_OFFSET};
	static const uint32_t end_of_stream[] = {CONTINUATION, 0};
	struct flatbuffer_table footer;
	uint32_t bytes;

	write_out(arrow, end_of_stream, sizeof(end_of_stream));
	flatbuffer__begin(&arrow->message);
	footer = flatbuffer__table(&arrow->message, fields, 4);
	flatbuffer__refer(&arrow->message, FLATBUFFER_ROOT, footer.at);
	set_field(arrow, &footer, FOOTER_VERSION, VERSION_V5, 2);
	set_reference(arrow, &footer, FOOTER_SCHEMA, add_schema(arrow));
	refer_to_blocks(arrow, &footer, FOOTER_DICTIONARIES, &arrow->dictionaries);
	refer_to_blocks(arrow, &footer, FOOTER_BATCHES, &arrow->batches);
	if (arrow->message.failed) {
		arrow__fail(arrow, -ENOMEM);
		return;
	}
	bytes = arrow->message.cnt;
	fwrite(arrow->message.bytes, 1, bytes, arrow->out);
	fwrite(&bytes, 1, sizeof(bytes), arrow->out);
	fwrite(MAGIC, 1, strlen(MAGIC), arrow->out);
}

int arrow__finish(struct arrow *arrow)
{
	if (arrow->row_cnt && !arrow->err)
		arrow__write_batch(arrow);
	for (size_t i = 0; i < arrow->column_cnt && !arrow->err; i++) {
		enum arrow_type type = arrow->columns[i].is->type;

		if (type == ARROW_TEXT || type == ARROW_TEXTS)
			write_dictionary(arrow, &arrow->columns[i], i);
	}
	if (!arrow->err)
		write_footer(arrow);
	return arrow->err;
}

struct arrow *arrow__new(const struct arrow_column *columns, size_t cnt, FILE *out)
{
	struct arrow *arrow = calloc(1, sizeof(*arrow));

	if (arrow)
		arrow->columns = calloc(cnt, sizeof(*arrow->columns));
	if (!arrow || !arrow->columns) {
		free(arrow);
		return NULL;
	}
	arrow->out = out;
	arrow->column_cnt = cnt;
	for (size_t i = 0; i < cnt; i++)
		arrow->columns[i].is = &columns[i];
	arrow__begin_batch(arrow);
	if (cnt > ARROW_COLUMNS_MAX)
		arrow__fail(arrow, -EINVAL);
	else
		arrow__write_head(arrow);
	return arrow;
}

void arrow__free(struct arrow *arrow)
{
	for (size_t i = 0; arrow && i < arrow->column_cnt; i++) {
		struct arrow_data *column = &arrow->columns[i];

		free(column->values.items);
		free(column->present.items);
		free(column->ends.items);
		map__free_texts(&column->texts);
	}
	if (arrow) {
		free(arrow->columns);
		free(arrow->message.bytes);
		free(arrow->batches.items);
		free(arrow->dictionaries.items);
	}
	free(arrow);
}

/* ---- values ---- */

static void add_bit(struct arrow *arrow, struct arrow_bytes *to, size_t at, bool bit)
{
	if (at % 8 == 0)
		arrow__add_bytes(arrow, to, "", 1);
	if (bit && at / 8 < to->cnt)
		to->items[at / 8] |= 1 << at % 8;
}

/* The column of the next value, or NULL where its type is not one of those of the mask. */
static struct arrow_data *next_column(struct arrow *arrow, unsigned int types)
{
	struct arrow_data *column = arrow->at < arrow->column_cnt ? &arrow->columns[arrow->at] : NULL;

	if (!column || !(types >> column->is->type & 1)) {
		arrow__fail(arrow, -EINVAL);
		return NULL;
	}
	return column;
}

static void end_value(struct arrow *arrow, struct arrow_data *column, bool present)
{
	if (!present && !column->is->nullable)
		arrow__fail(arrow, -EINVAL);
	column->null_cnt += !present;
	add_bit(arrow, &column->present, arrow->row_cnt, present);
	arrow->at++;
}

static void put_int(struct arrow *arrow, struct arrow_data *column, int64_t value)
{
	switch (column->is->type) {
	case ARROW_BOOL:
		add_bit(arrow, &column->values, arrow->row_cnt, value);
		break;
	case ARROW_INT32:
	case ARROW_TEXT:
		arrow__add_int32(arrow, &column->values, value);
		break;
	default:
		arrow__add_bytes(arrow, &column->values, &value, sizeof(value));
	}
}

void arrow__int(struct arrow *arrow, int64_t value)
{
	struct arrow_data *column =
		next_column(arrow, 1 << ARROW_INT32 | 1 << ARROW_INT64 | 1 << ARROW_BOOL | 1 << ARROW_TIME);

	if (!column)
		return;
	put_int(arrow, column, value);
	end_value(arrow, column, true);
}

void arrow__double(struct arrow *arrow, double value)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_DOUBLE);

	if (!column)
		return;
	arrow__add_bytes(arrow, &column->values, &value, sizeof(value));
	end_value(arrow, column, true);
}

static void add_text(struct arrow *arrow, struct arrow_data *column, const char *text)
{
	char *shown = utf8__escape(text);
	uint32_t index = 0;

	if (!shown || map__add_text(&column->texts, shown, &index))
		arrow__fail(arrow, -ENOMEM);
	free(shown);
	arrow__add_int32(arrow, &column->values, index);
}

void arrow__text(struct arrow *arrow, const char *text)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_TEXT);

	if (!column)
		return;
	if (!text) {
		arrow__null(arrow);
		return;
	}
	add_text(arrow, column, text);
	end_value(arrow, column, true);
}

void arrow__null(struct arrow *arrow)
{
	struct arrow_data *column = next_column(arrow, ~(1u << ARROW_TEXTS));

	if (!column)
		return;
	put_int(arrow, column, 0);
	end_value(arrow, column, false);
}

void arrow__item(struct arrow *arrow, const char *text)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_TEXTS);

	if (column)
		add_text(arrow, column, text);
}

void arrow__end_list(struct arrow *arrow)
{
	struct arrow_data *column = next_column(arrow, 1 << ARROW_TEXTS);

	if (!column)
		return;
	arrow__add_int32(arrow, &column->ends, column->values.cnt / sizeof(int32_t));
	end_value(arrow, column, true);
}

void arrow__end_row(struct arrow *arrow)
{
	if (arrow->at != arrow->column_cnt)
		arrow__fail(arrow, -EINVAL);
	arrow->at = 0;
	if (++arrow->row_cnt == ARROW_BATCH_ROWS && !arrow->err)
		arrow__write_batch(arrow);
}
