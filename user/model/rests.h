/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When processes were not recorded, so that they pay no more than their budget (takes REC_REST), or
 * since a merged recording lasts longer (REC_RECORDED); and what rests say of the cost of recording
 * them: REC_OVERHEAD. Part of the job (job.h): job__rests.
 */
#ifndef STEPFLAME_USER_MODEL_RESTS_H
#define STEPFLAME_USER_MODEL_RESTS_H

#include "include/resource_records.h"
#include "user/lib/map.h"

struct rests {
	struct array all;     /* struct rec_rest, in the order in which they began */
	struct map last;      /* by pid: struct last_rest */
	struct map overheads; /* by pid: struct process_overhead */
	struct map recorded;  /* by pid: struct process_recorded */
};

/* Takes one record; the caller has checked its size. 0, -EINVAL or -ENOMEM. */
int rests__add(struct rests *rests, const struct rec_hdr *record);
/* The last record of a process. NULL: it has no budget. */
const struct rec_rest *rests__last(const struct rests *rests, uint32_t pid);
/* NULL: nothing is known. */
const struct rec_overhead *rests__overhead(const struct rests *rests, uint32_t pid);
/* How long a process rested between two times, as far as the recording has its events. */
uint64_t rests__between(const struct rests *rests, uint32_t pid, uint64_t from_ns, uint64_t to_ns);
/* Narrows a time to that in which a process was recorded, as far as this is known. *to_ns is no less than *from_ns then. */
void rests__narrow(const struct rests *rests, uint32_t pid, uint64_t *from_ns, uint64_t *to_ns);
void rests__free(struct rests *rests);

#endif
