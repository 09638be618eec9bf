/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers scrapers over HTTP, in a process of its own that has no rights: /metrics, and /healthz. In: messages of the one that
 * watches, each with the file of its metrics. What clients do costs that one nothing.
 */
#ifndef STEPFLAME_USER_WATCH_HTTP_H
#define STEPFLAME_USER_WATCH_HTTP_H

#define HTTP_CLIENTS       50   /* connections at the same time; when there are more, all are closed */
#define HTTP_WAITING       1024 /* that the kernel keeps until they are accepted */
#define HTTP_REQUEST_BYTES 4096
#define HTTP_PATIENCE_S    5       /* for a client that sends or takes nothing */
#define HTTP_METRICS_BYTES 4000000 /* of a file; a larger one is no metrics of ours */
#define HTTP_ALIVE_S       60      /* /healthz says so after the last message */

/* A message of one byte. */
#define HTTP_NO_METRICS 0
#define HTTP_METRICS    1 /* with the descriptor of a file */

/*
 * Serves until the other end of `channel` (SOCK_SEQPACKET) is closed. listener: a socket that listens and does not block. token: that a client has to know; NULL: none.
 * 0, or -ENOMEM if it could not begin.
 */
int http__serve(int listener, int channel, const char *token);

#endif
