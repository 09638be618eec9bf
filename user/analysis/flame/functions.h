/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions as cProfile names them, numbered from 1 in the order of first use. File, line and name
 * identify a function, so several code objects of one function share a number.
 */
#ifndef STEPFLAME_USER_ANALYSIS_FLAME_FUNCTIONS_H
#define STEPFLAME_USER_ANALYSIS_FLAME_FUNCTIONS_H

#include "user/lib/intern.h"
#include "user/model/job.h"
#include "user/model/stacks.h"

#define FUNCTION_BUILTIN_FILE "~" /* file of functions outside Python; their line is 0 */

struct function {
	const char *file;     /* co_filename, or FUNCTION_BUILTIN_FILE */
	uint32_t line;        /* first line of the function */
	const char *name;     /* co_name, or for example "<waiting: gil>", which pstats prints as "{waiting: gil}" */
	const char *qualname; /* co_qualname if known, else name */
};

struct functions {
	struct job *job;
	struct map texts;          /* of their files and names */
	struct map by_key;         /* struct node, see functions.c */
	struct array code_numbers; /* uint32_t by code; 0: not numbered yet */
	struct intern symbols;
	struct array symbol_numbers; /* uint32_t by symbol; 0: not numbered yet */
};

/* These functions set *number, and return 0 or -ENOMEM. functions__code: a number for stacks__code. */
int functions__code(struct functions *functions, uint32_t code, uint32_t *number);
/* Numbers the functions of a stack, callers first. */
int functions__stack(struct functions *functions, const struct stack *stack);
/* Numbers "<prefix text>". A NULL text means no memory. */
int functions__builtin(struct functions *functions, const char *prefix, const char *text, uint32_t *number);
/* Numbers "<symbol (library)>" of a REC_NAME id; *number is 0 for id 0. */
int functions__symbol(struct functions *functions, uint64_t name_id, uint32_t *number);

/* Valid until the next function is numbered; its texts remain valid. */
const struct function *functions__get(const struct functions *functions, uint32_t number);
/* One above the highest number. */
size_t functions__end(const struct functions *functions);
void functions__free(struct functions *functions);

#endif
