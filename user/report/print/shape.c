// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/print/shape.h"

#include <string.h>

extern const struct shape *const shapes_begin[] __asm__("__start_stepflame_shapes");
extern const struct shape *const shapes_end[] __asm__("__stop_stepflame_shapes");

const struct shape *shape__at(size_t index)
{
	return index < (size_t)(shapes_end - shapes_begin) ? shapes_begin[index] : NULL;
}

static void copy_word(char to[SHAPE_WORD_BYTES], const char *from, size_t bytes)
{
	if (bytes >= SHAPE_WORD_BYTES)
		bytes = SHAPE_WORD_BYTES - 1;
	memcpy(to, from, bytes);
	to[bytes] = 0;
}

const char *shape_field__next(const char *fields, struct shape_field *field)
{
	size_t bytes, key;

	fields += strspn(fields, " ");
	bytes = strcspn(fields, " ");
	if (!bytes)
		return NULL;
	*field = (struct shape_field){0};
	key = *fields == '@' ? 0 : strcspn(fields, ":");
	copy_word(field->type, fields + key + 1, bytes - key - 1);
	field->optional = key && fields[key - 1] == '?';
	copy_word(field->key, fields, key - field->optional);
	return fields + bytes;
}

json_t *shape__pack(const struct shape *shape, json_t *const *values, size_t cnt)
{
	json_t *object = json_object();
	const char *fields = shape->fields;
	struct shape_field field;
	size_t used = 0;
	int failed = 0;

	while ((fields = shape_field__next(fields, &field)))
		if (*field.key && !field.optional && used < cnt)
			failed |= json_object_set_new(object, field.key, values[used++]);
	for (size_t i = used; i < cnt; i++)
		json_decref(values[i]);
	if (failed || used < cnt) {
		json_decref(object);
		return NULL;
	}
	return object;
}
