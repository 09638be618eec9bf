/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The processes that -p gives to a command. */
#ifndef STEPFLAME_USER_CMD_PIDS_H
#define STEPFLAME_USER_CMD_PIDS_H

#include <argp.h>
#include <stddef.h>
#include <sys/types.h>

#define PIDS_MAX 256

struct pids {
	pid_t pid[PIDS_MAX];
	size_t cnt;
};

/* Adds the pids of "PID[,PID...]"; a usage error ends the program. */
void pids__parse(struct argp_state *state, struct pids *pids, const char *text);

#endif
