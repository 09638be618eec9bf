// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * torch.profiler's FLOPs. The arithmetic is unsigned and wraps, as in torch: the figures must be
 * equal, and the words of a recording may hold anything.
 */
#include "user/runtime/torch/flops.h"

#include <stdbool.h>
#include <string.h>

#include "user/lib/words.h"

#define ARGS_MAX 7 /* arguments that a formula reads: those of conv2d */

static bool is_tensor(const struct word_arg *arg)
{
	return arg->tag == OP_WORD_TENSOR;
}

static uint64_t product(const struct word_arg *tensor)
{
	uint64_t all = 1;

	for (uint32_t i = 0; i < tensor->cnt; i++)
		all *= tensor->values[i];
	return all;
}

/*
 * input, weight, bias, stride, padding, dilation, groups. When the padding is a word ("same"),
 * torch gives no figure.
 */
static uint64_t conv2d(const struct word_arg *args)
{
	const struct word_arg *input = &args[0], *weight = &args[1];
	uint64_t groups, flops;

	if (input->cnt != 4 || weight->cnt != 4 || args[6].tag != OP_WORD_INT || !args[6].values[0])
		return 0;
	for (int i = 3; i < 6; i++)
		if (args[i].tag != OP_WORD_INTS || args[i].cnt != 2)
			return 0;
	groups = args[6].values[0];
	flops = 2 * input->values[0] * weight->values[2] * weight->values[3] * input->values[1] * weight->values[0];
	for (int axis = 0; axis < 2; axis++) {
		uint64_t stride = args[3].values[axis], padding = args[4].values[axis], dilation = args[5].values[axis];

		if (!stride)
			return 0;
		flops *= (input->values[2 + axis] + 2 * padding - dilation * (weight->values[2 + axis] - 1) - 1) /
				 stride +
			 1;
	}
	return flops / groups;
}

/* batched: the first dimension belongs to both, and counts once. */
static uint64_t multiply(const struct word_arg *left, const struct word_arg *right, bool batched)
{
	uint64_t flops, overlap, batch;

	if (!left->cnt)
		return 0;
	overlap = left->values[left->cnt - 1];
	batch = batched ? left->values[0] : 1;
	if (!overlap || !batch)
		return 0;
	flops = product(left) / overlap / batch;
	return 2 * flops * product(right);
}

static uint64_t mm(const struct word_arg *args)
{
	return multiply(&args[0], &args[1], false);
}

static uint64_t addmm(const struct word_arg *args)
{
	return multiply(&args[1], &args[2], false);
}

static uint64_t bmm(const struct word_arg *args)
{
	return multiply(&args[0], &args[1], true);
}

static uint64_t baddbmm(const struct word_arg *args)
{
	return multiply(&args[1], &args[2], true);
}

static uint64_t pointwise(const struct word_arg *args)
{
	return product(&args[0]);
}

static const struct {
	const char *op;
	size_t arg_cnt, tensor_cnt; /* minimum of arguments; how many of the first are tensors */
	uint64_t (*count)(const struct word_arg *args);
} formulas[] = {
	{"aten::conv2d", 7, 2, conv2d}, {"aten::mm", 2, 2, mm},           {"aten::addmm", 3, 3, addmm},
	{"aten::bmm", 2, 2, bmm},       {"aten::baddbmm", 3, 3, baddbmm}, {"aten::mul", 1, 1, pointwise},
	{"aten::add", 1, 1, pointwise},
};

uint64_t flops__count(const char *op, const uint64_t *words, size_t cnt)
{
	struct word_arg args[ARGS_MAX];
	size_t arg_cnt = 0, at = 0, f = 0;

	while (f < sizeof(formulas) / sizeof(*formulas) && strcmp(formulas[f].op, op))
		f++;
	if (f == sizeof(formulas) / sizeof(*formulas))
		return 0;
	while (arg_cnt < ARGS_MAX && words__next(words, cnt, &at, &args[arg_cnt]))
		arg_cnt++;
	if (arg_cnt < formulas[f].arg_cnt)
		return 0;
	for (size_t i = 0; i < formulas[f].tensor_cnt; i++)
		if (!is_tensor(&args[i]))
			return 0;
	return formulas[f].count(args);
}

bool flops__wants_ints(const char *op)
{
	return !strcmp(op, "aten::conv2d"); /* stride, padding, dilation, groups */
}
