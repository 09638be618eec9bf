/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The command of `record -- CMD`, which waits before exec until the session can attach probes. */
#ifndef STEPFLAME_USER_SESSION_LAUNCH_H
#define STEPFLAME_USER_SESSION_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

struct launch {
	pid_t pid;  /* 0: no child */
	int go;     /* one byte lets the child exec; when it closes, the child gives up */
	int failed; /* the child's errno when exec fails */
	bool ended;
	int status; /* as from wait(2), once `ended` */
};

/* Whom a command runs as: with the groups of that user, and HOME, USER and LOGNAME. */
struct launch_user {
	bool other; /* than stepflame's; false: the rest is not set */
	uid_t uid;
	gid_t gid;
	char *name, *home; /* NULL: not known, for a number without a name */
};

/*
 * Finds a user by name or number. NULL: behind sudo the one who called it, else none other. 0, or
 * -errno after a message. Release *out.
 */
int launch_user__find(const char *user, struct launch_user *out);
void launch_user__release(struct launch_user *user);

/*
 * Forks a child that will exec argv as `user`, in its own process group, so that Ctrl-C reaches
 * only stepflame. 0 or -errno.
 */
int launch__fork(struct launch *c, char **argv, const struct launch_user *user);
/*
 * Lets the child exec. 0 or the -errno of exec; the child then ends with 127 (not found) or 126, as
 * in a shell.
 */
int launch__release(struct launch *c);
/* Closes the pipes; a child that was not released gives up. */
void launch__close(struct launch *c);
/* Records the child's end in *c; waits for the end when `wait`. */
void launch__reap(struct launch *c, bool wait);
/* The child's exit code as a shell reports it: 128 + signal for a signal. */
int launch__exit_code(const struct launch *c);

#endif
