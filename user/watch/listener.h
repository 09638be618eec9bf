/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The address at which scrapers get the metrics. A child of this process answers them (user/watch/http.h), as nobody and without
 * capabilities; it is started again if it ends.
 */
#ifndef STEPFLAME_USER_WATCH_LISTENER_H
#define STEPFLAME_USER_WATCH_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define LISTENER_TOKEN_MIN 16 /* characters */
#define LISTENER_TOKEN_MAX 256

struct listener {
	const char *address; /* NULL: nobody may ask */
	int channel;         /* to the child */
	pid_t child;
	uint64_t started_ns;
	char token[LISTENER_TOKEN_MAX + 1]; /* "": none */
};

/* Is that "ADDRESS:PORT" with an address in digits, "127.0.0.1:9465" or "[::1]:9465"? */
bool listener__is_address(const char *text);
/*
 * Listens there, and starts the child. address: as above, or NULL: does nothing. token_file: NULL: none, which only an address of this
 * host's own (127.0.0.1) may have. 0, or -errno after a message.
 */
int listener__open(struct listener *listener, const char *address, const char *token_file);
/* Hands the metrics to the child; path: their file; NULL: there are none. Waits for nobody. */
void listener__tell(struct listener *listener, const char *path, uint64_t now_ns);
void listener__close(struct listener *listener); /* also when it is all zeros */

#endif
