/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of a recording that is about some processes and those that they have started: a recording
 * of several jobs becomes one of a single job. In: its records, twice. Out: which of them to take.
 */
#ifndef STEPFLAME_USER_RECORDING_PART_H
#define STEPFLAME_USER_RECORDING_PART_H

#include <stdbool.h>
#include <stddef.h>

#include "include/records.h"
#include "user/lib/intern.h"

/* All zeros: of no process. */
struct recording_part {
	struct intern pids;
};

/* Adds a process. 0 or -ENOMEM. */
int recording_part__add(struct recording_part *part, uint32_t pid);
/* First time: looks for processes that those of the part have started. 0 or -ENOMEM. */
int recording_part__look(struct recording_part *part, const struct rec_hdr *record);
/* Second time: is it about a process of the part, or about none, such as a name? */
bool recording_part__has(const struct recording_part *part, const struct rec_hdr *record);
void recording_part__free(struct recording_part *part);

#endif
