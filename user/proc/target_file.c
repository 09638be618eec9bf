// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/proc/target_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "user/lib/utf8.h"
#include "user/proc/deputy.h"

#define VERSION_MAX_BYTES 65536

int target_file__root(pid_t pid)
{
	char root[32];
	int fd;

	snprintf(root, sizeof(root), "/proc/%d/root", pid);
	fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int target_file__open(int root, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned int)flags | O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

int target_file__of(pid_t pid, const char *path, int flags)
{
	int root = target_file__root(pid), fd = root < 0 ? root : target_file__open(root, path, flags);

	if (root >= 0)
		close(root);
	return fd;
}

/* The file is checked before it is opened for reading, since to open anything else may have effects. */
int target_file__reopen(int at)
{
	char self[32];
	struct stat st;
	int err = fstat(at, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL, fd = -1;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
	if (!err) {
		fd = open(self, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		err = fd < 0 ? -errno : 0;
	}
	close(at);
	return err ?: fd;
}

struct file_request {
	pid_t pid;
	char path[PATH_MAX];
};

static int read_in_deputy(const void *in, struct deputy_out *out)
{
	const struct file_request *r = in;
	int at = target_file__of(r->pid, r->path, 0), fd = at < 0 ? at : target_file__reopen(at), err;
	ssize_t got = 1;

	if (fd < 0)
		return fd;
	while (got > 0 && out->size < VERSION_MAX_BYTES) {
		got = read(fd, out->bytes + out->size, VERSION_MAX_BYTES - out->size);
		out->size += got > 0 ? (size_t)got : 0;
	}
	err = got < 0 ? -errno : 0;
	close(fd);
	return err;
}

/* The value in the line that begins at `line`; NULL: it is another line. *length: of the value. */
static const char *value_in(const char *line, size_t bytes, const char *variable, size_t *length)
{
	size_t name = strlen(variable), at = name;
	const char *end;

	if (bytes <= name || memcmp(line, variable, name) || line[name] != ' ')
		return NULL;
	while (at < bytes && line[at] != '\'' && line[at] != '"')
		at++;
	if (at == bytes)
		return NULL;
	end = memchr(line + at + 1, line[at], bytes - at - 1);
	*length = (end ? (size_t)(end - line) : bytes) - at - 1;
	return line + at + 1;
}

bool target_file__version(pid_t pid, const char *path, const char *variable, char *version, size_t size)
{
	struct file_request request = {.pid = pid};
	const struct deputy_out *file;
	const char *value = NULL;
	size_t length;

	if ((size_t)snprintf(request.path, sizeof(request.path), "%s", path) >= sizeof(request.path) ||
	    deputy__run(pid, read_in_deputy, &request, sizeof(request), &file))
		return false;
	for (size_t at = 0, bytes; !value && at < file->size; at += bytes + 1) {
		const char *line = file->bytes + at, *end = memchr(line, '\n', file->size - at);

		bytes = end ? (size_t)(end - line) : file->size - at;
		value = value_in(line, bytes, variable, &length);
	}
	if (value)
		utf8__copy(version, size, value, length);
	return value;
}
