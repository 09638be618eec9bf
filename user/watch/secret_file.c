// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/log.h"

int secret_file__refuse(const char *what, const char *path, const char *why, const char *fix)
{
	log__error(fix, "cannot use the %s in %s: %s", what, path, why);
	return -EINVAL;
}

int secret_file__open(const char *what, const char *path, const char *option, bool secret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char fix[64];
	struct stat st;
	int err = 0;

	snprintf(fix, sizeof(fix), "name a file that can be read with %s", option);
	if (fd < 0 || fstat(fd, &st))
		err = secret_file__refuse(what, path, strerror(errno), fix);
	else if (!S_ISREG(st.st_mode))
		err = secret_file__refuse(what, path, "it is no regular file", fix);
	else if (secret && ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & (S_IRWXG | S_IRWXO)))
		err = secret_file__refuse(what, path, "others may read or write it",
					  "chmod 600 FILE, and chown it to who runs this");
	if (err && fd >= 0)
		close(fd);
	return err ?: fd;
}
