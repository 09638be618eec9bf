// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "user/lib/json.h"

#define ANSWER_SECONDS 30 /* a pause waits until all probes are out */

/*
 * An address may have 107 bytes, and the path of a folder more: the address goes by the descriptor of the
 * folder. Returns that, for the caller to close once the address has been used; or -errno.
 */
static int set_address(struct sockaddr_un *address, const char *folder)
{
	int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/" CONTROL_NAME, fd);
	return fd < 0 ? -errno : fd;
}

int control__open(struct control *control, const char *folder)
{
	struct sockaddr_un address;
	int folder_fd = set_address(&address, folder), err = 0;
	mode_t mask;

	*control = (struct control){.fd = -1};
	for (int i = 0; i < CONTROL_CLIENTS; i++)
		control->clients[i] = -1;
	if (folder_fd < 0)
		return folder_fd;
	if (asprintf(&control->path, "%s/" CONTROL_NAME, folder) < 0) {
		control->path = NULL;
		close(folder_fd);
		return -ENOMEM;
	}
	unlink(control->path); /* of one that was killed */
	control->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mask = umask(0177);
	if (control->fd < 0 || bind(control->fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    listen(control->fd, CONTROL_CLIENTS))
		err = -errno;
	umask(mask);
	close(folder_fd);
	if (err)
		control__close(control);
	return err;
}

/* Answers one request of a client. Returns whether it stays. */
static bool answer_client(int fd, json_t *(*answer)(const char *request, void *ctx), void *ctx)
{
	char request[CONTROL_REQUEST];
	ssize_t got = recv(fd, request, sizeof(request) - 1, MSG_DONTWAIT);
	json_t *object;
	char *text;

	if (got <= 0)
		return got < 0 && errno == EAGAIN;
	request[got] = 0;
	object = answer(request, ctx);
	text = object ? json__text(object, JSON_COMPACT) : NULL;
	json_decref(object);
	if (text && strlen(text) < CONTROL_ANSWER && send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		/* It does not listen any more. */
	}
	free(text);
	return false;
}

void control__serve(struct control *control, json_t *(*answer)(const char *request, void *ctx), void *ctx)
{
	for (int i = 0; i < CONTROL_CLIENTS; i++) {
		int *fd = &control->clients[i];

		if (*fd < 0)
			*fd = accept4(control->fd, NULL, NULL, SOCK_CLOEXEC);
		if (*fd >= 0 && !answer_client(*fd, answer, ctx)) {
			close(*fd);
			*fd = -1;
		}
	}
}

void control__close(struct control *control)
{
	for (int i = 0; i < CONTROL_CLIENTS && control->path; i++)
		if (control->clients[i] >= 0)
			close(control->clients[i]);
	if (control->fd >= 0) {
		close(control->fd);
		unlink(control->path);
	}
	free(control->path);
	*control = (struct control){.fd = -1};
}

int control__ask(const char *folder, const char *request, json_t **answer)
{
	const struct timeval most = {.tv_sec = ANSWER_SECONDS};
	struct sockaddr_un address;
	char *text = malloc(CONTROL_ANSWER);
	int folder_fd = set_address(&address, folder), fd = -1;
	int err = !text ? -ENOMEM : folder_fd < 0 ? folder_fd : 0;
	ssize_t got;

	if (!err) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) ||
		    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) ||
		    connect(fd, (const struct sockaddr *)&address, sizeof(address)) ||
		    send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
			err = errno == EAGAIN ? -ETIMEDOUT : -errno;
	}
	if (!err) {
		got = recv(fd, text, CONTROL_ANSWER, 0);
		*answer = got > 0 ? json_loadb(text, got, 0, NULL) : NULL;
		if (!*answer)
			err = got < 0 && errno == EAGAIN ? -ETIMEDOUT : -EPROTO;
	}
	if (fd >= 0)
		close(fd);
	if (folder_fd >= 0)
		close(folder_fd);
	free(text);
	return err;
}
