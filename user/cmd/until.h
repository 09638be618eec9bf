/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The options that name events: --until of record, which ends at one, and --trigger of watch (trigger.h). */
#ifndef STEPFLAME_USER_CMD_UNTIL_H
#define STEPFLAME_USER_CMD_UNTIL_H

#include <argp.h>

#include "user/analysis/live/trigger.h"
#include "user/session/session.h"

/*
 * Parses "slow", "stall", one of them with "=TIME", "slower" or "straggler", one of these with "=PERCENT", or "end". option: its name. A usage error ends
 * the program.
 */
void until__option(struct argp_state *state, struct trigger_options *options, const char *option, const char *text);
bool until__given(const struct trigger_options *options);
/* How often the session must take snapshots: often enough to see stalls, and to have some in what --last keeps; 0: any. */
uint64_t until__snapshot_ns(const struct trigger_options *options, uint64_t last_ns);
/* Says on stderr, and in the recording, what has ended it, or that it was something else. */
void until__say(const struct trigger_event *event, struct session *session);

#endif
