/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* watch status, pause, resume and trigger: asks the stepflame that watches with a folder, and prints what it answers. */
#ifndef STEPFLAME_USER_CMD_WATCH_ASK_H
#define STEPFLAME_USER_CMD_WATCH_ASK_H

#include <limits.h>
#include <stdbool.h>

struct watch_question {
	const char *state;              /* the folder */
	char state_from[PATH_MAX + 16]; /* for commands that are shown: "", or " --state FOLDER", " --config FILE" */
	const char *verb, *job;         /* job: NULL: all; of trigger: the only one */
	bool json;
};

/* 0, or -errno after a message. */
int watch_ask(const struct watch_question *question);

#endif
