/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What cumulative rows, of actions and of operators, came to from snapshot to snapshot: all records of a recording in, in their order,
 * by each row and snapshot what it grew by out. A job (job.h) keeps the last snapshot alone.
 */
#ifndef STEPFLAME_USER_ANALYSIS_HISTORY_H
#define STEPFLAME_USER_ANALYSIS_HISTORY_H

#include <stdint.h>

#include "include/records.h"
#include "user/lib/array.h"

struct history;

/* What a row grew by. */
struct growth {
	uint32_t snapshot; /* with which that was told: an index into history__snapshots */
	uint64_t ns;       /* of an action in all, of an operator its own */
	uint64_t calls;
};

struct history_row {
	struct history_key {
		uint64_t type;     /* REC_AGG or REC_OP */
		struct op_key row; /* of an action, too; 0 in it: over all that else is told apart */
	} key;
	struct array growths; /* struct growth, by snapshot */
};

struct history *history__new(void);          /* NULL: no memory */
void history__free(struct history *history); /* accepts NULL */
/* Takes one record. 0 or -ENOMEM. */
int history__add(struct history *history, const struct rec_hdr *record);

/* uint64_t: when each was taken, in their order. What grew is in none that is not here. NULL only with *cnt == 0. */
const uint64_t *history__snapshots(const struct history *history, size_t *cnt);
/* NULL: it never came. */
const struct history_row *history__find(const struct history *history, uint16_t type, uint32_t pid, uint32_t kind,
					uint64_t name);

#endif
