/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_FLOPS_H
#define STEPFLAME_USER_RUNTIME_TORCH_FLOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Floating-point operations of one call, as torch.profiler's with_flops estimates them
 * (computeFlops() in torch/csrc/profiler/util.cpp, 2.15): aten::conv2d, mm, addmm, bmm, baddbmm,
 * mul and add. `op` is the name without its overload. The words must have passed words__check. 0:
 * no formula, or not for these arguments.
 */
uint64_t flops__count(const char *op, const uint64_t *words, size_t cnt);

/* Does the formula need the op's integers besides the shapes? */
bool flops__wants_ints(const char *op);

#endif
