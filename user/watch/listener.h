/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The address at which scrapers get the metrics. A child of this process answers them over HTTP (/metrics, and /healthz), as nobody and
 * without capabilities; it is started again if it ends. What clients do costs the one that watches nothing.
 */
#ifndef STEPFLAME_USER_WATCH_LISTENER_H
#define STEPFLAME_USER_WATCH_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define LISTENER_TOKEN_MAX 256

struct listener_options {
	const char *address;              /* NULL: nobody may ask */
	const char *token_file;           /* that has what they have to say; NULL: nothing */
	const char *cert_file, *key_file; /* PEM; NULL: no TLS. What takes their place is used within seconds. */
	bool cleartext;                   /* an address beyond this host may do without */
};

/* Which file it was when it was read last. */
struct listener_stamp {
	uint64_t device, inode, bytes;
	int64_t changed_ns;
};

struct listener {
	struct listener_options options;
	struct listener_stamp cert, key;
	int channel; /* to the child */
	pid_t child;
	uint64_t started_ns;
	char token[LISTENER_TOKEN_MAX + 1]; /* "": none */
};

/* Is that "ADDRESS:PORT" with an address in digits, "127.0.0.1:9465" or "[::1]:9465"? */
bool listener__is_address(const char *text);
/*
 * Listens there, and starts the child. Only an address of this host's own (127.0.0.1) may do without a token; it and `cleartext` without
 * TLS. The options' texts stay the caller's. 0, or -errno after a message.
 */
int listener__open(struct listener *listener, const struct listener_options *options);
/* Hands the metrics to the child; path: their file; NULL: there are none. Waits for nobody. */
void listener__tell(struct listener *listener, const char *path, uint64_t now_ns);
void listener__close(struct listener *listener); /* also when it is all zeros */

#define HTTP_CLIENTS       50      /* connections at the same time; when there are more, all are closed */
#define HTTP_METRICS_BYTES 4000000 /* of a file; a larger one is no metrics of ours */

#endif
