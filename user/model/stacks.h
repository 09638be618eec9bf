/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stacks and paths of samples: takes REC_CODE, REC_STACK, REC_PATH and REC_INSTALLED, and returns functions,
 * stacks and paths by the numbers that samples.h gives. Part of the job (job.h), which owns it. A
 * definition may come later than the first reference to it, or never; until it comes, the number
 * exists but `known` is false.
 */
#ifndef STEPFLAME_USER_MODEL_STACKS_H
#define STEPFLAME_USER_MODEL_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/lib/map.h"
#include "user/lib/names.h"

/* A Python function. */
struct code {
	uint64_t file, name; /* REC_NAME ids: co_filename, co_qualname (before 3.11 co_name); 0: not readable */
	uint32_t first_line;
	uint32_t line_cnt;
	struct code_line *lines; /* NULL: not readable */
	bool known;
	bool is_own, is_standard; /* the user's own, or the standard library's: own_code.h */
};

struct frame {
	uint32_t code;   /* number for stacks__code */
	uint32_t offset; /* of the instruction, in bytes of code */
};

struct stack {
	struct frame *frames; /* innermost first */
	uint32_t cnt;
	bool cut; /* outer frames are missing */
	bool known;
};

struct path {
	struct path_span *spans; /* outermost first */
	uint32_t cnt;
	bool known;
};

struct stacks {
	struct intern code_ids, stack_ids, path_ids;
	struct array codes, stacks, paths; /* by number */
	struct array installed;            /* names of paths, of REC_INSTALLED: at most STACKS_INSTALLED_MAX */
};

/*
 * Takes one of these records; the caller has checked its size. 0, -ENOMEM, or -EINVAL for an
 * invalid record.
 */
int stacks__add(struct stacks *stacks, const struct rec_hdr *record);
/*
 * Set *number to the number of an id, whether its definition came or not; to 0 for id 0. 0 or
 * -ENOMEM.
 */
int stacks__stack_number(struct stacks *stacks, uint64_t id, uint32_t *number);
int stacks__path_number(struct stacks *stacks, uint64_t id, uint32_t *number);
int stacks__code_number(struct stacks *stacks, uint64_t id, uint32_t *number);

/*
 * Sets *number to the path with one span inserted below its `depth` outermost spans (at most all).
 * An unknown path stays unchanged. 0 or -ENOMEM.
 */
int stacks__path_with(struct stacks *stacks, uint32_t path, const struct path_span *span, uint32_t depth,
		      uint32_t *number);

/* By number; number 0 is known and empty. Valid until the next record. */
struct code stacks__code(const struct stacks *stacks, uint32_t number);
struct stack stacks__stack(const struct stacks *stacks, uint32_t number);
struct path stacks__path(const struct stacks *stacks, uint32_t number);
/* One above the highest number. */
size_t stacks__code_end(const struct stacks *stacks);
size_t stacks__stack_end(const struct stacks *stacks);
size_t stacks__path_end(const struct stacks *stacks);

/* The source line of an offset; 0: not known. */
uint32_t code__line(const struct code *code, uint32_t offset);

/* Drops stacks and paths; keeps functions. */
void stacks__forget(struct stacks *stacks);
/* Frees all contents and leaves the struct empty. */
void stacks__free(struct stacks *stacks);

/*
 * Finds which functions are the user's own, those that a place names: not the standard library's, not
 * those of installed packages, and not what torch.compile wrote. Sets is_own and is_standard of all
 * functions, from the paths of their files and from what calls them:
 *
 * - a folder that holds torch is one of packages (pip install --target), unless the program itself
 *   lies in it;
 * - so is a package whose metadata say that it was installed where it lies (REC_INSTALLED);
 * - of a frozen program (PyInstaller), whose files have no folders, the file in which it was entered
 *   is the user's own;
 * - if a job runs nothing of the user's own, the package in which it was entered is the user's own
 *   (`python -m PACKAGE`, a command that was installed with it).
 */
void stacks__find_own(struct stacks *stacks, const struct names *names);

#endif
