/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How processes ended, by pid. Part of the job (job.h), which owns it. */
#ifndef STEPFLAME_USER_MODEL_EXITS_H
#define STEPFLAME_USER_MODEL_EXITS_H

#include <stdbool.h>

#include "include/records.h"
#include "user/lib/map.h"

/* All zeros: empty. */
struct exits {
	struct map by_pid; /* struct exit, see exits.c */
};

/* Takes a REC_PROC; the caller has checked its size. 0 or -ENOMEM. */
int exits__add(struct exits *exits, const struct rec_proc *record);
/* Another process has begun with that pid: true if one had ended with it, which is no longer found. */
bool exits__forget(struct exits *exits, __u32 pid);
/* The last process with that pid, valid until the next record; NULL: no such process. */
const struct rec_proc *exits__find(const struct exits *exits, __u32 pid);
void exits__free(struct exits *exits);

#endif
