/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How many child processes and workers there were, in a memory that does not grow with their
 * number. Part of the job (job.h), which owns it.
 */
#ifndef STEPFLAME_USER_MODEL_CHILDREN_H
#define STEPFLAME_USER_MODEL_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

/* All zeros: empty, and takes none. */
struct children {
	uint8_t *roles;              /* two bits a pid: 0 unknown, or its role + 1; NULL: takes none */
	size_t cnt[ROLE_WORKER + 1]; /* by role, those too whose pid others have now */
};

/* Makes it take children. 0 or -ENOMEM. */
int children__init(struct children *children);
/* Notes the last role of a pid. false if it takes none, or this is no pid of Linux: the caller has to keep it. */
bool children__set(struct children *children, uint32_t pid, enum target_role role);
/* The pid is now that of another process: the one before it stays in cnt. */
void children__again(struct children *children, uint32_t pid);
/* The pid is that of none of them. */
void children__unset(struct children *children, uint32_t pid);
void children__free(struct children *children);

#endif
