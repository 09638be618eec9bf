// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/notify.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Returns whether it was sent. */
static bool send_state(const char *state, int flags)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t bytes = path ? strlen(path) : 0;
	bool sent;
	int fd;

	if (!bytes || bytes >= sizeof(address.sun_path))
		return false;
	memcpy(address.sun_path, path, bytes);
	if (path[0] == '@')
		address.sun_path[0] = 0; /* a name that is in no file system */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | flags, (const struct sockaddr *)&address,
		      offsetof(struct sockaddr_un, sun_path) + bytes) >= 0;
	close(fd);
	return sent;
}

void notify__service(const char *state)
{
	/* A service that is never ready is ended; the end of one waits for nobody. */
	send_state(state, strcmp(state, "READY=1") ? MSG_DONTWAIT : 0);
}

void notify__alive(uint64_t now_ns)
{
	static uint64_t next_ns;
	const char *usec = getenv("WATCHDOG_USEC");
	uint64_t patience_ns = usec ? strtoull(usec, NULL, 10) * 1000 : 0;

	if (!patience_ns || now_ns < next_ns)
		return;
	if (send_state("WATCHDOG=1", MSG_DONTWAIT))
		next_ns = now_ns + patience_ns / 2;
}
