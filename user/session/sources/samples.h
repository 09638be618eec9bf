/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which functions the sink has been told of. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_SAMPLES_H
#define STEPFLAME_USER_SESSION_SOURCES_SAMPLES_H

#include "user/session/state.h"

/* Has the sink the lines of that function? Set when it is sent them. *again: it knows it. NULL: no memory. */
bool *samples__lined(struct session *s, uint64_t code, bool *again);

#endif
