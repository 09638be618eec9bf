/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Aggregates the REC_AGG table into rows. The job (job.h) owns it and exposes the rows through
 * job__actions.
 */
#ifndef STEPFLAME_USER_MODEL_ACTIONS_H
#define STEPFLAME_USER_MODEL_ACTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/lib/map.h"

struct names;

/* One row: all calls of one name in one process, summed over the enclosing actions. */
struct job_action {
	const char *name; /* UTF-8, control characters unchanged; owned by the job */
	uint64_t name_id;
	uint32_t pid;
	enum span_kind kind;
	struct agg_val val;      /* with its histogram; summed over the enclosing actions */
	const uint64_t *parents; /* name ids of the enclosing actions; owned by the job */
	size_t parent_cnt;
};

/* Adds val to sum. A sum is empty while sum->calls is 0. */
void job__add_val(struct agg_val *sum, const struct agg_val *val);

/* All zeros: empty. */
struct actions {
	struct map aggs;      /* struct agg, see actions.c */
	struct array rows;    /* struct job_action, valid while !stale */
	struct array parents; /* uint64_t, the parents of all rows back to back */
	bool stale;           /* records came since the rows were built; the job sets it */
};

void actions__free(struct actions *actions);
/* Takes a REC_AGG of at least its struct's size. 0, -EINVAL for an invalid record, -ENOMEM. */
int actions__add(struct actions *actions, const struct rec_hdr *record);
/* See job__actions. */
const struct job_action *actions__rows(struct actions *actions, struct names *names, size_t *cnt);

#endif
