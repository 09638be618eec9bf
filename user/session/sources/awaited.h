/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_SESSION_SOURCES_AWAITED_H
#define STEPFLAME_USER_SESSION_SOURCES_AWAITED_H

#include "user/session/state.h"

/* Takes a sample that is about to be emitted: its thread may wait there again. */
void awaited__note(struct session *s, const struct rec_sample *sample);

#endif
