// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The socket by which others ask the one that watches: clients that ask, say nothing, say much, or go. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/watch/control.h"

static char folder[] = "/tmp/test_control.XXXXXX";
static struct control control;
static char asked[CONTROL_REQUEST];

static json_t *answer(const char *request, void *ctx)
{
	char *text;
	json_t *object;

	snprintf(asked, sizeof(asked), "%s", request);
	if (!strcmp(request, "nothing"))
		return NULL;
	if (strcmp(request, "much"))
		return json_pack("{s:s}", "you said", request);
	text = calloc(1, CONTROL_ANSWER + 1);
	memset(text, 'x', CONTROL_ANSWER);
	object = json_pack("{s:s}", "text", text);
	free(text);
	return object;
}

/* Asks in a child, whose exit status is 0 when it got what was expected. */
static pid_t start_asking(const char *request, const char *expected)
{
	pid_t pid = fork();
	json_t *said;
	int err;

	if (pid)
		return pid;
	close_range(3, ~0u, 0); /* the connections of the test are not ours */
	err = control__ask(folder, request, &said);
	if (!expected)
		_exit(err != -EPROTO);
	_exit(err || strcmp(json_string_value(json_object_get(said, "you said")), expected));
}

static void serve_until_ended(pid_t pid)
{
	int status;

	while (!waitpid(pid, &status, WNOHANG))
		control__serve(&control, answer, NULL);
	assert_int_equal(status, 0);
}

static int connected(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" CONTROL_NAME, folder);
	return connect(fd, (const struct sockaddr *)&address, sizeof(address)) ? -1 : fd;
}

static void test_answers(void **state)
{
	struct stat st;
	char path[128];

	snprintf(path, sizeof(path), "%s/" CONTROL_NAME, folder);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	serve_until_ended(start_asking("status", "status"));
	assert_string_equal(asked, "status");
	serve_until_ended(start_asking("trigger job 7", "trigger job 7"));
	serve_until_ended(start_asking("nothing", NULL));
	serve_until_ended(start_asking("much", NULL));
}

/* Those who connect and say nothing keep places, which they give back; and the loop never waits. */
static void test_silent(void **state)
{
	int fds[2 * CONTROL_CLIENTS], cnt = 0;
	pid_t pid;

	while (cnt < 2 * CONTROL_CLIENTS && (fds[cnt] = connected()) >= 0) {
		cnt++;
		control__serve(&control, answer, NULL);
	}
	assert_true(cnt > CONTROL_CLIENTS);
	pid = start_asking("late", "late");
	for (int i = 0; i < 100; i++)
		control__serve(&control, answer, NULL);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	for (int i = 0; i < cnt; i++)
		close(fds[i]);
	serve_until_ended(pid);
}

/* A request is cut to what there is room for; an asker that has gone is no error. */
static void test_long_and_gone(void **state)
{
	char text[4 * CONTROL_REQUEST];
	int fd = connected();

	memset(text, 'y', sizeof(text));
	assert_int_equal(send(fd, text, sizeof(text), 0), sizeof(text));
	close(fd);
	*asked = 0;
	while (!*asked)
		control__serve(&control, answer, NULL);
	assert_int_equal(strlen(asked), CONTROL_REQUEST - 1);
	serve_until_ended(start_asking("after", "after"));
}

/* A path that no address has room for. */
static void test_long_path(void **state)
{
	struct control other;
	char path[256];

	snprintf(path, sizeof(path), "%s/%0150d", folder, 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(control__open(&other, path), 0);
	control__close(&other);
	assert_int_equal(rmdir(path), 0); /* nothing is left in it */
}

static void test_nobody(void **state)
{
	json_t *said;

	assert_int_equal(control__ask("/no such folder", "status", &said), -ENOENT);
	control__close(&control);
	assert_int_equal(control__ask(folder, "status", &said), -ENOENT);
	assert_int_equal(control__open(&control, folder), 0);
	close(control.fd); /* as if it had been killed: the name is still there */
	control.fd = -1;
	assert_int_equal(control__ask(folder, "status", &said), -ECONNREFUSED);
	control__close(&control);
	assert_int_equal(control__open(&control, folder), 0);
}

static int open_it(void **state)
{
	return !mkdtemp(folder) || control__open(&control, folder);
}

static int close_it(void **state)
{
	control__close(&control);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),   cmocka_unit_test(test_silent), cmocka_unit_test(test_long_and_gone),
		cmocka_unit_test(test_long_path), cmocka_unit_test(test_nobody),
	};

	return cmocka_run_group_tests(tests, open_it, close_it);
}
