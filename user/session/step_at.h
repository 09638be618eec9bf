/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* --step-at NAME: each end of a span of that name is a step boundary. */
#ifndef STEPFLAME_USER_SESSION_STEP_AT_H
#define STEPFLAME_USER_SESSION_STEP_AT_H

#include "user/session/state.h"

struct program_knobs;

/* What the BPF side compares with. Before the programs are loaded. */
void step_at__set_knobs(const struct session *s, struct program_knobs *knobs);

/*
 * At the end: 0, or -ENOENT after a message, and a note for the report, with names that were seen: that one was not.
 */
int step_at__end(struct session *s);

#endif
