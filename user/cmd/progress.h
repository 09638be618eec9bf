/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How far a recording is, on stderr: on a terminal a line that changes, elsewhere a new line every
 * ten seconds, for logs.
 */
#ifndef STEPFLAME_USER_CMD_PROGRESS_H
#define STEPFLAME_USER_CMD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "user/session/session.h"

struct progress {
	uint64_t duration_ns; /* after which the recording ends; 0: unknown */
	uint64_t next_ns;     /* when the next line is due */
	bool shown;           /* there is a line to clear */
};

void progress__show(struct progress *progress, const struct session_progress *now);
/* Ends it: on a terminal, nothing of it stays. */
void progress__clear(struct progress *progress);

/* Writes "12.3 s", "5 min 2 s" or "3 h 20 min". Returns text. */
const char *progress__time(uint64_t ns, char text[32]);

#endif
