// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What scrapers get, and that clients who hang, send much, or are many keep nobody out. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/watch/listener.h"

#define TOKEN    "0123456789abcdef"
#define METRICS  "stepflame_jobs 1\n"
#define WAIT_MS  20000
#define CLIENTS  1000
#define OK       "HTTP/1.1 200 "
#define GET(...) "GET " __VA_ARGS__ "\r\n\r\n"

static char folder[] = "/tmp/test_http.XXXXXX", path[64], text[1 << 20];
static struct listener listener;
static uint16_t port;

static void write_file(const char *name, mode_t mode, const char *content)
{
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	unlink(path);
	file = fopen(path, "w");
	fputs(content, file);
	fclose(file);
	chmod(path, mode);
}

/* A port of this host that nobody has. */
static uint16_t free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (const void *)&address, sizeof(address)), 0);
	assert_int_equal(getsockname(fd, (void *)&address, &bytes), 0);
	close(fd);
	return ntohs(address.sin_port);
}

static int listen_at(const char *host, bool token)
{
	static char address[32];

	port = free_port();
	snprintf(address, sizeof(address), "%s:%u", host, port);
	if (token)
		write_file("token", 0600, TOKEN "\n");
	return listener__open(
		&listener,
		&(struct listener_options){.address = address, .token_file = token ? path : NULL, .cleartext = true});
}

static int open_at(const char *address, const char *token_file)
{
	return listener__open(&listener, &(struct listener_options){.address = address, .token_file = token_file});
}

static int tear_down(void **state)
{
	listener__close(&listener);
	return 0;
}

static int connected(void)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd writable = {.fd = fd, .events = POLLOUT};

	connect(fd, (const void *)&address, sizeof(address));
	poll(&writable, 1, WAIT_MS);
	return fd;
}

/* What comes until the end of the connection; "" if it is closed without an answer. */
static const char *answer_of(int fd)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	size_t bytes = 0;
	ssize_t got = 1;

	while (got > 0 && bytes < sizeof(text) - 1 && poll(&readable, 1, WAIT_MS) == 1) {
		got = recv(fd, text + bytes, sizeof(text) - 1 - bytes, 0);
		bytes += got > 0 ? got : 0;
	}
	assert_true(got <= 0); /* it was closed */
	text[bytes] = 0;
	close(fd);
	return text;
}

static const char *ask(const char *request)
{
	int fd = connected();

	send(fd, request, strlen(request), MSG_NOSIGNAL);
	return answer_of(fd);
}

static void assert_begins(const char *said, const char *begin)
{
	if (strncmp(said, begin, strlen(begin)))
		fail_msg("'%.300s' does not begin with '%s'", said, begin);
}

/* A server that has been told, and answers so. */
static void tell(const char *file, const char *expected)
{
	const char *said = "";

	for (int i = 0; i < WAIT_MS / 10 && !strstr(said, expected); i++) {
		listener__tell(&listener, file, 0);
		usleep(10000);
		said = ask(GET("/metrics HTTP/1.1"));
	}
	assert_non_null(strstr(said, expected));
}

static void begin_with(const char *metrics)
{
	assert_int_equal(listen_at("127.0.0.1", false), 0);
	assert_begins(ask(GET("/metrics HTTP/1.1")), "HTTP/1.1 503 ");
	write_file("metrics", 0600, metrics);
	tell(path, OK);
}

static void test_addresses(void **state)
{
	static const char *const good[] = {"127.0.0.1:9465", "[::1]:9465", "0.0.0.0:1", "[fe80::1]:65535"};
	static const char *const bad[] = {"",
					  ":",
					  ":1",
					  "127.0.0.1",
					  "127.0.0.1:",
					  "127.0.0.1:0",
					  "127.0.0.1:x",
					  "127.0.0.1:65536",
					  "1.2.3.4:-1",
					  "::1:9465",
					  "[::1]9465",
					  "[::1:9465",
					  "::1]:9465",
					  "localhost:1",
					  "1.2.3:4 ",
					  "[1.2.3.4]:9",
					  "1.2.3.4.5:6",
					  "127.0.0.1:99999999999999999999"};

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_true(listener__is_address(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (listener__is_address(bad[i]))
			fail_msg("'%s'", bad[i]);
}

static void test_answers(void **state)
{
	begin_with(METRICS);
	assert_begins(ask(GET("/metrics HTTP/1.1")), OK);
	assert_non_null(strstr(text, "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
	assert_string_equal(strstr(text, "\r\n\r\n") + 4, METRICS);
	assert_begins(ask(GET("/metrics?name[]=x HTTP/1.0\r\nHost: a\r\nAccept: */*")), "HTTP/1.0 200 ");
	assert_begins(ask(GET("/healthz HTTP/1.1")), OK);
	assert_begins(ask(GET("/-/healthy HTTP/1.1")), OK);
	assert_begins(ask(GET("/ HTTP/1.1")), "HTTP/1.1 404 ");
	assert_begins(ask(GET("/../../etc/passwd HTTP/1.1")), "HTTP/1.1 404 ");
	assert_begins(ask("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), "HTTP/1.1 405 ");
	assert_begins(ask("DELETE /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 ");
	assert_begins(ask("HEAD /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 ");
	/* Paused: there are none, but it is well. */
	tell(NULL, "HTTP/1.1 503 ");
	assert_begins(ask(GET("/healthz HTTP/1.1")), OK);
}

static void test_token(void **state)
{
	assert_int_equal(listen_at("0.0.0.0", true), 0);
	write_file("metrics", 0600, METRICS);
	listener__tell(&listener, path, 0);
	assert_begins(ask(GET("/metrics HTTP/1.1")), "HTTP/1.1 401 ");
	assert_null(strstr(text, METRICS));
	assert_begins(ask(GET("/metrics HTTP/1.1\r\nAuthorization: Bearer " TOKEN "0")), "HTTP/1.1 401 ");
	assert_begins(ask(GET("/metrics HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdeX")), "HTTP/1.1 401 ");
	assert_begins(ask(GET("/metrics HTTP/1.1\r\nAuthorization: Basic " TOKEN)), "HTTP/1.1 401 ");
	assert_begins(ask(GET("/metrics HTTP/1.1\r\nAuthorization: Bearer ")), "HTTP/1.1 401 ");
	assert_begins(ask(GET("/metrics HTTP/1.1\r\nAuthorization: Bearer " TOKEN)), OK);
	assert_begins(ask(GET("/healthz HTTP/1.1")), OK);
}

/* Whoever can be reached from elsewhere has one, which others of the host cannot read. */
static void test_refusals(void **state)
{
	static const struct {
		mode_t mode;
		const char *token;
	} bad[] = {{0644, TOKEN},
		   {0660, TOKEN},
		   {0600, "short"},
		   {0600, ""},
		   {0600, "with a blank in its middle"},
		   {0600, "0123456789abcdef\n0123456789abcdef"}};

	assert_int_equal(listen_at("0.0.0.0", false), -EINVAL);
	assert_int_equal(open_at("[::]:9465", NULL), -EINVAL);
	write_file("token", 0600, TOKEN);
	assert_int_equal(open_at("[::]:9465", path), -EINVAL); /* without TLS */
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		write_file("token", bad[i].mode, bad[i].token);
		assert_int_equal(open_at("127.0.0.1:9465", path), -EINVAL);
	}
	assert_int_equal(open_at("127.0.0.1:9465", folder), -EINVAL);
	assert_int_equal(open_at("127.0.0.1:9465", "/nonexistent"), -EINVAL);
	assert_int_equal(open_at("192.0.2.1:9465", "/nonexistent"), -EINVAL);
}

static void test_in_use(void **state)
{
	struct listener other;
	char address[32];

	begin_with(METRICS);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	assert_int_equal(listener__open(&other, &(struct listener_options){.address = address}), -EADDRINUSE);
	assert_begins(ask(GET("/metrics HTTP/1.1")), OK);
	/* Once it has ended, the address is free at once. */
	listener__close(&listener);
	assert_int_equal(open_at(address, NULL), 0);
}

static void test_rights(void **state)
{
	char line[256];
	FILE *status;
	int seen = 0;

	begin_with(METRICS);
	snprintf(path, sizeof(path), "/proc/%d/status", listener.child);
	status = fopen(path, "r");
	while (fgets(line, sizeof(line), status)) {
		seen += !strcmp(line, "CapEff:\t0000000000000000\n") || !strcmp(line, "CapPrm:\t0000000000000000\n") ||
			!strcmp(line, "NoNewPrivs:\t1\n");
		if (!strncmp(line, "Uid:", 4) && !geteuid())
			assert_string_equal(line, "Uid:\t65534\t65534\t65534\t65534\n");
	}
	fclose(status);
	assert_int_equal(seen, 3);
}

/* A process that ends is started again a minute after it was; the watch does not wait. */
static void test_again(void **state)
{
	begin_with(METRICS);
	kill(listener.child, SIGKILL);
	waitid(P_PID, listener.child, &(siginfo_t){}, WEXITED | WNOWAIT);
	listener__tell(&listener, path, listener.started_ns + 1);
	assert_int_equal(listener.child, 0);
	listener__tell(&listener, path, listener.started_ns + 60000000000ull);
	assert_true(listener.child > 0);
	tell(path, OK);
}

/* Many that say nothing, or half of a request, or take no answer: who comes after them is answered. */
static void test_hanging(void **state)
{
	static const char *const begins[] = {"", "GET /met", "GET /metrics HTTP/1.1\r\nA: ", GET("/metrics HTTP/1.1")};
	static int fds[CLIENTS];
	struct rlimit files = {CLIENTS + 100, CLIENTS + 100};
	bool answered = false;
	int open = 0;
	char fd_path[64];

	setrlimit(RLIMIT_NOFILE, &files);
	memset(text, 'x', 900000); /* more than the buffers of a connection */
	text[900000] = 0;
	begin_with(text);
	for (int i = 0; i < CLIENTS; i++) {
		const char *begin = begins[i % 4];

		fds[i] = connected();
		send(fds[i], begin, strlen(begin), MSG_NOSIGNAL);
	}
	for (int i = 0; i < WAIT_MS / 10 && !answered; i++) { /* one may be closed with the others */
		answered = !strncmp(ask(GET("/metrics HTTP/1.1")), OK, strlen(OK));
		usleep(answered ? 0 : 10000);
	}
	assert_true(answered);
	for (int i = 0; i < 1024; i++) {
		snprintf(fd_path, sizeof(fd_path), "/proc/%d/fd/%d", listener.child, i);
		open += !faccessat(AT_FDCWD, fd_path, F_OK, AT_SYMLINK_NOFOLLOW);
	}
	assert_true(open <= HTTP_CLIENTS + 14);
	for (int i = 0; i < CLIENTS; i++)
		close(fds[i]);
	write_file("metrics", 0600, METRICS);
	tell(path, METRICS);
}

/* Long lines, many headers, a long body, and what is no HTTP: refused, or the connection is closed. */
static void test_huge(void **state)
{
	static char request[1 << 20];
	unsigned int seed = 1;
	int fd;

	begin_with(METRICS);
	memset(request, 'a', sizeof(request) - 1);
	memcpy(request, "GET /", 5);
	assert_null(strstr(ask(request), METRICS));
	strcpy(request, "GET /metrics HTTP/1.1\r\n");
	for (size_t bytes = strlen(request); bytes + 8 < sizeof(request); bytes += 6)
		memcpy(request + bytes, "A: b\r\n", 7);
	assert_null(strstr(ask(request), METRICS));
	assert_begins(ask("GET /metrics HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n"), "HTTP/1.1 413 ");
	for (int i = 0; i < 200; i++) {
		size_t bytes = rand_r(&seed) % 3000;

		for (size_t k = 0; k < bytes; k++)
			request[k] = rand_r(&seed);
		fd = connected();
		send(fd, request, bytes, MSG_NOSIGNAL);
		shutdown(fd, SHUT_WR);
		assert_null(strstr(answer_of(fd), METRICS));
	}
	assert_begins(ask(GET("/metrics HTTP/1.1")), OK);
}

/* A file of metrics that is none of ours is not sent; those of before stay. */
static void test_bad_files(void **state)
{
	begin_with(METRICS);
	listener__tell(&listener, folder, 0);
	assert_non_null(strstr(ask(GET("/metrics HTTP/1.1")), METRICS));
	write_file("large", 0600, "");
	assert_int_equal(truncate(path, HTTP_METRICS_BYTES + 1), 0);
	listener__tell(&listener, path, 0);
	assert_non_null(strstr(ask(GET("/metrics HTTP/1.1")), METRICS));
}

static int set_up(void **state)
{
	return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_addresses),
					   cmocka_unit_test_teardown(test_answers, tear_down),
					   cmocka_unit_test_teardown(test_token, tear_down),
					   cmocka_unit_test_teardown(test_refusals, tear_down),
					   cmocka_unit_test_teardown(test_in_use, tear_down),
					   cmocka_unit_test_teardown(test_rights, tear_down),
					   cmocka_unit_test_teardown(test_again, tear_down),
					   cmocka_unit_test_teardown(test_hanging, tear_down),
					   cmocka_unit_test_teardown(test_huge, tear_down),
					   cmocka_unit_test_teardown(test_bad_files, tear_down)};

	return cmocka_run_group_tests(tests, set_up, remove_folder);
}
