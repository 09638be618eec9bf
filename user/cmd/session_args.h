/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Options that commands with a session share. A usage error ends the program. */
#ifndef STEPFLAME_USER_CMD_SESSION_ARGS_H
#define STEPFLAME_USER_CMD_SESSION_ARGS_H

#include <argp.h>

#include "user/analysis/live/trigger.h"
#include "user/session/session.h"

#define ACTIONS_MAX 63

#define BUDGET_HELP                                                                                              \
	"let each process pay at most PERCENT of its time, such as 0.5: one that would pay more is recorded in " \
	"windows of some seconds, and has no samples and one probe in between (default: any)"

#define FREQUENCY 99 /* not a round number, so that samples do not fall in step with periodic work */

/* Parses "10s", "10", "500ms", "2m" or "1h". Returns ns, never 0. */
uint64_t session_args__time(struct argp_state *state, const char *text);
/* Parses "500M" or "2G". Returns bytes, never 0. */
uint64_t session_args__size(struct argp_state *state, const char *text);
/* Adds one --action to actions, which has room for ACTIONS_MAX and is options->actions. */
void session_args__action(struct argp_state *state, struct session_options *options, const char **actions,
			  const char *text);
/* Parses "1" or "0.5%" of --budget. Returns a share, above 0. */
double session_args__budget(struct argp_state *state, const char *text);
uint32_t session_args__frequency(struct argp_state *state, const char *text);
enum session_gpu session_args__gpu(struct argp_state *state, const char *text);
enum session_children session_args__children(struct argp_state *state, const char *text);

/* ---- the options that name events: --until of record, which ends at one, and --trigger of watch (trigger.h) ---- */

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
