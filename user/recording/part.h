/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of a recording that is about some processes and those that they have started: a recording
 * of several jobs becomes one of a single job. In: its records, several times. Out: which of them to
 * take, at one more reading.
 */
#ifndef STEPFLAME_USER_RECORDING_PART_H
#define STEPFLAME_USER_RECORDING_PART_H

#include <stdbool.h>
#include <stddef.h>

#include "include/records.h"
#include "user/lib/map.h"

/* All zeros: of no process. */
struct recording_part {
	struct intern pids;
	struct intern ids; /* of names, stacks and the like, to which records of the part refer */
	bool needs_all;    /* some of the ids are not known */
	int reading;       /* 1, 2, ... */
	size_t id_cnt;     /* when the reading began */
};

/* Adds a process. 0 or -ENOMEM. */
int recording_part__add(struct recording_part *part, uint32_t pid);
/*
 * Must all records be read again, each to be passed to recording_part__scan? The first reading finds
 * the processes, the next what their records refer to, and the others what that refers to: a stack
 * to functions, these to names.
 */
bool recording_part__needs_reading(struct recording_part *part);
/* 0 or -ENOMEM. */
int recording_part__scan(struct recording_part *part, const struct rec_hdr *record);
/* Is it about a process of the part, or referred to by such a record, or about no process? */
bool recording_part__has(const struct recording_part *part, const struct rec_hdr *record);
void recording_part__free(struct recording_part *part);

#endif
