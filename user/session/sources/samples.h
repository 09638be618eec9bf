/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which functions the session has emitted. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_SAMPLES_H
#define STEPFLAME_USER_SESSION_SOURCES_SAMPLES_H

#include "user/session/state.h"

/*
 * Returns the flag that says whether the sink has the lines of function `code`; the caller sets it
 * when it emits them. *again: the function was emitted before. NULL: out of memory. Valid until the
 * next call.
 */
bool *samples__lines_emitted(struct session *s, uint64_t code, bool *again);

#endif
