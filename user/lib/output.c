// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/lib/utf8.h"

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

/* ---- for people ---- */

struct people_stream {
	int fd;
	size_t held; /* bytes of the last write that may begin a code point, or a line's end */
	char bytes[UTF8_MAX];
};

static bool write_whole(int fd, const char *data, size_t bytes)
{
	for (ssize_t done; bytes; data += done, bytes -= done) {
		done = write(fd, data, bytes);
		if (done < 0 && errno == EINTR)
			done = 0;
		if (done < 0)
			return false;
	}
	return true;
}

/* Escapes what is whole, and keeps the rest. Returns how many bytes it wrote to out. */
static size_t escape_part(struct people_stream *stream, const char *data, size_t bytes, char *out)
{
	const char *at = data, *end = data + bytes, *from;
	size_t used = 0;
	uint32_t code;

	for (stream->held = 0; at < end;) {
		int cut = 0;

		from = at;
		code = utf8__next(&at, end, &cut);
		if (cut || (code == '\r' && at == end)) {
			stream->held = end - from;
			memcpy(stream->bytes, from, stream->held);
			break;
		}
		if (code == '\n' || code == '\t' || (code == '\r' && *at == '\n'))
			out[used++] = (char)code;
		else
			used += utf8__put_shown(out + used, code);
	}
	return used;
}

static ssize_t write_for_people(void *cookie, const char *data, size_t bytes)
{
	struct people_stream *stream = cookie;
	size_t all = stream->held + bytes;
	char *joined = malloc(all), *out = malloc(UTF8_SHOWN_MAX * all);
	bool done = false;

	if (joined && out) {
		memcpy(joined, stream->bytes, stream->held);
		memcpy(joined + stream->held, data, bytes);
		done = write_whole(stream->fd, out, escape_part(stream, joined, all, out));
	}
	free(joined);
	free(out);
	return done ? (ssize_t)bytes : 0;
}

FILE *output__for_people(int fd)
{
	struct people_stream *stream = calloc(1, sizeof(*stream));
	FILE *out = stream ? fopencookie(stream, "w", (cookie_io_functions_t){.write = write_for_people}) : NULL;

	if (!out) {
		free(stream);
		return NULL;
	}
	stream->fd = fd;
	if (fd == STDERR_FILENO || isatty(fd))
		setvbuf(out, NULL, _IOLBF, 0);
	return out;
}
