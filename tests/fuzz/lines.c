// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Line tables of CPython 3.8 to 3.15: the first byte is the version, the next two the room, the rest a table. */
#include "tests/fuzz/fuzz.h"
#include "user/runtime/python/pylines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct code_line *lines;
	uint32_t max, cnt;

	if (size < 3)
		return 0;
	max = 2 + (data[1] | data[2] << 8) % (PY_LINES_MAX - 1);
	lines = malloc(max * sizeof(*lines));
	cnt = py_lines__decode(8 + data[0] % 8, data + 3, size - 3, data[1], lines, max);
	FUZZ_CHECK(cnt >= 1 && cnt <= max && lines[0].offset == 0);
	for (uint32_t i = 0; i < cnt; i++) {
		FUZZ_CHECK(lines[i].line >= 0);
		FUZZ_CHECK(!i || (lines[i].offset > lines[i - 1].offset && lines[i].line != lines[i - 1].line));
		py_lines__at(lines, cnt, 1, lines[i].offset);
	}
	free(lines);
	return 0;
}
