// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/runtime/torch/tensor.h"

#include <errno.h>
#include <string.h>

#define KEY_SET_FROM_SIZES 112
#define OFFSET_MAX         512
#define CODE_BYTES         300 /* of an operator: the part before its first call of a kernel */
#define VOTES_MIN          500

struct votes {
	const struct elf *elf;
	uint32_t cnt, of[OFFSET_MAX];
};

/* Operators whose first argument is a tensor. mov disp32(%reg),%reg: REX.W 8b, mod 10. */
static int vote_for_offset(const struct elf_symbol *symbol, void *ctx)
{
	struct votes *votes = ctx;
	const uint8_t *code;
	size_t have;

	if (strncmp(symbol->name, "_ZN2at4_ops", 11) || !strstr(symbol->name, "4callERKNS_6TensorE"))
		return 0;
	code = elf__bytes(votes->elf, symbol->vaddr, CODE_BYTES, &have);
	for (size_t i = 0; code && i + 7 <= have; i++) {
		uint8_t base = code[i + 2] & 7;
		uint32_t offset;

		if ((code[i] & 0xfb) != 0x48 || code[i + 1] != 0x8b || code[i + 2] >> 6 != 2 || base == 4 || base == 5)
			continue;
		memcpy(&offset, code + i + 3, sizeof(offset));
		if (offset >= OFFSET_MAX)
			continue;
		votes->of[offset]++;
		votes->cnt++;
	}
	return 0;
}

int tensor__sizes_offset(const struct elf *elf, uint32_t *offset)
{
	struct votes votes = {.elf = elf};
	uint32_t best = 0;

	elf__each_symbol(elf, vote_for_offset, &votes);
	for (uint32_t i = 0; i < OFFSET_MAX; i++)
		if (votes.of[i] > votes.of[best])
			best = i;
	if (votes.of[best] < VOTES_MIN || votes.of[best] < votes.cnt - votes.cnt / 10 || best < KEY_SET_FROM_SIZES)
		return -ENOENT;
	*offset = best - KEY_SET_FROM_SIZES;
	return 0;
}
