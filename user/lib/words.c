// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * By c10::ScalarType (torch/headeronly/core/ScalarType.h). torch's file format contains these
 * numbers, so they do not change.
 */
static const char *const dtypes[] = {
	"uint8",
	"int8",
	"int16",
	"int32",
	"int64",
	"float16",
	"float32",
	"float64",
	"complex32",
	"complex64",
	"complex128",
	"bool",
	"qint8",
	"quint8",
	"qint32",
	"bfloat16",
	"quint4x2",
	"quint2x4",
	"bits1x8",
	"bits2x4",
	"bits4x2",
	"bits8",
	"bits16",
	"float8_e5m2",
	"float8_e4m3fn",
	"float8_e5m2fnuz",
	"float8_e4m3fnuz",
	"uint16",
	"uint32",
	"uint64",
	[44] = "float8_e8m0fnu",
	"float4_e2m1fn_x2",
};

const char *words__dtype(uint8_t dtype)
{
	return dtype < sizeof(dtypes) / sizeof(*dtypes) ? dtypes[dtype] : NULL;
}

static struct word_arg read_word(const uint64_t *word)
{
	return (struct word_arg){
		.tag = *word & 0xff, .dtype = *word >> 8 & 0xff, .cnt = *word >> 32, .values = word + 1};
}

/* Moves *at past the tensors of a list; where the list was cut off, to the word that says so. */
static bool skip_list(const uint64_t *words, size_t cnt, size_t *at, uint32_t tensors)
{
	while (tensors--) {
		struct word_arg tensor;

		if (*at >= cnt)
			return false;
		tensor = read_word(&words[*at]);
		if (tensor.tag == OP_WORD_CUT)
			return true;
		if (tensor.tag != OP_WORD_TENSOR && tensor.tag != OP_WORD_NONE && tensor.tag != OP_WORD_OPAQUE)
			return false;
		if (tensor.tag != OP_WORD_TENSOR)
			tensor.cnt = 0;
		if (tensor.cnt > cnt - *at - 1)
			return false;
		*at += 1 + (size_t)tensor.cnt;
	}
	return true;
}

bool words__next(const uint64_t *words, size_t cnt, size_t *at, struct word_arg *arg)
{
	size_t next = *at;

	if (next >= cnt)
		return false;
	*arg = read_word(&words[next++]);
	switch (arg->tag) {
	case OP_WORD_NONE:
	case OP_WORD_OPAQUE:
		arg->cnt = 0;
		break;
	case OP_WORD_INT:
		if (arg->cnt != 1)
			return false;
		/* fallthrough */
	case OP_WORD_TENSOR:
	case OP_WORD_INTS:
		if (arg->cnt > cnt - next)
			return false;
		next += arg->cnt;
		break;
	case OP_WORD_TENSOR_LIST:
		if (!skip_list(words, cnt, &next, arg->cnt))
			return false;
		break;
	case OP_WORD_CUT:
		if (next != cnt)
			return false;
		arg->cnt = 0;
		break;
	default:
		return false;
	}
	*at = next;
	return true;
}

int words__check(const uint64_t *words, size_t cnt)
{
	struct word_arg arg;
	size_t at = 0;

	while (words__next(words, cnt, &at, &arg))
		;
	return at == cnt ? 0 : -EINVAL;
}

char *words__shapes(const uint64_t *words, size_t cnt)
{
	struct word_arg arg;
	char *text = NULL;
	size_t at = 0, bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	fputc('[', out);
	for (const char *comma = ""; words__next(words, cnt, &at, &arg); comma = ", ") {
		if (arg.tag == OP_WORD_CUT) {
			fprintf(out, "%s...", comma);
			continue;
		}
		fprintf(out, "%s[", comma);
		for (uint32_t i = 0; arg.tag == OP_WORD_TENSOR && i < arg.cnt; i++)
			fprintf(out, "%s%" PRId64, i ? ", " : "", (int64_t)arg.values[i]);
		fputc(']', out);
	}
	fputc(']', out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
