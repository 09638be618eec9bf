/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The words of a REC_OP_GROUP: what the arguments of an operator's call were, in the order of its schema. */
#ifndef STEPFLAME_USER_LIB_WORDS_H
#define STEPFLAME_USER_LIB_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

struct word_arg {
	enum op_word tag;
	uint8_t dtype;          /* c10::ScalarType, of tensors */
	uint32_t cnt;           /* of dims, of values, or of the tensors in a list */
	const uint64_t *values; /* what follows the word */
};

/* 0, or -EINVAL when the words do not end where an argument does, or are of no known kind. */
int words__check(const uint64_t *words, size_t cnt);
/* The argument at *at, and moves *at behind it; false at the end. The words must have passed words__check. */
bool words__next(const uint64_t *words, size_t cnt, size_t *at, struct word_arg *arg);

/*
 * "[[64, 784], [], ...]", malloc'ed: str(FunctionEvent.input_shapes) of torch 2.15, in which a list of tensors, an
 * undefined tensor, a scalar and what is no tensor are all []. Arguments that did not fit are "...". NULL: no memory.
 */
char *words__shapes(const uint64_t *words, size_t cnt);

/* "float32": str(torch.dtype) less its "torch."; NULL when it is not known. */
const char *words__dtype(uint8_t dtype);

#endif
