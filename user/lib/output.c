// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long env_id(const char *name)
{
	const char *value = getenv(name);
	char *rest;
	long id;

	if (!value || !*value)
		return -1;
	errno = 0;
	id = strtol(value, &rest, 10);
	return errno || *rest || id < 0 || id > INT_MAX ? -1 : id;
}

bool output__is_stdout(const char *path)
{
	return !strcmp(path, "-");
}

const char *output__name(const char *path)
{
	return output__is_stdout(path) ? "standard output" : path;
}

/*
 * A file that we create under sudo belongs to the user who called sudo. An existing file keeps its
 * owner, as a change would be a surprise; O_EXCL tells the two cases apart without a race.
 */
int output__open(const char *path)
{
	int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY;
	long uid = env_id("SUDO_UID"), gid = env_id("SUDO_GID");
	int fd;

	if (output__is_stdout(path))
		return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	fd = open(path, flags | O_EXCL, 0644);
	if (fd < 0 && errno == EEXIST)
		return open(path, flags | O_TRUNC, 0644);
	if (fd >= 0 && uid >= 0 && gid >= 0 && geteuid() == 0 && fchown(fd, uid, gid)) {
		/* The file system has no owners, so nothing is lost. */
	}
	return fd;
}
