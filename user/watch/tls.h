/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TLS for the server of user/watch/http.h, by libevent and OpenSSL. These are loaded when somebody wants TLS: other commands start 2 ms
 * sooner without.
 */
#ifndef STEPFLAME_USER_WATCH_TLS_H
#define STEPFLAME_USER_WATCH_TLS_H

#include <stddef.h>

#define TLS_FILE_BYTES (64 << 10)

struct bufferevent;
struct event_base;
struct ssl_ctx_st;

/* 0, or -ENOENT: *why says what cannot be loaded; valid until the next call. Once is enough, also for a child. */
int tls__load(const char **why);
/* A certificate with those above it, and its key, both PEM. NULL: *why says why not. Needs tls__load. */
struct ssl_ctx_st *tls__context(const char *chain, size_t chain_bytes, const char *key, size_t key_bytes,
				const char **why);
void tls__free(struct ssl_ctx_st *context); /* accepts NULL; connections keep what they use */
/* What a connection of evhttp reads and writes with. NULL: no memory. */
struct bufferevent *tls__accept(struct event_base *base, struct ssl_ctx_st *context);

#endif
