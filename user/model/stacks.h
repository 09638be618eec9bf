/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where samples were: REC_CODE, REC_STACK and REC_PATH in; functions, stacks and paths out, by the numbers that
 * samples.h gives. Part of the job (job.h), which owns it. What is referred to may come later than the reference, or
 * not at all: then it is there, but not known.
 */
#ifndef STEPFLAME_USER_MODEL_STACKS_H
#define STEPFLAME_USER_MODEL_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/lib/intern.h"

/* A Python function. */
struct code {
	uint64_t file, name; /* REC_NAME ids: co_filename, co_qualname (before 3.11 co_name); 0: not readable */
	uint32_t first_line;
	uint32_t line_cnt;
	struct code_line *lines; /* NULL: not readable */
	bool known;
};

struct frame {
	uint32_t code;   /* number for stacks__code */
	uint32_t offset; /* of the instruction, in bytes of code */
};

struct stack {
	struct frame *frames; /* the innermost first */
	uint32_t cnt;
	bool cut; /* outer frames are missing */
	bool known;
};

struct path {
	struct path_span *spans; /* the outermost first */
	uint32_t cnt;
	bool known;
};

struct stacks {
	struct intern code_ids, stack_ids, path_ids;
	struct array codes, stacks, paths; /* by number */
};

/* Takes one of the three records, whose size holds its struct. 0, -ENOMEM, or -EINVAL when it makes no sense. */
int stacks__add(struct stacks *stacks, const struct rec_hdr *record);
/* The number of an id, known or not; 0 for id 0. 0 or -ENOMEM. */
int stacks__stack_number(struct stacks *stacks, uint64_t id, uint32_t *number);
int stacks__path_number(struct stacks *stacks, uint64_t id, uint32_t *number);
int stacks__code_number(struct stacks *stacks, uint64_t id, uint32_t *number);

/*
 * The number of a path with one more span, `depth` others around it (at most all). An unknown path stays as it is. 0 or
 * -ENOMEM.
 */
int stacks__path_with(struct stacks *stacks, uint32_t path, const struct path_span *span, uint32_t depth,
		      uint32_t *number);

/* By number; that of 0 is known and empty. Valid until the next record. */
struct code stacks__code(const struct stacks *stacks, uint32_t number);
struct stack stacks__stack(const struct stacks *stacks, uint32_t number);
struct path stacks__path(const struct stacks *stacks, uint32_t number);
/* Above the highest number. */
size_t stacks__code_end(const struct stacks *stacks);
size_t stacks__stack_end(const struct stacks *stacks);
size_t stacks__path_end(const struct stacks *stacks);

/* The source line of an offset; 0: not known. */
uint32_t code__line(const struct code *code, uint32_t offset);

/* Drops stacks and paths; functions stay. */
void stacks__forget(struct stacks *stacks);
/* Leaves it empty. */
void stacks__free(struct stacks *stacks);

#endif
