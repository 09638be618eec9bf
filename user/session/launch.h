/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A command that `record -- CMD` starts: it waits before exec until the probes' side is ready. */
#ifndef STEPFLAME_USER_SESSION_LAUNCH_H
#define STEPFLAME_USER_SESSION_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

struct launch {
	pid_t pid;  /* 0: none */
	int go;     /* a byte written to it lets the child exec; closed, the child gives up */
	int failed; /* the child's errno when exec fails */
	bool ended;
	int status; /* as wait(2) has it, when it has ended */
};

/*
 * Forks a child that will exec argv, in its own process group: a Ctrl-C on the terminal is for stepflame. 0 or -errno.
 */
int launch__fork(struct launch *c, char **argv);
/* Lets it exec. 0 or the -errno of exec; the child has then ended with 127 (not found) or 126, as under a shell. */
int launch__release(struct launch *c);
/* Gives up a child that was not released; the pipes are closed. */
void launch__close(struct launch *c);
/* Takes note of its end; waits for it when `wait`. */
void launch__reap(struct launch *c, bool wait);
/* Its exit status as a shell says it: 128 + signal for a signal. */
int launch__exit_code(const struct launch *c);

#endif
