// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/recording/step_model.h"

#define SETTLED  7   /* from its 7th number on a median moves by 1/128 at most */
#define SLOWEST  256 /* ns by which it can always move */
#define PART_MAX ((1ull << STEP_PART_BITS) - 1)

uint64_t step_quantum__ns(unsigned int quantum)
{
	return quantum ? (4 + (uint64_t)quantum % 4) << quantum / 4 >> 2 : 1;
}

/* So that outliers move it no more than others. */
static void follow(struct part_model *part, uint64_t ns, uint64_t unit_ns)
{
	int64_t limit = part->expected_ns >> (part->seen < SETTLED ? part->seen : SETTLED);
	int64_t move = (int64_t)(ns - part->expected_ns) / 4;

	if (!part->seen++) {
		part->expected_ns = ns;
		return;
	}
	if (limit < (int64_t)(unit_ns / 2))
		limit = unit_ns / 2;
	if (limit < SLOWEST)
		limit = SLOWEST;
	if (move > limit)
		move = limit;
	part->expected_ns += move < -limit ? -limit : move;
}

static unsigned int code_size(struct bit_coder *coder, struct bit_odds *tree, unsigned int size)
{
	unsigned int node = 1;

	for (int i = SIZE_BITS - 1; i >= 0; i--)
		node = node << 1 | bit_coder__bit(coder, &tree[node], size >> i & 1);
	return node - (1 << SIZE_BITS);
}

/* *size: bits of the difference. */
static int64_t code_difference(struct part_model *part, struct bit_coder *coder, struct bit_odds *tree,
			       int64_t difference, unsigned int *size)
{
	uint64_t absolute = difference < 0 ? -difference : difference, lead = 1;
	unsigned int left;
	bool minus;

	*size = code_size(coder, tree, absolute ? 64 - __builtin_clzll(absolute) : 0);
	coder->bad |= *size > STEP_PART_BITS;
	if (!*size || coder->bad)
		return 0;
	minus = bit_coder__bit(coder, &part->sign[*size], difference < 0);
	left = *size - 1;
	if (left) {
		left--;
		lead = lead << 1 | bit_coder__bit(coder, &part->next[*size][minus], absolute >> left & 1);
	}
	absolute = lead << left | bit_coder__even_bits(coder, left, absolute);
	return minus ? -(int64_t)absolute : (int64_t)absolute;
}

static bool code_part(struct part_model *part, struct bit_coder *coder, uint64_t unit_ns, unsigned int *row,
		      uint64_t *ns)
{
	struct bit_odds *tree = part->size[unit_ns == 1][*row < ROW_MAX ? *row : ROW_MAX];
	int64_t expected = part->expected_ns / unit_ns;
	int64_t number = coder->reads ? 0 : (int64_t)(*ns / unit_ns) - expected;

	number = expected + code_difference(part, coder, tree, number, row);
	if (number < 0 || (uint64_t)number > PART_MAX / unit_ns)
		return false;
	*ns = number * unit_ns;
	follow(part, *ns, unit_ns);
	return true;
}

bool step_model__code(struct step_model *model, struct bit_coder *coder, unsigned int *quantum,
		      uint64_t parts_ns[STEP_PARTS])
{
	bool changes = !coder->reads && *quantum != model->quantum;
	unsigned int row = 0;
	uint64_t ns;

	if (bit_coder__bit(coder, &model->same, changes))
		*quantum = bit_coder__even_bits(coder, SIZE_BITS, *quantum);
	else
		*quantum = model->quantum;
	if (*quantum && *quantum < STEP_QUANTUM_FIRST)
		return false;
	if (*quantum)
		model->quantum = *quantum;
	ns = step_quantum__ns(*quantum);
	for (unsigned int i = 0; i < STEP_PARTS; i++) {
		if (!(model->parts >> i & 1) || i == model->rest)
			continue;
		if (!code_part(&model->part[i], coder, *quantum ? ns * STEP_COARSER : 1, &row, &parts_ns[i]))
			return false;
	}
	return code_part(&model->part[model->rest], coder, ns, &row, &parts_ns[model->rest]) && !coder->bad;
}
