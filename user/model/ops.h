/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operators: takes REC_OP, REC_OP_GROUP and REC_OP_WINDOW, and returns rows with their texts. Part
 * of the job (job.h), which owns it.
 */
#ifndef STEPFLAME_USER_MODEL_OPS_H
#define STEPFLAME_USER_MODEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/lib/map.h"
#include "user/lib/names.h"
#include "user/model/stacks.h"

#define OP_EVALUATE_PREFIX "autograd::engine::evaluate_function: "

/* What a REC_OP_GROUP id stands for. Words are validated (words.h) and owned by the job. */
struct op_group {
	uint64_t source; /* REC_CODE id; 0: no source */
	uint64_t module; /* name id; 0: no module */
	uint32_t source_offset;
	const uint64_t *words;
	size_t word_cnt;
};

/* One row of the recording. Texts are UTF-8, control characters unchanged, and owned by the job. */
struct op_row {
	/*
	 * As torch.profiler prints it: "aten::add", "autograd::engine::evaluate_function:
	 * AddBackward0", "ProfilerStep*".
	 */
	const char *name;
	const char *overload;                  /* "Tensor"; "" without an overload */
	const char *action;                    /* the innermost enclosing action; NULL: no action */
	const char *source;                    /* as op_group__source; NULL: not recorded */
	const char *module;                    /* NULL: not recorded */
	const uint64_t *words;                 /* of its group (words.h), validated */
	size_t word_cnt;                       /* 0: not recorded */
	uint64_t name_id, action_id, group_id; /* of its key */
	enum span_kind kind;
	uint32_t pid;
	uint64_t flops; /* of one call; 0: no formula, or not recorded */
	struct op_val val;
};

struct ops {
	struct map rows, groups, windows; /* see ops.c */
	struct op_row *built;             /* valid while !stale */
	size_t built_cnt;
	bool stale; /* the owner sets it with every record: a new name changes rows, too */
	struct rec_op_window *built_windows;
};

/*
 * Takes one of the three records; the caller has checked its size. 0, -ENOMEM, or -EINVAL for an
 * invalid record.
 */
int ops__add(struct ops *ops, const struct rec_hdr *record);
/*
 * The rows that have calls, in order of first occurrence, without those that torch.profiler never
 * lists. Resolves texts with `names`. Valid until the next record. NULL only with *cnt == 0.
 */
const struct op_row *ops__rows(struct ops *ops, struct names *names, struct stacks *stacks, size_t *cnt);
/*
 * The windows in which operators were counted, sorted by pid and index. Valid until the next call.
 * NULL only with *cnt == 0.
 */
const struct rec_op_window *ops__windows(struct ops *ops, size_t *cnt);
/* False if the group never came; *group is then empty. */
bool ops__group(const struct ops *ops, uint64_t id, struct op_group *group);
/*
 * The caller of the operator: "FILE(LINE): FUNCTION", with FILE shortened to start at
 * site-packages; malloc'ed. NULL: no memory.
 */
char *op_group__source(const struct op_group *group, struct names *names, struct stacks *stacks);
/* Frees all contents and leaves the struct empty. */
void ops__free(struct ops *ops);

/* Adds val to sum, saturating. A sum is empty while sum->calls is 0. */
void op_val__add(struct op_val *sum, const struct op_val *val);

#endif
