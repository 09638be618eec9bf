/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How other commands talk to the one that watches: a request, one line of text, and its answer, one
 * JSON object, over a socket in its folder. Who may write to the socket may ask: the owner.
 */
#ifndef STEPFLAME_USER_WATCH_CONTROL_H
#define STEPFLAME_USER_WATCH_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CONTROL_NAME    "control"
#define CONTROL_CLIENTS 8           /* that are connected at the same time; more have to wait */
#define CONTROL_REQUEST 256         /* bytes, with the 0 */
#define CONTROL_ANSWER  (96 * 1024) /* bytes, at most */

struct control {
	char *path;
	int fd;                       /* -1: closed */
	int clients[CONTROL_CLIENTS]; /* -1: none */
};

/* Listens in that folder, whose lock the caller has. 0 or -errno. */
int control__open(struct control *control, const char *folder);
/*
 * Answers those who have asked; waits for nobody. answer: returns a new object, which may be NULL:
 * no memory.
 */
void control__serve(struct control *control, json_t *(*answer)(const char *request, void *ctx), void *ctx);
void control__close(struct control *control); /* also when it is all zeros but for fd -1 */

/*
 * Asks the one that watches with that folder. 0, and *answer, which the caller owns; or -errno:
 * -ENOENT, -ECONNREFUSED: nobody watches; -EACCES; -EPROTO: that is no answer; -ETIMEDOUT.
 */
int control__ask(const char *folder, const char *request, json_t **answer);

#endif
