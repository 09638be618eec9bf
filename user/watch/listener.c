// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/watch/network.h"

#define LISTENER_TOKEN_MIN 16   /* characters */
#define HTTP_WAITING       1024 /* that the kernel keeps until they are accepted */
#define HTTP_REQUEST_BYTES 4096
#define HTTP_PATIENCE_S    5  /* for a client that sends or takes nothing */
#define HTTP_ALIVE_S       60 /* after the last message there are no metrics, and /healthz says so */

/* A message of one byte. */
#define HTTP_NO_METRICS 0
#define HTTP_METRICS    1 /* with the descriptor of a file */
#define HTTP_TLS        2 /* with those of the files of a certificate and its key, which new connections get */
#define HTTP_FDS        2 /* at most */

/* The answer to HTTP_TLS: empty, or why it goes on with the ones of before. */
#define HTTP_WHY 256

/* ---- TLS, by libevent and OpenSSL, which are loaded when somebody wants it: other commands start 2 ms sooner without ---- */

#define TLS_FILE_BYTES (64 << 10)
#define LIBRARY        "libevent_openssl-2.1.so.7" /* which has loaded OpenSSL, as it was built with it */
#define CHAIN_MAX      10                          /* certificates above the own one */

#define FUNCTIONS(X)                      \
	X(TLS_server_method)              \
	X(SSL_CTX_new)                    \
	X(SSL_CTX_free)                   \
	X(SSL_CTX_ctrl)                   \
	X(SSL_CTX_set_options)            \
	X(SSL_CTX_use_certificate)        \
	X(SSL_CTX_use_PrivateKey)         \
	X(SSL_CTX_check_private_key)      \
	X(SSL_new)                        \
	X(SSL_free)                       \
	X(BIO_new_mem_buf)                \
	X(BIO_free)                       \
	X(PEM_read_bio_X509)              \
	X(PEM_read_bio_PrivateKey)        \
	X(X509_free)                      \
	X(EVP_PKEY_free)                  \
	X(ERR_clear_error)                \
	X(ERR_peek_last_error)            \
	X(ERR_reason_error_string)        \
	X(bufferevent_openssl_socket_new) \
	X(bufferevent_openssl_set_allow_dirty_shutdown)

/* Written once, by load_tls. */
static struct {
#define X(name) __typeof__(name) *name;
	FUNCTIONS(X)
#undef X
} tls;

/* 0, or -ENOENT: *why says what cannot be loaded; valid until the next call. Once is enough, also for a child. */
static int load_tls(const char **why)
{
	static const struct library_function functions[] = {
#define X(name) {#name, (void **)&tls.name},
		FUNCTIONS(X)
#undef X
	};

	return library__load(LIBRARY, functions, sizeof(functions) / sizeof(*functions), why);
}

static const char *ssl_reason(const char *otherwise)
{
	unsigned long code = tls.ERR_peek_last_error();

	return (code ? tls.ERR_reason_error_string(code) : NULL) ?: otherwise;
}

/* A key that wants one is not usable: nobody is there to be asked. */
static int no_password(char *buffer, int size, int writes, void *ctx)
{
	return 0;
}

static const char *use_chain(SSL_CTX *context, BIO *pem)
{
	X509 *certificate = tls.PEM_read_bio_X509(pem, NULL, no_password, NULL);
	int used = certificate ? tls.SSL_CTX_use_certificate(context, certificate) : 0;

	tls.X509_free(certificate);
	if (!used)
		return ssl_reason("no certificate");
	for (int i = 0; i < CHAIN_MAX && (certificate = tls.PEM_read_bio_X509(pem, NULL, no_password, NULL)); i++)
		if (!tls.SSL_CTX_ctrl(context, SSL_CTRL_CHAIN_CERT, 0, certificate)) {
			tls.X509_free(certificate);
			return ssl_reason("no chain of certificates");
		}
	return NULL;
}

static const char *use_key(SSL_CTX *context, BIO *pem)
{
	EVP_PKEY *key = tls.PEM_read_bio_PrivateKey(pem, NULL, no_password, NULL);
	int used = key && tls.SSL_CTX_use_PrivateKey(context, key) && tls.SSL_CTX_check_private_key(context);

	tls.EVP_PKEY_free(key);
	return used ? NULL : ssl_reason("no private key");
}

/* A certificate with those above it, and its key, both PEM. NULL: *why says why not. Needs load_tls. */
static struct ssl_ctx_st *tls_context(const char *chain, size_t chain_bytes, const char *key, size_t key_bytes,
				      const char **why)
{
	SSL_CTX *context = tls.SSL_CTX_new(tls.TLS_server_method());
	BIO *chain_pem = tls.BIO_new_mem_buf(chain, (int)chain_bytes);
	BIO *key_pem = tls.BIO_new_mem_buf(key, (int)key_bytes);

	tls.ERR_clear_error();
	*why = "no memory";
	if (context && chain_pem && key_pem)
		*why = use_chain(context, chain_pem) ?: use_key(context, key_pem);
	tls.BIO_free(chain_pem);
	tls.BIO_free(key_pem);
	if (*why) {
		tls.SSL_CTX_free(context);
		return NULL;
	}
	tls.SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
	tls.SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
	tls.SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	return context;
}

static void free_tls(struct ssl_ctx_st *context)
{
	if (context)
		tls.SSL_CTX_free(context);
}

/* What a connection of evhttp reads and writes with. NULL: no memory. */
static struct bufferevent *accept_tls(struct event_base *base, struct ssl_ctx_st *context)
{
	SSL *ssl = tls.SSL_new(context);
	struct bufferevent *connection = ssl ? tls.bufferevent_openssl_socket_new(
						       base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
					     : NULL;

	if (connection)
		tls.bufferevent_openssl_set_allow_dirty_shutdown(connection, 1);
	else if (ssl)
		tls.SSL_free(ssl);
	return connection;
}

/* ---- the child: answers over HTTP. In: messages of the one that watches, each with the file of its metrics ---- */

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

static void unref_text(struct metrics_text *text)
{
	if (text && !--text->users)
		free(text);
}

static void release_text(const void *data, size_t bytes, void *text)
{
	unref_text(text);
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

static int start_accepting(struct server *server);

/* Connections that are there go on with the one of before. */
static const char *use_certificate(struct server *server, int chain_fd, int key_fd)
{
	static char chain[TLS_FILE_BYTES], key[TLS_FILE_BYTES];
	ssize_t chain_bytes = pread(chain_fd, chain, sizeof(chain), 0), key_bytes = pread(key_fd, key, sizeof(key), 0);
	struct ssl_ctx_st *context = NULL;
	const char *why = "the files cannot be read";

	if (chain_bytes >= 0 && key_bytes >= 0)
		context = tls_context(chain, chain_bytes, key, key_bytes, &why);
	explicit_bzero(key, sizeof(key));
	if (!context)
		return why;
	free_tls(server->tls);
	server->tls = context;
	return server->http || !start_accepting(server) ? "" : "no memory";
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
	unref_text(server->metrics);
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
static void send_answer(struct evhttp_request *request, int status, const char *type, struct evbuffer *body)
{
	add_header(request, "Content-Type", type);
	add_header(request, "Connection", "close");
	add_header(request, "Cache-Control", "no-store");
	evhttp_send_reply(request, status, NULL, body);
}

static void send_text(struct evhttp_request *request, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	if (body)
		evbuffer_add_printf(body, "%s\n", text);
	send_answer(request, status, TEXT, body);
	if (body)
		evbuffer_free(body);
}

/* Says that the one that watches has said nothing for long. Returns whether it has. */
static bool send_silence(const struct server *server, struct evhttp_request *request)
{
	uint64_t silent_s = (clock__ns(CLOCK_MONOTONIC) - server->heard_ns) / 1000000000;
	char text[80];

	if (silent_s < HTTP_ALIVE_S)
		return false;
	snprintf(text, sizeof(text), "stepflame watch has said nothing for %" PRIu64 " s", silent_s);
	send_text(request, HTTP_SERVUNAVAIL, text);
	return true;
}

/* What stood still for a minute would look like jobs that stand still. */
static void send_metrics(struct server *server, struct evhttp_request *request)
{
	struct metrics_text *text = server->metrics;
	struct evbuffer *body;

	if (send_silence(server, request))
		return;
	body = text ? evbuffer_new() : NULL;
	if (!body) {
		send_text(request, HTTP_SERVUNAVAIL, "stepflame watch has no metrics: it begins, or is paused");
		return;
	}
	if (evbuffer_add_reference(body, text->text, text->bytes, release_text, text)) {
		send_text(request, HTTP_INTERNAL, "no memory");
	} else {
		text->users++;
		send_answer(request, HTTP_OK, FORMAT, body);
	}
	evbuffer_free(body);
}

static void send_health(const struct server *server, struct evhttp_request *request)
{
	if (!send_silence(server, request))
		send_text(request, HTTP_OK, "ok");
}

static void take_request(struct evhttp_request *request, void *ctx)
{
	const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
	const char *path = (uri ? evhttp_uri_get_path(uri) : NULL) ?: "";
	struct server *server = ctx;

	if (evhttp_request_get_command(request) != EVHTTP_REQ_GET) {
		add_header(request, "Allow", "GET");
		send_text(request, HTTP_BADMETHOD, "only GET");
	} else if (!strcmp(path, "/healthz") || !strcmp(path, "/-/healthy")) {
		send_health(server, request);
	} else if (strcmp(path, "/metrics")) {
		send_text(request, HTTP_NOTFOUND, "there is /metrics and /healthz");
	} else if (!may_read(server, request)) {
		add_header(request, "WWW-Authenticate", "Bearer");
		send_text(request, 401, "it wants the token: Authorization: Bearer TOKEN");
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

	return accept_tls(base, server->tls);
}

static int start_accepting(struct server *server)
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
	if (start_accepting(server))
		event_base_loopbreak(server->base);
}

/* Of clients, who may have sent anything. */
static void say_nothing(int severity, const char *text)
{
}

/*
 * Serves until the other end of `channel` (SOCK_SEQPACKET) is closed. listener: a socket that listens and does not block. token: that a client has to know; NULL: none.
 * tls: it begins with the first certificate that is usable; load_tls has been called. 0, or -ENOMEM if it could not begin.
 */
static int serve_http(int listener, int channel, const char *token, bool tls)
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
	if (message && room && !event_add(message, NULL) && !event_add(room, &second) &&
	    (tls || !start_accepting(&server))) {
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
	unref_text(server.metrics);
	free_tls(server.tls);
	return err;
}

/* ---- the one that watches ---- */

#define OWN_FILES    14 /* that the child has besides connections, with what libevent opens */
#define AGAIN_NS     60000000000ull
#define ADDRESS_ONLY (AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE)

/* ---- the address ---- */

/* The caller frees what it returns with freeaddrinfo. NULL: that is no address. */
static struct addrinfo *find_address(const char *text)
{
	const struct addrinfo wanted = {.ai_flags = ADDRESS_ONLY, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2];
	struct addrinfo *found;
	size_t bytes = colon ? (size_t)(colon - text) : 0;
	bool brackets;

	if (!bytes || bytes >= sizeof(host) || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    atoi(colon + 1) > UINT16_MAX || !atoi(colon + 1))
		return NULL;
	memcpy(host, text, bytes);
	host[bytes] = 0;
	brackets = host[0] == '[' && host[bytes - 1] == ']';
	if (brackets != !!strchr(host, ':'))
		return NULL;
	host[bytes - brackets] = 0;
	return getaddrinfo(host + brackets, colon + 1, &wanted, &found) ? NULL : found;
}

bool listener__is_address(const char *text)
{
	struct addrinfo *found = find_address(text);

	if (found)
		freeaddrinfo(found);
	return found;
}

static bool is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	return address->sa_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
					     : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* The descriptor or -errno. */
static int listening_socket(const struct addrinfo *address)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, err = 0;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, HTTP_WAITING))
		err = -errno;
	if (err && fd >= 0)
		close(fd);
	return err ?: fd;
}

static const char *fix_of(int err)
{
	switch (-err) {
	case EADDRINUSE:
		return "choose another port with --listen, or stop what has this one: ss -ltnp shows it";
	case EADDRNOTAVAIL:
	case EAFNOSUPPORT:
		return "name an address that this host has, with --listen: ip addr shows them";
	case EACCES:
		return "choose a port from 1024 on, with --listen";
	default:
		return NULL;
	}
}

/* ---- files ---- */

static int read_token(struct listener *listener, const char *path)
{
	int fd = secret_file__open("token", path, "--token-file", true);
	char text[LISTENER_TOKEN_MAX + 2];
	ssize_t got;

	if (fd < 0)
		return fd;
	got = read(fd, text, sizeof(text));
	close(fd);
	while (got > 0 && strchr(" \t\r\n", text[got - 1]))
		got--;
	if (got < LISTENER_TOKEN_MIN || got > LISTENER_TOKEN_MAX)
		return secret_file__refuse("token", path, "it has less than 16 characters, or more than 256",
					   "make one: head -c 32 /dev/urandom | base64 > FILE");
	for (ssize_t i = 0; i < got; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return secret_file__refuse("token", path, "it has a blank, or what is not ASCII",
						   "write one word into the file");
	memcpy(listener->token, text, got);
	listener->token[got] = 0;
	return 0;
}

/* ---- the child ---- */

static _Noreturn void become_server(const struct listener *listener, int socket, int channel, pid_t owner)
{
	const int fds[] = {socket, channel};

	rightless__become_or_exit("stepflame-http", owner, fds, 2, HTTP_CLIENTS + OWN_FILES);
	_exit(serve_http(RIGHTLESS_FD, RIGHTLESS_FD + 1, *listener->token ? listener->token : NULL,
			 listener->options.cert_file)
		      ? EXIT_FAILURE
		      : EXIT_SUCCESS);
}

/* 0 or -errno. */
static int send_files(const struct listener *listener, char kind, const int *fds, size_t cnt)
{
	char control[CMSG_SPACE(sizeof(int) * HTTP_FDS)] __attribute__((aligned(8))) = {0};
	struct iovec data = {&kind, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	struct cmsghdr *part;

	if (cnt) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(sizeof(*fds) * cnt);
		part = CMSG_FIRSTHDR(&message);
		*part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(*fds) * cnt), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(part), fds, sizeof(*fds) * cnt);
	}
	return sendmsg(listener->channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* 0 or -errno. socket: it listens, and may not be 3 or 4. */
static int fork_server(struct listener *listener, int socket)
{
	int channels[2], err = 0;
	pid_t owner = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels))
		return -errno;
	listener->child = fork();
	if (!listener->child)
		become_server(listener, socket, fcntl(channels[1], F_DUPFD_CLOEXEC, 5), owner);
	if (listener->child < 0) {
		err = -errno;
		listener->child = 0;
		close(channels[0]);
	} else {
		listener->channel = channels[0];
	}
	close(channels[1]);
	return err;
}

/* Only the child keeps the socket, so that nobody else has the address when it has ended. */
static int start_server(struct listener *listener)
{
	struct addrinfo *address = find_address(listener->options.address);
	int socket = address ? listening_socket(address) : -ENOMEM, high, err;

	listener->started_ns = clock__ns(CLOCK_MONOTONIC);
	if (address)
		freeaddrinfo(address);
	if (socket < 0)
		return socket;
	high = fcntl(socket, F_DUPFD_CLOEXEC, 5);
	err = high < 0 ? -errno : fork_server(listener, high);
	if (high >= 0)
		close(high);
	close(socket);
	return err;
}

/* ---- the certificate ---- */

static struct listener_stamp stamp_of(const char *path)
{
	struct listener_stamp stamp = {0};
	struct stat st;

	if (!stat(path, &st))
		stamp = (struct listener_stamp){st.st_dev, st.st_ino, st.st_size,
						st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec};
	return stamp;
}

static bool is_same(const struct listener_stamp *a, const struct listener_stamp *b)
{
	return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->changed_ns == b->changed_ns;
}

/* The child has no rights to open them. 0, or -errno after a message. */
static int send_certificate(struct listener *listener)
{
	const struct listener_options *options = &listener->options;
	int fds[HTTP_FDS], err;

	listener->cert = stamp_of(options->cert_file);
	listener->key = stamp_of(options->key_file);
	fds[0] = secret_file__open("certificate", options->cert_file, "--tls-cert", false);
	if (fds[0] < 0)
		return fds[0];
	fds[1] = secret_file__open("key", options->key_file, "--tls-key", true);
	err = fds[1] < 0 ? fds[1] : send_files(listener, HTTP_TLS, fds, HTTP_FDS);
	if (fds[1] >= 0) {
		close(fds[1]);
		if (err)
			log__warn(NULL, "cannot hand over the certificate in %s: %s", options->cert_file,
				  strerror(-err));
	}
	close(fds[0]);
	return err;
}

/* What the child says of the last one. flags: MSG_DONTWAIT, or 0. 1: it is used; 0: nothing yet; or -EINVAL after a message. */
static int hear_certificate(const struct listener *listener, int flags, const char *otherwise)
{
	char why[HTTP_WHY];
	ssize_t got = recv(listener->channel, why, sizeof(why) - 1, flags);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got == 1)
		return 1;
	why[got > 0 ? got : 0] = 0;
	log__error("name a certificate and its key, both as PEM, with --tls-cert and --tls-key",
		   "cannot use the certificate in %s with the key in %s: %s%s", listener->options.cert_file,
		   listener->options.key_file, got > 0 ? why : "what would use it has ended", otherwise);
	return -EINVAL;
}

/* Files that took their place, as those do that a certificate is renewed with. */
static void renew_certificate(struct listener *listener)
{
	const struct listener_options *options = &listener->options;
	struct listener_stamp cert, key;

	if (!options->cert_file)
		return;
	if (hear_certificate(listener, MSG_DONTWAIT, "; goes on with the one of before") > 0)
		log__info("uses the certificate that is in %s now", options->cert_file);
	cert = stamp_of(options->cert_file);
	key = stamp_of(options->key_file);
	if (!is_same(&cert, &listener->cert) || !is_same(&key, &listener->key))
		send_certificate(listener);
}

static bool is_open(const char *address)
{
	struct addrinfo *found = find_address(address);
	bool open = !found || !is_loopback(found->ai_addr);

	if (found)
		freeaddrinfo(found);
	return open;
}

/* 0, or -errno after a message. */
static int check_options(const struct listener_options *options)
{
	const char *why;

	if (!options->cert_file != !options->key_file) {
		log__error("--tls-cert FILE --tls-key FILE", "TLS needs both a certificate and its key");
		return -EINVAL;
	}
	if (!options->token_file && is_open(options->address)) {
		log__error("--token-file FILE, or listen on 127.0.0.1",
			   "will not listen on %s: whoever reaches it could read the metrics", options->address);
		return -EINVAL;
	}
	if (!options->cert_file && !options->cleartext && is_open(options->address)) {
		log__error("--tls-cert FILE --tls-key FILE; or --tls off, where nobody can read what goes over that "
			   "network",
			   "will not listen on %s without TLS: the token would go over the network as it is",
			   options->address);
		return -EINVAL;
	}
	if (options->cert_file && load_tls(&why)) {
		log__error("apt install libevent-openssl-2.1-7", "cannot use TLS: %s", why);
		return -ENOENT;
	}
	return 0;
}

int listener__open(struct listener *listener, const struct listener_options *options)
{
	int err;

	*listener = (struct listener){.options = *options, .channel = -1};
	if (!options->address)
		return 0;
	err = check_options(options);
	if (!err && options->token_file)
		err = read_token(listener, options->token_file);
	if (err)
		return err;
	err = start_server(listener);
	if (err) {
		log__error(fix_of(err), "cannot listen on %s: %s", options->address, strerror(-err));
		return err;
	}
	if (options->cert_file)
		err = send_certificate(listener) ?: hear_certificate(listener, 0, "") < 0 ? -EINVAL : 0;
	if (err)
		listener__close(listener);
	return err;
}

/* ---- from time to time ---- */

/* Its end is no reason to end; but what ends it may do so again. */
static void restart_child(struct listener *listener, uint64_t now_ns)
{
	int status;

	if (listener->child && waitpid(listener->child, &status, WNOHANG) == listener->child) {
		log__warn(NULL, "what answers at %s has ended (%s %d); it is started again within a minute",
			  listener->options.address, WIFSIGNALED(status) ? "signal" : "status",
			  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		listener->child = 0;
		close(listener->channel);
		listener->channel = -1;
	}
	if (!listener->child && now_ns >= listener->started_ns + AGAIN_NS && !start_server(listener) &&
	    listener->options.cert_file)
		send_certificate(listener);
}

void listener__tell(struct listener *listener, const char *path, uint64_t now_ns)
{
	int fd;

	if (!listener->options.address)
		return;
	restart_child(listener, now_ns);
	if (listener->channel < 0)
		return;
	renew_certificate(listener);
	fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	/* If it is busy, or has ended, it will be told the next time. */
	send_files(listener, fd >= 0 ? HTTP_METRICS : HTTP_NO_METRICS, &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
}

void listener__close(struct listener *listener)
{
	if (!listener->options.address)
		return;
	if (listener->channel >= 0)
		close(listener->channel);
	if (listener->child) {
		kill(listener->child, SIGKILL);
		waitpid(listener->child, NULL, 0);
	}
	*listener = (struct listener){};
}
