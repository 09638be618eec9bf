/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns the addresses of the torch.nn.Modules around an operator into a path of names. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_MODULES_H
#define STEPFLAME_USER_SESSION_SOURCES_MODULES_H

#include "user/session/state.h"

struct modules; /* all modules seen so far */

/*
 * Emits a name with the record's id: "Net_0/Sequential_1/Linear_0", the outermost first. Each part
 * is a class and the number of earlier modules of that class in the process, as in torch.profiler's
 * "nn.Module: Linear_0". *modules begins NULL. 0 or -errno.
 */
int modules__path(struct session *s, struct modules **modules, const struct rec_modules *rec);
void modules__free(struct modules *modules); /* accepts NULL */

#endif
