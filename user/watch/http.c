// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/http.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include "user/lib/clock.h"
#include "user/watch/tls.h"

#define TEXT   "text/plain; charset=utf-8"
#define FORMAT "text/plain; version=0.0.4; charset=utf-8"

/* One set of metrics, which answers that are on their way may still have. */
struct metrics_text {
	unsigned int users;
	size_t bytes;
	char text[];
};

struct server {
	int listener;
	const char *token;
	int channel;
	struct event_base *base;
	bool wants_tls;
	struct ssl_ctx_st *tls;            /* of new connections; NULL: none yet, or they have none */
	struct evhttp *http;               /* NULL: not yet */
	struct evhttp_bound_socket *bound; /* of http */
	struct metrics_text *metrics;      /* NULL: there are none */
	uint64_t heard_ns;                 /* CLOCK_MONOTONIC, of the last message */
};

/* ---- metrics ---- */

static void put_text(struct metrics_text *text)
{
	if (text && !--text->users)
		free(text);
}

static void release_text(const void *data, size_t bytes, void *text)
{
	put_text(text);
}

/* NULL: it cannot be read. */
static struct metrics_text *read_text(int fd)
{
	struct metrics_text *text;
	struct stat st;
	ssize_t got;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > HTTP_METRICS_BYTES)
		return NULL;
	text = malloc(sizeof(*text) + st.st_size);
	if (!text)
		return NULL;
	got = pread(fd, text->text, st.st_size, 0);
	*text = (struct metrics_text){.users = 1, .bytes = got > 0 ? got : 0};
	return text;
}

/*
 * Takes a message. Returns whether there was one: else the one that watches has ended. fds: the descriptors that came with it; -1: none did;
 * or this process had no room for one, under many clients.
 */
static bool receive(int channel, char *kind, int fds[HTTP_FDS])
{
	char control[CMSG_SPACE(sizeof(int) * HTTP_FDS)] __attribute__((aligned(8)));
	struct iovec data = {kind, 1};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
	const struct cmsghdr *part = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;

	for (int i = 0; i < HTTP_FDS; i++)
		fds[i] = -1;
	if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(part), part->cmsg_len - CMSG_LEN(0));
	return got > 0;
}

static int begin(struct server *server);

/* Connections that are there go on with the one of before. */
static const char *use_certificate(struct server *server, int chain_fd, int key_fd)
{
	static char chain[TLS_FILE_BYTES], key[TLS_FILE_BYTES];
	ssize_t chain_bytes = pread(chain_fd, chain, sizeof(chain), 0), key_bytes = pread(key_fd, key, sizeof(key), 0);
	struct ssl_ctx_st *context = NULL;
	const char *why = "the files cannot be read";

	if (chain_bytes >= 0 && key_bytes >= 0)
		context = tls__context(chain, chain_bytes, key, key_bytes, &why);
	explicit_bzero(key, sizeof(key));
	if (!context)
		return why;
	tls__free(server->tls);
	server->tls = context;
	return server->http || !begin(server) ? "" : "no memory";
}

static void take_certificate(struct server *server, const int fds[HTTP_FDS])
{
	char why[HTTP_WHY];

	snprintf(why, sizeof(why), "%s", use_certificate(server, fds[0], fds[1]));
	/* Its end is seen by the next message. */
	(void)!send(server->channel, why, strlen(why) + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_message(evutil_socket_t channel, short what, void *ctx)
{
	struct server *server = ctx;
	struct metrics_text *text;
	int fds[HTTP_FDS];
	char kind;

	if (!receive(channel, &kind, fds)) {
		event_base_loopbreak(server->base);
		return;
	}
	server->heard_ns = clock__ns(CLOCK_MONOTONIC);
	text = kind == HTTP_METRICS && fds[0] >= 0 ? read_text(fds[0]) : NULL;
	if (kind == HTTP_TLS && server->wants_tls)
		take_certificate(server, fds);
	for (int i = 0; i < HTTP_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (kind == HTTP_TLS)
		return;
	if (!text && kind == HTTP_METRICS) /* those of before are still better than none */
		return;
	put_text(server->metrics);
	server->metrics = text;
}

/* ---- answers ---- */

/* Takes as long for any other token of that length. */
static bool is_token(const char *said, const char *token)
{
	size_t bytes = strlen(token);
	unsigned char differs = 0;

	if (strlen(said) != bytes)
		return false;
	for (size_t i = 0; i < bytes; i++)
		differs |= said[i] ^ token[i];
	return !differs;
}

static bool may_read(const struct server *server, struct evhttp_request *request)
{
	static const char bearer[] = "Bearer ";
	const char *said = evhttp_find_header(evhttp_request_get_input_headers(request), "Authorization");

	if (!server->token)
		return true;
	return said && !strncasecmp(said, bearer, strlen(bearer)) && is_token(said + strlen(bearer), server->token);
}

static void add_header(struct evhttp_request *request, const char *name, const char *value)
{
	evhttp_add_header(evhttp_request_get_output_headers(request), name, value);
}

/* One request a connection. */
static void answer(struct evhttp_request *request, int status, const char *type, struct evbuffer *body)
{
	add_header(request, "Content-Type", type);
	add_header(request, "Connection", "close");
	add_header(request, "Cache-Control", "no-store");
	evhttp_send_reply(request, status, NULL, body);
}

static void say(struct evhttp_request *request, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	if (body)
		evbuffer_add_printf(body, "%s\n", text);
	answer(request, status, TEXT, body);
	if (body)
		evbuffer_free(body);
}

static void send_metrics(struct server *server, struct evhttp_request *request)
{
	struct metrics_text *text = server->metrics;
	struct evbuffer *body = text ? evbuffer_new() : NULL;

	if (!body) {
		say(request, HTTP_SERVUNAVAIL, "stepflame watch has no metrics: it begins, or is paused");
		return;
	}
	if (evbuffer_add_reference(body, text->text, text->bytes, release_text, text)) {
		say(request, HTTP_INTERNAL, "no memory");
	} else {
		text->users++;
		answer(request, HTTP_OK, FORMAT, body);
	}
	evbuffer_free(body);
}

static void send_health(const struct server *server, struct evhttp_request *request)
{
	uint64_t silent_s = (clock__ns(CLOCK_MONOTONIC) - server->heard_ns) / 1000000000;
	char text[80];

	if (silent_s < HTTP_ALIVE_S) {
		say(request, HTTP_OK, "ok");
		return;
	}
	snprintf(text, sizeof(text), "stepflame watch has said nothing for %" PRIu64 " s", silent_s);
	say(request, HTTP_SERVUNAVAIL, text);
}

static void take_request(struct evhttp_request *request, void *ctx)
{
	const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
	const char *path = (uri ? evhttp_uri_get_path(uri) : NULL) ?: "";
	struct server *server = ctx;

	if (evhttp_request_get_command(request) != EVHTTP_REQ_GET) {
		add_header(request, "Allow", "GET");
		say(request, HTTP_BADMETHOD, "only GET");
	} else if (!strcmp(path, "/healthz") || !strcmp(path, "/-/healthy")) {
		send_health(server, request);
	} else if (strcmp(path, "/metrics")) {
		say(request, HTTP_NOTFOUND, "there is /metrics and /healthz");
	} else if (!may_read(server, request)) {
		add_header(request, "WWW-Authenticate", "Bearer");
		say(request, 401, "it wants the token: Authorization: Bearer TOKEN");
	} else {
		send_metrics(server, request);
	}
}

/* ---- connections ---- */

/* accept(2) failed: this process has as many descriptors as it may. */
static void wait_for_room(struct evconnlistener *listener, void *ctx)
{
	evconnlistener_disable(listener);
}

static struct bufferevent *open_connection(struct event_base *base, void *ctx)
{
	const struct server *server = ctx;

	return tls__accept(base, server->tls);
}

static int begin(struct server *server)
{
	const int methods = EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
			    EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH;
	int listener;

	server->http = evhttp_new(server->base);
	if (!server->http)
		return -ENOMEM;
	evhttp_set_max_headers_size(server->http, HTTP_REQUEST_BYTES);
	evhttp_set_max_body_size(server->http, HTTP_REQUEST_BYTES);
	evhttp_set_timeout(server->http, HTTP_PATIENCE_S);
	evhttp_set_allowed_methods(server->http, methods);
	evhttp_set_gencb(server->http, take_request, server);
	if (server->tls)
		evhttp_set_bevcb(server->http, open_connection, server);
	listener = dup(server->listener); /* which it closes */
	server->bound = listener >= 0 ? evhttp_accept_socket_with_handle(server->http, listener) : NULL;
	if (!server->bound)
		return -ENOMEM;
	evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(server->bound), wait_for_room);
	return 0;
}

/*
 * Comes once a second. When there is no room for another connection, all that have one, or wait for it, lose it: so slow clients, however
 * many, keep nobody out for more than a second or two.
 */
static void make_room(evutil_socket_t none, short what, void *ctx)
{
	struct server *server = ctx;
	int fd = server->http ? dup(server->listener) : -1;

	if (!server->http)
		return;
	if (fd >= 0) {
		close(fd);
		evconnlistener_enable(evhttp_bound_socket_get_listener(server->bound));
		return;
	}
	evhttp_free(server->http);
	for (int i = 0; i < HTTP_WAITING && (fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; i++)
		close(fd);
	if (begin(server))
		event_base_loopbreak(server->base);
}

/* Of clients, who may have sent anything. */
static void say_nothing(int severity, const char *text)
{
}

int http__serve(int listener, int channel, const char *token, bool tls)
{
	const struct timeval second = {.tv_sec = 1};
	struct server server = {
		.listener = listener, .channel = channel, .token = token, .wants_tls = tls, .base = event_base_new()};
	struct event *message = NULL, *room = NULL;
	int err = -ENOMEM;

	event_set_log_callback(say_nothing);
	server.heard_ns = clock__ns(CLOCK_MONOTONIC);
	if (server.base) {
		message = event_new(server.base, channel, EV_READ | EV_PERSIST, take_message, &server);
		room = event_new(server.base, -1, EV_PERSIST, make_room, &server);
	}
	if (message && room && !event_add(message, NULL) && !event_add(room, &second) && (tls || !begin(&server))) {
		event_base_dispatch(server.base);
		err = 0;
	}
	if (server.http)
		evhttp_free(server.http);
	if (message)
		event_free(message);
	if (room)
		event_free(room);
	if (server.base)
		event_base_free(server.base);
	put_text(server.metrics);
	tls__free(server.tls);
	return err;
}
