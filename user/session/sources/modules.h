/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* torch.nn.Modules around operators: from their addresses to a path of names. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_MODULES_H
#define STEPFLAME_USER_SESSION_SOURCES_MODULES_H

#include "user/session/state.h"

struct modules; /* those that were met */

/*
 * Hands the sink a name with the record's id: "Net_0/Sequential_1/Linear_0", the outermost first, each by its class and
 * how many of that class were met in its process before it, as in torch.profiler's "nn.Module: Linear_0". *modules begins NULL. 0 or -errno.
 */
int modules__path(struct session *s, struct modules **modules, const struct rec_modules *rec);
void modules__free(struct modules *modules); /* accepts NULL */

#endif
