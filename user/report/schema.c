// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/schema.h"

#include <stdlib.h>
#include <string.h>

#include "user/model/job.h"
#include "user/report/common.h"
#include "user/report/print/shape.h"

#define DRAFT "https://json-schema.org/draft/2020-12/schema"

static json_t *schema_of_type(const char *type);

static json_t *scalar_schema(const char *type)
{
	static const struct {
		const char *type, *name;
	} scalars[] = {{"I", "integer"}, {"f", "number"}, {"s", "string"}, {"b", "boolean"}};
	char path[SHAPE_WORD_BYTES + 16];

	for (size_t i = 0; i < sizeof(scalars) / sizeof(*scalars); i++)
		if (!strcmp(scalars[i].type, type))
			return json_pack("{s:s}", "type", scalars[i].name);
	snprintf(path, sizeof(path), "#/$defs/%s", type);
	return json_pack("{s:s}", "$ref", path);
}

/* The schema of what is between the brackets of a type. */
static json_t *inner_schema(const char *type, size_t bytes)
{
	char inner[SHAPE_WORD_BYTES];

	snprintf(inner, sizeof(inner), "%.*s", (int)(bytes - 2), type + 1);
	return schema_of_type(inner);
}

static json_t *schema_of_type(const char *type)
{
	size_t bytes = strlen(type);
	char known[SHAPE_WORD_BYTES];

	if (bytes > 1 && type[bytes - 1] == '?') {
		snprintf(known, sizeof(known), "%.*s", (int)(bytes - 1), type);
		return json_pack("{s:[o, {s:s}]}", "anyOf", schema_of_type(known), "type", "null");
	}
	if (bytes > 2 && *type == '[')
		return json_pack("{s:s, s:o}", "type", "array", "items", inner_schema(type, bytes));
	if (bytes > 2 && *type == '{')
		return json_pack("{s:s, s:o}", "type", "object", "additionalProperties", inner_schema(type, bytes));
	return scalar_schema(type);
}

/* malloc'ed; NULL: no memory. */
static char *fields_of_shape(const struct shape *shape, struct job *job)
{
	struct table table = {0};
	char *text = NULL;
	size_t bytes;
	int err;

	if (shape->fields)
		return strdup(shape->fields);
	table.fields = open_memstream(&text, &bytes);
	if (!table.fields)
		return NULL;
	err = shape->row(job, &table);
	if (!fclose(table.fields) && !err)
		return text;
	free(text);
	return NULL;
}

static const struct shape *find_shape(const char *name)
{
	const struct shape *shape;

	for (size_t i = 0; (shape = shape__at(i)); i++)
		if (!strcmp(shape->name, name))
			break;
	return shape;
}

/* Nonzero: no memory, or a shape that does not exist. */
static int add_properties(const struct shape *shape, struct job *job, json_t *properties, json_t *required)
{
	char *text = shape ? fields_of_shape(shape, job) : NULL;
	const char *fields = text;
	struct shape_field field;
	int failed = !text;

	while (!failed && (fields = shape_field__next(fields, &field))) {
		if (!*field.key) {
			failed = add_properties(find_shape(field.type), job, properties, required);
			continue;
		}
		failed = json_object_set_new(properties, field.key, schema_of_type(field.type));
		if (!failed && !field.optional)
			failed = json_array_append_new(required, json_string(field.key));
	}
	free(text);
	return failed;
}

static json_t *schema_of_shape(const struct shape *shape, struct job *job)
{
	json_t *properties = json_object(), *required = json_array();
	int failed = add_properties(shape, job, properties, required);

	if (shape->report)
		failed |= json_object_set_new(properties, "report", json_pack("{s:s}", "const", shape->report));
	return common__json_unless_failed(json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties,
						    "required", required, "additionalProperties", 0),
					  failed);
}

int schema__print(FILE *out)
{
	json_t *defs = json_object(), *reports = json_array(), *schema;
	struct job *job = job__new();
	const struct shape *shape;
	int failed = !job;

	for (size_t i = 0; (shape = shape__at(i)) && !failed; i++) {
		failed = json_object_set_new(defs, shape->name, schema_of_shape(shape, job));
		if (shape->report)
			failed |= json_array_append_new(reports, scalar_schema(shape->name));
	}
	job__free(job);
	schema = json_pack("{s:s, s:s, s:s, s:o, s:o}", "$schema", DRAFT, "title", "a report of stepflame, as JSON",
			   "$comment", "written by stepflame " STEPFLAME_VERSION, "oneOf", reports, "$defs", defs);
	return common__print_json(common__json_unless_failed(schema, failed), out);
}
