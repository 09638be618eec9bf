// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The arguments of operators in a Chrome trace: shapes, source lines, modules. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "user/export/chrome_private.h"
#include "user/lib/words.h"

/* By c10::ScalarType: the result of scalarTypeToTypeMeta(type).name(). */
static const char *const type_names[] = {
	"unsigned char",
	"signed char",
	"short int",
	"int",
	"long int",
	"c10::Half",
	"float",
	"double",
	"c10::complex<c10::Half>",
	"c10::complex<float>",
	"c10::complex<double>",
	"bool",
	"c10::qint8",
	"c10::quint8",
	"c10::qint32",
	"c10::BFloat16",
	"c10::quint4x2",
	"c10::quint2x4",
	"c10::bits1x8",
	"c10::bits2x4",
	"c10::bits4x2",
	"c10::bits8",
	"c10::bits16",
	"c10::Float8_e5m2",
	"c10::Float8_e4m3fn",
	"c10::Float8_e5m2fnuz",
	"c10::Float8_e4m3fnuz",
	"short unsigned int",
	"unsigned int",
	"long unsigned int",
	[44] = "c10::Float8_e8m0fnu",
	"c10::Float4_e2m1fn_x2",
};

/* ---- arguments of operators ---- */

static const char *type_name(const struct word_arg *arg)
{
	switch (arg->tag) {
	case OP_WORD_TENSOR:
		if (arg->dtype < sizeof(type_names) / sizeof(*type_names) && type_names[arg->dtype])
			return type_names[arg->dtype];
		return "";
	case OP_WORD_TENSOR_LIST:
		return "TensorList";
	case OP_WORD_INTS:
		return "ScalarList";
	case OP_WORD_INT:
		return "Scalar";
	default:
		return "";
	}
}

static void put_shape(FILE *out, const struct word_arg *arg)
{
	size_t at = 0;

	fputc('[', out);
	for (uint32_t i = 0; arg->tag == OP_WORD_TENSOR && i < arg->cnt; i++)
		fprintf(out, "%s%" PRId64, i ? ", " : "", (int64_t)arg->values[i]);
	for (uint32_t i = 0; arg->tag == OP_WORD_TENSOR_LIST && i < arg->cnt; i++) {
		struct word_arg tensor;

		/*
		 * words__check has checked the list with its group. In a list that was cut off,
		 * OP_WORD_CUT is the last word.
		 */
		if (!words__next(arg->values, SIZE_MAX, &at, &tensor) || tensor.tag == OP_WORD_CUT)
			break;
		fputs(i ? ", " : "", out);
		put_shape(out, &tensor);
	}
	fputc(']', out);
}

static void put_shapes(FILE *out, const struct op_group *group)
{
	struct word_arg arg;
	size_t at = 0;

	fputs(", \"Input type\": [", out);
	for (const char *comma = ""; words__next(group->words, group->word_cnt, &at, &arg); comma = ", ")
		if (arg.tag != OP_WORD_CUT)
			fprintf(out, "%s\"%s\"", comma, type_name(&arg));
	at = 0;
	fputs("], \"Input Dims\": [", out);
	for (const char *comma = ""; words__next(group->words, group->word_cnt, &at, &arg); comma = ", ") {
		if (arg.tag == OP_WORD_CUT)
			continue;
		fputs(comma, out);
		put_shape(out, &arg);
	}
	fputc(']', out);
}

/* text is NULL where there was no memory for it. */
static int put_text_member(FILE *out, const char *key, const char *text)
{
	char *json = text ? export__json_text(text) : NULL;

	if (json)
		fprintf(out, ", \"%s\": %s", key, json);
	free(json);
	return json ? 0 : -ENOMEM;
}

static int put_origin(FILE *out, struct job *job, const struct op_group *group)
{
	int err = 0;

	if (group->source) {
		char *source = job__op_source(job, group);

		err = put_text_member(out, "Call stack", source);
		free(source);
	}
	if (group->module && !err)
		err = put_text_member(out, "Module Hierarchy", job__name_or_lost(job, group->module));
	return err;
}

char *chrome__group_json(struct job *job, uint64_t id)
{
	struct op_group group;
	char *json = NULL;
	size_t bytes;
	FILE *out = open_memstream(&json, &bytes);
	int err = 0;

	if (!out)
		return NULL;
	if (job__op_group(job, id, &group)) {
		if (group.word_cnt)
			put_shapes(out, &group);
		err = put_origin(out, job, &group);
	}
	if (!fclose(out) && !err)
		return json;
	free(json);
	return NULL;
}
