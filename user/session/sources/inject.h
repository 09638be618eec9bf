/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * record --inject: loads the injection library into a running process. Announces that first, and
 * refuses where the library may do harm or is of no use.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_INJECT_H
#define STEPFLAME_USER_SESSION_SOURCES_INJECT_H

#include <limits.h>

#include "user/proc/remote_load.h"

struct session;

/* 0: the process has the library, perhaps since before; or -errno after a message. */
int inject__into(struct session *s, const struct process *process);

/* Runs remote__load in a child process, which finishes its work even if stepflame is killed. */
int inject__load(const struct process *process, const char *library, const char *entry, struct remote_load *out);

/*
 * Finds stepflame's copy of the library: STEPFLAME_INJECT, beside this program, or in
 * ../lib/stepflame. 0 or -errno.
 */
int inject__own_library(char path[PATH_MAX]);

#endif
