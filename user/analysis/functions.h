/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions as cProfile names them, numbered from 1 in the order in which they are asked for. Told apart by file, line
 * and name, so that one of several code objects is one.
 */
#ifndef STEPFLAME_USER_ANALYSIS_FUNCTIONS_H
#define STEPFLAME_USER_ANALYSIS_FUNCTIONS_H

#include "user/lib/intern.h"
#include "user/model/job.h"
#include "user/model/stacks.h"

#define FUNCTION_BUILTIN_FILE "~" /* of functions that are not Python's; their line is 0 */

struct function {
	const char *file;     /* co_filename; FUNCTION_BUILTIN_FILE */
	uint32_t line;        /* the first */
	const char *name;     /* co_name, or such as "<waiting: gil>", which pstats prints as "{waiting: gil}" */
	const char *qualname; /* co_qualname where it is known, else name */
};

struct functions {
	struct job *job;
	struct map texts;          /* of their files and names */
	struct map by_key;         /* struct node, see functions.c */
	struct array code_numbers; /* uint32_t by code; 0: not asked for */
	struct intern symbols;
	struct array symbol_numbers; /* uint32_t by symbol; 0: not asked for */
};

/* All: *number; 0 or -ENOMEM. */
int functions__code(struct functions *functions, uint32_t code, uint32_t *number);
/* Those of a stack, callers first. */
int functions__stack(struct functions *functions, const struct stack *stack);
/* "<prefix text>"; text NULL: no memory. */
int functions__builtin(struct functions *functions, const char *prefix, const char *text, uint32_t *number);
/* "<symbol (library)>" of a REC_NAME id; 0 for id 0. */
int functions__symbol(struct functions *functions, uint64_t name_id, uint32_t *number);

/* Valid until the next one is asked for; its texts stay. */
const struct function *functions__get(const struct functions *functions, uint32_t number);
/* Above the highest number. */
size_t functions__end(const struct functions *functions);
void functions__free(struct functions *functions);

#endif
