/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which functions the session has emitted. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_SAMPLES_H
#define STEPFLAME_USER_SESSION_SOURCES_SAMPLES_H

#include "user/session/state.h"

/*
 * Does the sink have the lines of a function? The caller sets it on emitting them. *again: emitted before. NULL: no
 * memory.
 */
bool *samples__lined(struct session *s, uint64_t code, bool *again);

#endif
