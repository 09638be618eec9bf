// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify__service(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t bytes = path ? strlen(path) : 0;
	int fd;

	if (!bytes || bytes >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, bytes);
	if (path[0] == '@')
		address.sun_path[0] = 0; /* a name that is in no file system */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&address,
		   offsetof(struct sockaddr_un, sun_path) + bytes) < 0) {
		/* It does not listen: that is its matter. */
	}
	close(fd);
}

void notify__alive(uint64_t now_ns)
{
	static uint64_t next_ns;
	const char *usec = getenv("WATCHDOG_USEC");
	uint64_t patience_ns = usec ? strtoull(usec, NULL, 10) * 1000 : 0;

	if (!patience_ns || now_ns < next_ns)
		return;
	next_ns = now_ns + patience_ns / 2;
	notify__service("WATCHDOG=1");
}
