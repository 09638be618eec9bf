/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What processes used: takes REC_RESOURCES, and returns them in order. Part of the job (job.h), which
 * owns it: job__resources.
 */
#ifndef STEPFLAME_USER_MODEL_RESOURCES_H
#define STEPFLAME_USER_MODEL_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include "include/resource_records.h"
#include "user/lib/array.h"

struct resources {
	struct array samples; /* struct rec_resources */
	bool sorted;
};

/* Takes one record; the caller has checked its size. 0 or -ENOMEM. */
int resources__add(struct resources *resources, const struct rec_resources *record);
/* Sorted by pid and time; valid until the next record. NULL only with *cnt == 0. */
const struct rec_resources *resources__samples(struct resources *resources, size_t *cnt);
void resources__free(struct resources *resources);

#endif
