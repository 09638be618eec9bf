/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the cumulative rows of actions and operators grew from snapshot to snapshot: takes all
 * records of a recording in their order, and returns each row's growth per snapshot. A job (job.h)
 * keeps only the last snapshot.
 */
#ifndef STEPFLAME_USER_ANALYSIS_COMPARE_HISTORY_H
#define STEPFLAME_USER_ANALYSIS_COMPARE_HISTORY_H

#include <stdint.h>

#include "include/records.h"
#include "user/lib/array.h"

struct history;

/* How much a row grew. */
struct growth {
	uint32_t snapshot; /* the snapshot that recorded it: an index into history__snapshots */
	uint64_t ns;       /* total time of an action, self time of an operator */
	uint64_t calls;
};

struct history_row {
	struct history_key {
		uint64_t type;     /* REC_AGG or REC_OP */
		struct op_key row; /* also for actions; fields are 0 that the row sums over */
	} key;
	struct array growths; /* struct growth, by snapshot */
};

struct history *history__new(void);          /* NULL: no memory */
void history__free(struct history *history); /* accepts NULL */
/* Takes one record. 0 or -ENOMEM. */
int history__add(struct history *history, const struct rec_hdr *record);

/*
 * uint64_t: the time of each snapshot, in order. All growths refer to these. NULL only with *cnt ==
 * 0.
 */
const uint64_t *history__snapshots(const struct history *history, size_t *cnt);
/* NULL: the row never came. */
const struct history_row *history__find(const struct history *history, uint16_t type, uint32_t pid, uint32_t kind,
					uint64_t name);

#endif
