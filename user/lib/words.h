/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The words of a REC_OP_GROUP: the arguments of an operator's call, in the order of its schema. */
#ifndef STEPFLAME_USER_LIB_WORDS_H
#define STEPFLAME_USER_LIB_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

struct word_arg {
	enum op_word tag;
	uint8_t dtype;          /* c10::ScalarType, for tensors */
	uint32_t cnt;           /* number of dims, of values, or of the tensors in a list */
	const uint64_t *values; /* the words after the first */
};

/* 0, or -EINVAL when the words end inside an argument or have an unknown kind. */
int words__check(const uint64_t *words, size_t cnt);
/*
 * Sets *arg to the argument at *at, and moves *at past it; false at the end. The words must have
 * passed words__check.
 */
bool words__next(const uint64_t *words, size_t cnt, size_t *at, struct word_arg *arg);

/*
 * Returns "[[64, 784], [], ...]", malloc'ed: str(FunctionEvent.input_shapes) of torch 2.15, in
 * which a list of tensors, an undefined tensor, a scalar and anything that is not a tensor are all
 * []. "..." stands for arguments that did not fit. NULL: no memory.
 */
char *words__shapes(const uint64_t *words, size_t cnt);

/* Returns str(torch.dtype) without its "torch.", such as "float32"; NULL for an unknown type. */
const char *words__dtype(uint8_t dtype);

#endif
