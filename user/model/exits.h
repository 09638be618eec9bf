/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How processes ended, by their numbers. Part of the job (job.h), which owns it. */
#ifndef STEPFLAME_USER_MODEL_EXITS_H
#define STEPFLAME_USER_MODEL_EXITS_H

#include "include/records.h"
#include "user/lib/map.h"

/* Empty: all 0. */
struct exits {
	struct map by_pid; /* struct exit, see exits.c */
};

/* Takes a REC_PROC, whose size holds its struct. 0 or -ENOMEM. */
int exits__add(struct exits *exits, const struct rec_proc *record);
/* The last of that number, valid until the next record; NULL: none. */
const struct rec_proc *exits__find(const struct exits *exits, __u32 pid);
void exits__free(struct exits *exits);

#endif
