/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Searches the bytes of a function without decoding them; the caller must verify what is found. In:
 * an ELF file. No state.
 */
#include <string.h>

#include "user/runtime/torch/ops_private.h"

#define TEXT_MAX 4096

struct op_code op_code__at(const struct elf *elf, uint64_t vaddr, uint64_t size)
{
	struct op_code code = {.vaddr = vaddr};

	if (elf__is_code(elf, vaddr))
		code.bytes = elf__bytes(elf, vaddr, size, &code.size);
	return code;
}

uint64_t op_code__target(const struct op_code *code, size_t at)
{
	int32_t distance;

	memcpy(&distance, code->bytes + at, sizeof(distance));
	return code->vaddr + at + sizeof(distance) + (int64_t)distance;
}

bool op_code__next_call(const struct op_code *code, size_t *at, uint64_t *target)
{
	for (; *at + 5 <= code->size; (*at)++) {
		if (code->bytes[*at] != 0xe8)
			continue;
		*target = op_code__target(code, *at + 1);
		return true;
	}
	return false;
}

const char *op_code__text(const struct elf *elf, uint64_t vaddr)
{
	size_t have;
	const char *text = (const char *)elf__bytes(elf, vaddr, TEXT_MAX, &have);

	return text && memchr(text, 0, have) ? text : NULL;
}
