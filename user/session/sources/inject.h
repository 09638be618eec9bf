/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * record --inject: the injection library is brought into a process that runs already. Said before it is done, and not done
 * where it may do harm, or is of no use.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_INJECT_H
#define STEPFLAME_USER_SESSION_SOURCES_INJECT_H

#include "user/proc/remote_load.h"
#include "user/session/state.h"

/* 0 (it is there, perhaps since before), or -errno after a message. */
int inject__into(struct session *s, const struct process *process);

/* remote__load in a process of its own, which ends what it has begun when stepflame is killed. */
int inject__load(const struct process *process, const char *library, const char *entry, struct remote_load *out);

#endif
