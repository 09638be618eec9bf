/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers scrapers over HTTP, in a process of its own that has no rights: /metrics, and /healthz. In: messages of the one that
 * watches, each with the file of its metrics. What clients do costs that one nothing.
 */
#ifndef STEPFLAME_USER_WATCH_HTTP_H
#define STEPFLAME_USER_WATCH_HTTP_H

#include <stdbool.h>

#define HTTP_CLIENTS       50   /* connections at the same time; when there are more, all are closed */
#define HTTP_WAITING       1024 /* that the kernel keeps until they are accepted */
#define HTTP_REQUEST_BYTES 4096
#define HTTP_PATIENCE_S    5       /* for a client that sends or takes nothing */
#define HTTP_METRICS_BYTES 4000000 /* of a file; a larger one is no metrics of ours */
#define HTTP_ALIVE_S       60      /* /healthz says so after the last message */

/* A message of one byte. */
#define HTTP_NO_METRICS 0
#define HTTP_METRICS    1 /* with the descriptor of a file */
#define HTTP_TLS        2 /* with those of the files of a certificate and its key, which new connections get */
#define HTTP_FDS        2 /* at most */

/* The answer to HTTP_TLS: empty, or why it goes on with the ones of before. */
#define HTTP_WHY 256

/*
 * Serves until the other end of `channel` (SOCK_SEQPACKET) is closed. listener: a socket that listens and does not block. token: that a client has to know; NULL: none.
 * tls: it begins with the first certificate that is usable; tls__load has been called. 0, or -ENOMEM if it could not begin.
 */
int http__serve(int listener, int channel, const char *token, bool tls);

#endif
