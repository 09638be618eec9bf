// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/capabilities.h"
#include "user/lib/log.h"
#include "user/lib/utf8.h"

#define LINKS_MAX 16 /* one within the other */
#define FOLDER    (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* -1 without sudo. */
static long env_id(const char *name)
{
	const char *value = geteuid() ? NULL : secure_getenv(name);
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
	return !strcmp(path, "-") || !strcmp(path, "/dev/stdout");
}

const char *output__name(const char *path)
{
	return output__is_stdout(path) ? "standard output" : path;
}

/* Can only root, or the user of stepflame, have put there what belongs to uid? */
static bool is_trusted(uid_t uid)
{
	return !uid || uid == geteuid() || (long)uid == env_id("SUDO_UID");
}

static int refuse_output(struct output *out, const char *why)
{
	out->refused = why;
	return -EPERM;
}

/* ---- the folder ---- */

static int open_folder(struct output *out, int from, const char *path, int links);

static int follow_link(struct output *out, int folder, const char *name, int links)
{
	int link = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), err;
	char target[PATH_MAX];
	struct stat st;
	ssize_t length;

	if (link < 0)
		return -errno;
	length = fstat(link, &st) ? -1 : readlinkat(link, "", target, sizeof(target) - 1);
	if (length < 0 || !S_ISLNK(st.st_mode)) {
		err = -ENOTDIR;
	} else if (!is_trusted(st.st_uid)) {
		err = refuse_output(out, "a folder on the way to it is a symbolic link of another user");
	} else {
		target[length] = 0;
		err = links ? open_folder(out, folder, target, links - 1) : -ELOOP;
	}
	close(link);
	return err;
}

/* Opens the folder `path`, relative to the folder `from`: a descriptor or -errno. */
static int open_folder(struct output *out, int from, const char *path, int links)
{
	int folder = openat(from, *path == '/' ? "/" : ".", FOLDER), next;
	char copy[PATH_MAX], *rest = copy, *part;

	if (folder < 0)
		return -errno;
	if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy)) {
		close(folder);
		return -ENAMETOOLONG;
	}
	while (folder >= 0 && (part = strsep(&rest, "/"))) {
		if (!*part)
			continue;
		next = openat(folder, part, FOLDER);
		if (next < 0)
			next = errno == ENOTDIR ? follow_link(out, folder, part, links) : -errno;
		close(folder);
		folder = next;
	}
	return folder;
}

/* Opens out->folder, and sets out->name: "" for a path that can only be a folder. */
static int find_folder(const char *path, struct output *out)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char folder[PATH_MAX];

	if (snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path) >= (int)sizeof(folder) ||
	    snprintf(out->name, sizeof(out->name), "%s", name) >= (int)sizeof(out->name))
		return -ENAMETOOLONG;
	out->folder = open_folder(out, AT_FDCWD, folder, LINKS_MAX);
	return out->folder < 0 ? out->folder : 0;
}

/* ---- what has the name ---- */

/*
 * May a new file take the place of this one? Not, in a folder that several users share, if it is
 * another one's, as in /tmp.
 */
static int judge_file(struct output *out, const struct stat *st)
{
	struct stat folder;
	bool shared;

	if (fstat(out->folder, &folder))
		return -errno;
	shared = (folder.st_mode & (S_IWGRP | S_IWOTH)) || !is_trusted(folder.st_uid);
	if (shared && !is_trusted(st->st_uid) && st->st_uid != folder.st_uid)
		return refuse_output(out, "a file of another user has this name");
	return 0;
}

/* What is no regular file is written to as it is: a device, a pipe; *as_it_is is true then. */
static int judge_name(struct output *out, bool *as_it_is)
{
	struct stat st, target;

	*as_it_is = false;
	if (!*out->name || !strcmp(out->name, ".") || !strcmp(out->name, ".."))
		return -EISDIR;
	if (fstatat(out->folder, out->name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode))
		return judge_file(out, &st);
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!is_trusted(st.st_uid))
		return refuse_output(out, "it belongs to another user");
	if (S_ISLNK(st.st_mode) &&
	    (fstatat(out->folder, out->name, &target, 0) || S_ISREG(target.st_mode) || S_ISDIR(target.st_mode)))
		return refuse_output(out, "it is a symbolic link, and stepflame writes through none");
	*as_it_is = true;
	return 0;
}

static int open_as_it_is(struct output *out)
{
	struct stat st = {};
	int err;

	out->fd = openat(out->folder, out->name, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	err = out->fd < 0 || fstat(out->fd, &st) ? -errno : 0;
	close(out->folder);
	out->folder = -1;
	if (!err && (S_ISREG(st.st_mode) || !is_trusted(st.st_uid))) /* replaced since */
		err = refuse_output(out, "it belongs to another user");
	return err;
}

static int name_temporary(struct output *out)
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -errno;
	snprintf(out->temporary, sizeof(out->temporary), ".stepflame-%016" PRIx64, number);
	return 0;
}

/* A file that has no name yet, where the file system can: a kill then leaves nothing. */
static int make_unnamed(struct output *out)
{
	out->fd = openat(out->folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
	if (out->fd < 0)
		return -errno;
	out->unnamed = fcntl(out->fd, F_DUPFD_CLOEXEC, 0);
	return out->unnamed < 0 ? -errno : 0;
}

static int make_named(struct output *out)
{
	int err = name_temporary(out);

	if (err)
		return err;
	out->fd = openat(out->folder, out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out->fd >= 0)
		return 0;
	out->temporary[0] = 0;
	return -errno;
}

static int make_temporary(struct output *out)
{
	long uid = env_id("SUDO_UID"), gid = env_id("SUDO_GID");
	int err = make_unnamed(out);

	if (err == -EOPNOTSUPP || err == -EISDIR || err == -EINVAL)
		err = make_named(out);
	if (err)
		return err;
	if (uid >= 0 && gid >= 0 && fchown(out->fd, uid, gid)) {
		/* The file system has no owners, so nothing is lost. */
	}
	return 0;
}

/* ---- outputs ---- */

/* Capabilities serve to trace processes. Only root writes where its user could not. */
static uint64_t be_the_user(void)
{
	return geteuid() ? capabilities__lower(CAPABILITIES_OF_FILES) : 0;
}

static int begin_output(const char *path, struct output *out, bool check)
{
	uint64_t lowered = be_the_user();
	bool as_it_is;
	int err;

	*out = (struct output){.fd = -1, .folder = -1, .unnamed = -1};
	err = find_folder(path, out) ?: judge_name(out, &as_it_is);
	if (!err && check)
		err = faccessat(out->folder, as_it_is ? out->name : ".", W_OK, AT_EACCESS) ? -errno : 0;
	else if (!err)
		err = as_it_is ? open_as_it_is(out) : make_temporary(out);
	capabilities__raise(lowered);
	if (err && out->fd >= 0) {
		close(out->fd);
		out->fd = -1;
	}
	if (err || check)
		output__release(out);
	return err;
}

int output__open(const char *path, struct output *out)
{
	if (!output__is_stdout(path))
		return begin_output(path, out, false);
	*out = (struct output){.folder = -1, .unnamed = -1};
	out->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	return out->fd < 0 ? -errno : 0;
}

int output__check(const char *path, struct output *out)
{
	return output__is_stdout(path) ? 0 : begin_output(path, out, true);
}

/* Makes the last folder of path, unless something has its name. 0 or -errno. */
static int make_last_folder(const char *path, struct output *out)
{
	long uid = env_id("SUDO_UID"), gid = env_id("SUDO_GID");
	int err;

	*out = (struct output){.fd = -1, .folder = -1, .unnamed = -1};
	err = find_folder(path, out);
	if (err || !*out->name)
		goto out;
	if (mkdirat(out->folder, out->name, 0755)) {
		err = errno == EEXIST ? 0 : -errno;
	} else if (uid >= 0 && gid >= 0 && fchownat(out->folder, out->name, uid, gid, AT_SYMLINK_NOFOLLOW)) {
		/* The file system has no owners, so nothing is lost. */
	}
out:
	if (out->folder >= 0)
		close(out->folder);
	out->folder = -1;
	return err;
}

int output__make_folder(const char *path, struct output *out)
{
	uint64_t lowered = be_the_user();
	char part[PATH_MAX];
	int err = snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part) ? -ENAMETOOLONG : 0;

	*out = (struct output){.fd = -1, .folder = -1, .unnamed = -1};
	for (char *end = part; !err && *end; end++) {
		if (*end != '/' || end == part)
			continue;
		*end = 0;
		err = make_last_folder(part, out);
		*end = '/';
	}
	err = err ?: make_last_folder(part, out);
	capabilities__raise(lowered);
	return err;
}

/* linkat replaces no file, so the file takes its name in two steps. */
static int name_unnamed(struct output *out)
{
	char path[32];
	int err = name_temporary(out);

	if (err)
		return err;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", out->unnamed);
	if (!linkat(AT_FDCWD, path, out->folder, out->temporary, AT_SYMLINK_FOLLOW))
		return 0;
	out->temporary[0] = 0;
	return -errno;
}

int output__keep(struct output *out)
{
	uint64_t lowered;
	int err = 0;

	if (out->folder < 0)
		return 0;
	lowered = be_the_user();
	if (out->unnamed >= 0)
		err = name_unnamed(out);
	if (!err && renameat(out->folder, out->temporary, out->folder, out->name))
		err = -errno;
	capabilities__raise(lowered);
	if (!err)
		out->temporary[0] = 0;
	output__release(out);
	return err;
}

void output__release(struct output *out)
{
	uint64_t lowered = be_the_user();

	if (out->temporary[0])
		unlinkat(out->folder, out->temporary, 0);
	capabilities__raise(lowered);
	out->temporary[0] = 0;
	if (out->unnamed >= 0)
		close(out->unnamed);
	if (out->folder >= 0)
		close(out->folder);
	out->unnamed = out->folder = -1;
}

void output__explain(const char *path, const struct output *out, int err)
{
	bool full = !out->refused && (err == -ENOSPC || err == -EDQUOT);

	log__error(full ? "free some space, or choose another file with -o FILE"
			: "choose another file with -o FILE, in a folder of your own",
		   "cannot write %s: %s", output__name(path), out->refused ?: strerror(-err));
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

static int close_for_people(void *cookie)
{
	free(cookie);
	return 0;
}

FILE *output__for_people(int fd)
{
	struct people_stream *stream = calloc(1, sizeof(*stream));
	FILE *out = stream ? fopencookie(stream, "w",
					 (cookie_io_functions_t){.write = write_for_people, .close = close_for_people})
			   : NULL;

	if (!out) {
		free(stream);
		return NULL;
	}
	stream->fd = fd;
	if (fd == STDERR_FILENO || isatty(fd))
		setvbuf(out, NULL, _IOLBF, 0);
	return out;
}
