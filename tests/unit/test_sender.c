// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Profiles come to a server that is there; while it is not, or hangs, the oldest are lost, and counted. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/watch/push.c"

#define WAIT_MS 60000
#define MB      (1u << 20)

static int channel = -1;
static pid_t child;
static uint16_t port;
static char request[16384];
static struct sender_progress progress;

/* A server; listens: it has the port already, else nobody answers there. */
static int begin(bool listens)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), channels[2], on = 1;
	static char *headers[] = {"X-Scope-OrgID: me", NULL};
	socklen_t bytes = sizeof(address);
	const char *why;
	char url[64];

	assert_int_equal(sender__load(&why), 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (const void *)&address, sizeof(address)), 0);
	assert_int_equal(getsockname(fd, (void *)&address, &bytes), 0);
	if (listens)
		assert_int_equal(listen(fd, 16), 0);
	port = ntohs(address.sin_port);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels), 0);
	child = fork();
	if (!child) {
		close(channels[0]);
		close(fd);
		snprintf(url, sizeof(url), "http://127.0.0.1:%u/ingest", port);
		_exit(sender__run(channels[1], url, headers) != 0);
	}
	close(channels[1]);
	channel = channels[0];
	progress = (struct sender_progress){};
	return fd;
}

static int end(void **state)
{
	int status = 0;

	close(channel);
	if (child)
		waitpid(child, &status, 0);
	child = 0;
	assert_int_equal(status, 0);
	return 0;
}

static void give(uint64_t number, size_t bytes)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0}, *data = calloc(1, bytes);
	struct sender_profile profile = {.from_s = number, .to_s = number + 60, .name = "stepflame{job=a b,rank=0}"};
	struct iovec part = {&profile, sizeof(profile)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fd = memfd_create("profile", 0);

	assert_int_equal(write(fd, data, bytes), bytes);
	free(data);
	*header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	assert_int_equal(sendmsg(channel, &message, 0), sizeof(profile));
	close(fd);
}

static void hear(void)
{
	struct pollfd readable = {.fd = channel, .events = POLLIN};

	assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
	assert_int_equal(recv(channel, &progress, sizeof(progress), 0), sizeof(progress));
}

/* Takes one request, whose head is then in `request`, and answers it. Returns the bytes of its body. */
static size_t serve(int fd, const char *answer)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	size_t head = 0, body = 0, wanted;
	char *at;
	int client;

	assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
	client = accept(fd, NULL, NULL);
	while (!head || !strstr(request, "\r\n\r\n")) {
		ssize_t got = recv(client, request + head, sizeof(request) - 1 - head, 0);

		assert_true(got > 0);
		head += got;
		request[head] = 0;
	}
	at = strstr(request, "\r\n\r\n") + 4;
	body = head - (at - request);
	wanted = strtoul(strstr(request, "Content-Length: ") + 16, NULL, 10);
	if (strstr(request, "Expect: 100"))
		send(client, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
	while (body < wanted) {
		static char rest[65536];
		ssize_t got = recv(client, rest, sizeof(rest), 0);

		assert_true(got > 0);
		body += got;
	}
	send(client, answer, strlen(answer), MSG_NOSIGNAL);
	close(client);
	return body;
}

#define ANSWER(status) "HTTP/1.1 " status " X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

static void test_answers(void **state)
{
	int fd = begin(true);

	give(7, 1000);
	assert_int_equal(serve(fd, ANSWER("200")), 1000);
	assert_ptr_equal(
		strstr(request,
		       "POST /ingest?name=stepflame%7Bjob%3Da%20b%2Crank%3D0%7D&from=7&until=67&format=pprof "),
		request);
	assert_non_null(strstr(request, "\r\nX-Scope-OrgID: me\r\n"));
	hear();
	assert_true(progress.sent == 1 && !progress.lost && !*progress.error);
	/* What it will never take is lost at once; what it cannot take now comes again. */
	give(8, MB);
	assert_int_equal(serve(fd, ANSWER("422")), MB);
	hear();
	assert_true(progress.sent == 1 && progress.lost == 1 && strstr(progress.error, "422"));
	give(9, 10);
	serve(fd, ANSWER("503"));
	hear();
	assert_true(progress.sent == 1 && progress.lost == 1 && progress.waiting == 1 && strstr(progress.error, "503"));
	serve(fd, ANSWER("204"));
	assert_non_null(strstr(request, "&from=9&"));
	hear();
	assert_true(progress.sent == 2 && progress.lost == 1 && !progress.waiting && !*progress.error);
	/* None of ours. */
	give(10, SENDER_PROFILE_BYTES + 1);
	give(11, 10);
	serve(fd, ANSWER("200"));
	assert_non_null(strstr(request, "&from=11&"));
	hear();
	assert_true(progress.lost == 2);
	close(fd);
}

/* Nobody is there, for as long as 100 MB take to come: those that come last wait, and are sent when somebody is. */
static void test_down(void **state)
{
	int fd = begin(false);
	uint64_t first;

	for (int i = 0; i < 25; i++)
		give(i, 4 * MB);
	do
		hear();
	while (progress.lost + progress.waiting < 25);
	assert_true(*progress.error && !progress.sent && progress.lost >= 9 &&
		    progress.waiting <= SENDER_QUEUE_BYTES / (4 * MB));
	assert_int_equal(listen(fd, 16), 0);
	first = progress.lost;
	serve(fd, ANSWER("200"));
	assert_true(strtoul(strstr(request, "&from=") + 6, NULL, 10) == first);
	hear();
	assert_true(progress.sent == 1 && !*progress.error);
	close(fd);
}

/* One that takes a request and says nothing: what comes meanwhile is taken, and who gives it does not wait. */
static void test_hangs(void **state)
{
	int fd = begin(true), client;
	struct pollfd readable = {.fd = fd, .events = POLLIN};

	give(0, 1000);
	assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
	client = accept(fd, NULL, NULL);
	for (int i = 1; i < 2000; i++)
		give(i, 10);
	close(client); /* it ended without an answer */
	hear();
	assert_true(progress.waiting == 2000 && !progress.lost && *progress.error);
	close(fd);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	child = 0;
}

static void test_urls(void **state)
{
	static const char *const bad[] = {"",
					  "http://",
					  "ftp://a/b",
					  "http:///x",
					  "https://a b/",
					  "http://u:p@h/x",
					  "http://h/#x",
					  "http://h/\x1b",
					  "file:///etc/passwd"};

	assert_true(push__is_url("http://localhost:4040/ingest"));
	assert_true(push__is_url("https://[::1]:4040/ingest?tenant=a@b"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(push__is_url(bad[i]));
}

/* Samples know their process by its pid: of two processes that had the same, one profile has them. */
static void test_pid_used_again(void **state)
{
	static struct watched_process processes[] = {{.pid = 10, .attached = true, .ended = true},
						     {.pid = 11, .attached = true},
						     {.pid = 10, .attached = true}};
	static const struct watched_jobs jobs = {.processes = {.items = processes, .cnt = 3}};

	assert_true(is_used_again(&jobs, 0));
	assert_false(is_used_again(&jobs, 1));
	assert_false(is_used_again(&jobs, 2));
	processes[2].attached = false; /* it is left out */
	assert_false(is_used_again(&jobs, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_urls), cmocka_unit_test(test_pid_used_again),
					   cmocka_unit_test_teardown(test_answers, end),
					   cmocka_unit_test_teardown(test_down, end),
					   cmocka_unit_test_teardown(test_hangs, end)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
