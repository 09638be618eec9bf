// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * recdump FILE: prints a recording record by record, one line each. For developers; the recording is not believed here either.
 * recdump --describe: prints what a record of each type is made of, as JSON.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/names.h"
#include "user/lib/utf8.h"
#include "user/recording/descriptors.h"
#include "user/recording/recording.h"
#include "user/recording/spans.h"

static void print_text(const char *name, const char *bytes, size_t len, enum name_encoding encoding)
{
	char *text = name__utf8(bytes, len, encoding, false), *escaped = text ? utf8__escape(text) : NULL;

	printf(" %s=\"%s\"", name, escaped ? escaped : "(no memory)");
	free(escaped);
	free(text);
}

/* ---- fields ---- */

static uint64_t unsigned_at(const char *at, size_t bytes)
{
	uint64_t value = 0;

	memcpy(&value, at, bytes); /* little-endian, as all machines that stepflame runs on */
	return value;
}

static int64_t signed_at(const char *at, size_t bytes)
{
	unsigned int spare = 64 - 8 * bytes;

	return (int64_t)(unsigned_at(at, bytes) << spare) >> spare;
}

/* "key.pid" is pid to a reader. */
static const char *short_name(const struct record_field *field)
{
	const char *dot = strrchr(field->name, '.');

	return dot ? dot + 1 : field->name;
}

static void print_field(const struct rec_hdr *record, const struct record_field *field)
{
	const char *at = (const char *)record + field->offset, *name = short_name(field);

	if (field->kind == FIELD_PAD)
		return;
	if (field->kind == FIELD_TEXT) {
		print_text(name, at, strnlen(at, field->bytes), NAME_UTF8);
		return;
	}
	printf(" %s=", name);
	for (size_t i = 0; i < field->cnt; i++, at += field->bytes) {
		if (i)
			putchar(',');
		if (field->kind == FIELD_ID)
			printf("%016" PRIx64, unsigned_at(at, field->bytes));
		else if (field->kind == FIELD_SIGNED)
			printf("%" PRId64, signed_at(at, field->bytes));
		else
			printf("%" PRIu64, unsigned_at(at, field->bytes));
	}
}

/* ---- what is behind the fields ---- */

/* Are there so many of so many bytes? Says so if not. */
static bool has_room(const struct rec_hdr *record, size_t head, uint64_t cnt, size_t bytes)
{
	if (cnt <= (record->size - head) / bytes)
		return true;
	printf(" (malformed: %" PRIu64 " of %zu bytes beyond the record)", cnt, bytes);
	return false;
}

static void print_name(const struct rec_hdr *record)
{
	const struct rec_name *name = (const void *)record;

	if (has_room(record, sizeof(*name), name->bytes, 1))
		print_text("text", name->text, name->bytes, name->encoding);
}

static void print_note(const struct rec_hdr *record)
{
	const struct rec_note *note = (const void *)record;

	if (has_room(record, sizeof(*note), note->bytes, 1))
		print_text("text", note->text, note->bytes, NAME_UTF8);
}

/* Prints " name=a,b,c": each element by what follows the macro's use. */
#define PRINT_LIST(name, cnt, ...)                     \
	do {                                           \
		printf(" " name "=");                  \
		for (uint32_t i = 0; i < (cnt); i++) { \
			printf("%s", i ? "," : "");    \
			printf(__VA_ARGS__);           \
		}                                      \
	} while (0)

static void print_words(const struct rec_hdr *record)
{
	const struct rec_op_group *group = (const void *)record;

	if (has_room(record, sizeof(*group), group->word_cnt, sizeof(*group->words)))
		PRINT_LIST("words", group->word_cnt, "%" PRIx64, (uint64_t)group->words[i]);
}

static void print_lines(const struct rec_hdr *record)
{
	const struct rec_code *code = (const void *)record;

	if (has_room(record, sizeof(*code), code->line_cnt, sizeof(*code->lines)))
		PRINT_LIST("lines", code->line_cnt, "%u:%d", code->lines[i].offset, code->lines[i].line);
}

static void print_frames(const struct rec_hdr *record)
{
	const struct rec_stack *stack = (const void *)record;

	if (has_room(record, sizeof(*stack), stack->frame_cnt, sizeof(*stack->frames)))
		PRINT_LIST("frames", stack->frame_cnt, "%" PRIx64 "+%u", (uint64_t)stack->frames[i].code,
			   stack->frames[i].offset);
}

static void print_path(const struct rec_hdr *record)
{
	const struct rec_path *path = (const void *)record;

	if (has_room(record, sizeof(*path), path->span_cnt, sizeof(*path->spans)))
		PRINT_LIST("spans", path->span_cnt, "%u:%" PRIx64, path->spans[i].kind, (uint64_t)path->spans[i].name);
}

static void print_spans(const struct rec_hdr *record)
{
	const struct record_descriptor *descriptor = record_descriptor__of(REC_SPAN);
	struct rec_span *spans = malloc(SPANS_MAX * sizeof(*spans));
	size_t cnt = 0;
	int err = spans ? spans__decode((const void *)record, spans, &cnt) : -ENOMEM;

	if (err)
		printf(" (%s)", err == -EBADMSG ? "malformed" : strerror(-err));
	for (size_t i = 0; i < cnt; i++) {
		printf("\n ");
		for (size_t f = 0; f < descriptor->field_cnt; f++)
			print_field(&spans[i].hdr, &descriptor->fields[f]);
	}
	free(spans);
}

static void (*const tails[REC__COUNT])(const struct rec_hdr *record) = {
	[REC_NAME] = print_name,    [REC_NOTE] = print_note, [REC_OP_GROUP] = print_words, [REC_CODE] = print_lines,
	[REC_STACK] = print_frames, [REC_PATH] = print_path, [REC_SPANS] = print_spans,
};

static int print_record(const struct rec_hdr *record, void *ctx)
{
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);

	if (!descriptor) {
		printf("unknown type=%u size=%u\n", record->type, record->size);
		return 0;
	}
	printf("%s", descriptor->name);
	if (record->size < descriptor->bytes) {
		printf(" (malformed: %u bytes, not %zu)\n", record->size, descriptor->bytes);
		return 0;
	}
	for (size_t i = 0; i < descriptor->field_cnt; i++)
		print_field(record, &descriptor->fields[i]);
	if (tails[record->type])
		tails[record->type](record);
	putchar('\n');
	return 0;
}

/* ---- the descriptions themselves ---- */

static json_t *describe(uint16_t type)
{
	static const char *const kinds[FIELD__COUNT] = {"number", "signed", "id", "pid", "tid", "time", "text", "pad"};
	const struct record_descriptor *descriptor = record_descriptor__of(type);
	json_t *fields = json_array();

	for (size_t i = 0; i < descriptor->field_cnt; i++) {
		const struct record_field *field = &descriptor->fields[i];

		json_array_append_new(fields, json_pack("{s:s, s:i, s:i, s:i, s:s}", "name", short_name(field),
							"offset", field->offset, "bytes", field->bytes, "cnt",
							field->cnt, "kind", kinds[field->kind]));
	}
	return json_pack("{s:i, s:i, s:o}", "type", type, "bytes", (int)descriptor->bytes, "fields", fields);
}

static int describe_all(void)
{
	json_t *all = json_object();
	int failed = 0;

	for (int type = 1; type < REC__COUNT; type++)
		failed |= json_object_set_new(all, record_descriptor__of(type)->name, describe(type));
	failed |= json_dumpf(all, stdout, JSON_INDENT(1));
	json_decref(all);
	putchar('\n');
	return failed || fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct recording_extent extent = {0};
	int err;

	if (argc != 2) {
		fprintf(stderr, "Usage: recdump FILE | --describe\n");
		return 2;
	}
	if (!strcmp(argv[1], "--describe"))
		return describe_all();
	err = recording__read(argv[1], print_record, NULL, &extent);
	if (err) {
		fprintf(stderr, "recdump: %s: %s (format version %u)\n", argv[1], strerror(-err), extent.version);
		return 1;
	}
	if (extent.end != RECORDING_WHOLE)
		printf("(the rest is cut or damaged)\n");
	return fflush(stdout) ? 1 : 0;
}
