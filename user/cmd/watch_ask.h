/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* watch status, pause, resume and trigger: asks the stepflame that watches with a folder, and prints what it answers. */
#ifndef STEPFLAME_USER_CMD_WATCH_ASK_H
#define STEPFLAME_USER_CMD_WATCH_ASK_H

#include <stdbool.h>

/* job: of trigger; NULL: the only one. 0, or -errno after a message. */
int watch_ask(const char *state, const char *verb, const char *job, bool json);

#endif
