/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What processes and their machines used: takes REC_RESOURCES, REC_MACHINE, REC_THROTTLE, REC_COPIED,
 * REC_LIMITS, REC_SHORTAGE and REC_JOB, and returns them in order. Part of the job (job.h), which owns it: job__resources.
 * Pointers are valid until the next record.
 */
#ifndef STEPFLAME_USER_MODEL_RESOURCES_H
#define STEPFLAME_USER_MODEL_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include "include/resource_records.h"
#include "user/lib/map.h"

struct resources {
	struct array samples;   /* struct rec_resources */
	struct array machines;  /* struct rec_machine */
	struct array throttles; /* struct rec_throttle */
	struct array copies;    /* struct rec_copied */
	struct map last;        /* REC_LIMITS, REC_SHORTAGE and REC_JOB by pid */
	bool sorted;
};

/* Takes one record; the caller has checked its size. 0 or -ENOMEM. */
int resources__add(struct resources *resources, const struct rec_hdr *record);
/* Sorted by pid and time. NULL only with *cnt == 0. */
const struct rec_resources *resources__samples(struct resources *resources, size_t *cnt);
const struct rec_machine *resources__machines(struct resources *resources, size_t *cnt);
/* Sorted by pid, group and time. */
const struct rec_throttle *resources__throttles(struct resources *resources, size_t *cnt);
/* Sorted by pid and time. */
const struct rec_copied *resources__copies(struct resources *resources, size_t *cnt);
/* NULL: not known. */
const struct rec_limits *resources__limits(const struct resources *resources, uint32_t pid);
/* What was short when it ended. NULL: nothing that is known. */
const struct rec_shortage *resources__shortage(const struct resources *resources, uint32_t pid);
/* Which job it is of. NULL: not known. */
const struct rec_job *resources__job(const struct resources *resources, uint32_t pid);
/* Drops the samples. */
void resources__forget(struct resources *resources);
void resources__free(struct resources *resources);

#endif
