// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/proc/far_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/waits.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"

#define PAGE       4096u
#define LINE_BYTES 8192 /* of the mounts: longer ones are left out */

/* Where a call has its file: a path, a path behind the folder that it begins in, or a descriptor. */
enum argument { ARGUMENT_NONE, ARGUMENT_PATH, ARGUMENT_AT, ARGUMENT_FD };

static enum argument argument_of(long syscall)
{
	switch (syscall) {
	case SYS_OPEN:
	case SYS_STAT:
	case SYS_LSTAT:
	case SYS_ACCESS:
	case SYS_TRUNCATE:
	case SYS_RENAME:
	case SYS_MKDIR:
	case SYS_RMDIR:
	case SYS_LINK:
	case SYS_UNLINK:
	case SYS_READLINK:
		return ARGUMENT_PATH;
	case SYS_OPENAT:
	case SYS_MKDIRAT:
	case SYS_NEWFSTATAT:
	case SYS_UNLINKAT:
	case SYS_RENAMEAT:
	case SYS_LINKAT:
	case SYS_READLINKAT:
	case SYS_FACCESSAT:
	case SYS_RENAMEAT2:
	case SYS_STATX:
	case SYS_FACCESSAT2:
		return ARGUMENT_AT;
	case SYS_CLOSE:
	case SYS_FTRUNCATE:
	case SYS_GETDENTS64:
	case SYS_FALLOCATE:
		return ARGUMENT_FD;
	}
	return ARGUMENT_NONE;
}

bool far_files__is_call(long syscall)
{
	return argument_of(syscall) != ARGUMENT_NONE;
}

/* ---- mounts ---- */

/* The kernel's names of file systems whose answers come from a server. */
static bool is_far(const char *type)
{
	static const char *const names[] = {"nfs",  "nfs4", "cifs",   "smb3", "9p",     "ceph",     "lustre",
					    "gpfs", "afs",  "beegfs", "coda", "wekafs", "virtiofs", "orangefs"};

	if (!strcmp(type, "fuse") || !strncmp(type, "fuse.", 5) || !strcmp(type, "fuseblk"))
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(type, names[i]))
			return true;
	return false;
}

/* "31 23 0:28 ROOT POINT rw,relatime shared:1 - TYPE SOURCE OPTIONS". Changes the line. */
static bool parse_mount(char *line, char **point, char **type)
{
	char *word;

	for (int i = 0; i < 4; i++)
		strsep(&line, " ");
	*point = strsep(&line, " ");
	while ((word = strsep(&line, " ")) && strcmp(word, "-"))
		;
	*type = strsep(&line, " ");
	if (!*point || !*type)
		return false;
	proc__unescape(*point);
	return **point == '/';
}

/* How many bytes of the path the mount has; 0: the path is not in it. */
static size_t match(const char *path, const char *point)
{
	size_t bytes = strcmp(point, "/") ? strlen(point) : 0;

	return !strncmp(path, point, bytes) && (!path[bytes] || path[bytes] == '/') ? bytes + 1 : 0;
}

int far_files__of_path(const char *path, const char *mounts, char out[FAR_FILES_BYTES])
{
	char line[LINE_BYTES], *point, *type;
	size_t best = 0, bytes, length;
	int err = -ENOENT;

	if (*path != '/' || proc__leads_up(path)) /* such a name may leave a mount, by way of a link */
		return -ENOENT;
	for (const char *at = mounts; at && *at; at = strchr(at, '\n')) {
		at += *at == '\n';
		length = strcspn(at, "\n");
		if (length >= sizeof(line))
			continue;
		memcpy(line, at, length);
		line[length] = 0;
		bytes = parse_mount(line, &point, &type) ? match(path, point) : 0;
		if (bytes < best || !bytes)
			continue;
		best = bytes; /* a later mount at the same place hides the one before */
		err = is_far(type) && snprintf(out, FAR_FILES_BYTES, "%s (%s)", point, type) < FAR_FILES_BYTES
			      ? 0
			      : -ENOENT;
	}
	return err;
}

/* ---- the call ---- */

/* Of a link in /proc/PID. */
static int read_link(pid_t pid, const char *name, char out[PATH_MAX])
{
	char path[64];
	ssize_t bytes;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	bytes = readlink(path, out, PATH_MAX);
	if (bytes < 0 || bytes == PATH_MAX)
		return bytes < 0 ? -errno : -ENAMETOOLONG;
	out[bytes] = 0;
	return 0;
}

static int read_fd(pid_t pid, uint64_t fd, char out[PATH_MAX])
{
	char name[32];

	if ((int)fd == AT_FDCWD)
		return read_link(pid, "cwd", out);
	snprintf(name, sizeof(name), "fd/%d", (int)fd);
	return read_link(pid, name, out);
}

static int read_text(pid_t pid, uint64_t address, char out[PATH_MAX])
{
	size_t cnt = 0;

	while (cnt < PATH_MAX) {
		size_t bytes = PAGE - (address + cnt) % PAGE;
		int err;

		bytes = bytes < PATH_MAX - cnt ? bytes : PATH_MAX - cnt;
		err = process__read_memory(pid, address + cnt, out + cnt, bytes);
		if (err)
			return err;
		if (memchr(out + cnt, 0, bytes))
			return 0;
		cnt += bytes;
	}
	return -ENAMETOOLONG;
}

int far_files__of(pid_t pid, const struct task *task, const char *mounts, char out[FAR_FILES_BYTES])
{
	enum argument argument = argument_of(task->syscall);
	char text[PATH_MAX] = "", base[PATH_MAX] = "", path[2 * PATH_MAX];
	int err = argument == ARGUMENT_NONE ? -ENOENT : 0;

	if (!err && argument != ARGUMENT_FD)
		err = read_text(pid, task->args[argument == ARGUMENT_AT], text);
	if (!err && *text != '/')
		err = read_fd(pid, argument == ARGUMENT_PATH ? (uint64_t)AT_FDCWD : task->args[0], base);
	if (err)
		return err;
	snprintf(path, sizeof(path), "%s%s%s", *text == '/' ? "" : base, *text == '/' || !*text ? "" : "/", text);
	return far_files__of_path(path, mounts, out);
}
