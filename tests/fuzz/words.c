// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Texts and words: names in all encodings, what is escaped and cut for a terminal, C++ names and types, shapes. */
#include "user/lib/words.h"
#include "tests/fuzz/fuzz.h"
#include "user/elf/demangle.h"
#include "user/lib/columns.h"
#include "user/lib/names.h"
#include "user/report/print/text.h"
#include "user/runtime/cuda/cuda.h"
#include "user/runtime/torch/ops_private.h"

static void check_names(const uint8_t *data, size_t size)
{
	static const enum name_encoding encodings[] = {NAME_UTF8, NAME_LATIN1, NAME_UCS2, NAME_UCS4};
	char field[24], *name = name__utf8((const char *)data, size, encodings[size % 4], size % 3 == 0), *shown;
	size_t width = 1 + size % 40;

	shown = utf8__escape(name);
	fuzz__check_text(shown, strlen(shown), "");
	free(shown);
	shown = text__fit(name, width);
	fuzz__check_text(shown, strlen(shown), "");
	FUZZ_CHECK(columns__of_text(shown) <= width);
	free(shown);
	free(name);
	utf8__copy(field, sizeof(field), (const char *)data, size);
	FUZZ_CHECK(strlen(field) < sizeof(field));
}

static void check_symbols(const char *text)
{
	struct op_arg arg[OP_ARGS_MAX];
	char name[128], *readable;
	uint8_t cnt;

	demangle__name(text, name, sizeof(name));
	demangle__kernel_to_keep(text, name, sizeof(name));
	FUZZ_CHECK(strlen(name) < sizeof(name));
	readable = demangle__kernel(text);
	free(readable);
	free(ops_names__demangle(text));
	if (!ops_abi__args(text, text[0] & 1, arg, &cnt))
		FUZZ_CHECK(cnt <= OP_ARGS_MAX);
	cuda__api(text);
	cuda__handle_from(text);
}

static void check_shapes(const uint8_t *data, size_t size)
{
	uint64_t words[64];
	size_t cnt = size / 8 < 64 ? size / 8 : 64;

	memcpy(words, data, 8 * cnt);
	if (!words__check(words, cnt))
		free(words__shapes(words, cnt));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);

	check_names(data, size);
	check_symbols(text);
	check_shapes(data, size);
	free(text);
	return 0;
}
