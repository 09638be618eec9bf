// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/inject_library.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "user/proc/deputy.h"
#include "user/proc/environ.h"
#include "user/proc/target_file.h"

#define NAME "libstepflame-inject.so"

/* What the deputy does here with a path that the process sees. */
struct path_request {
	pid_t pid;
	char path[PATH_MAX];
};

/* By the deputy: opens a path in the process's file system. A descriptor or -errno. */
static int open_in_root_of(pid_t pid, const char *path, int flags)
{
	int root = target_file__root(pid), fd = root < 0 ? root : target_file__open(root, path, flags);

	if (root >= 0)
		close(root);
	return fd;
}

static int ask_deputy(pid_t pid, deputy_work work, const char *path)
{
	struct path_request request = {.pid = pid};

	if ((size_t)snprintf(request.path, sizeof(request.path), "%s", path) >= sizeof(request.path))
		return -ENAMETOOLONG;
	return deputy__run(pid, work, &request, sizeof(request), NULL);
}

static bool allows_code(int fd)
{
	struct statvfs fs;

	return !fstatvfs(fd, &fs) && !(fs.f_flag & ST_NOEXEC);
}

/* ---- the library ---- */

int inject_library__own(char path[PATH_MAX])
{
	static const char *const places[] = {"", "/../lib/stepflame"};
	const char *given = secure_getenv("STEPFLAME_INJECT");
	char self[PATH_MAX] = "", tried[PATH_MAX + 64];

	if (given && *given)
		return realpath(given, path) ? 0 : -errno;
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -errno;
	dirname(self);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(tried, sizeof(tried), "%s%s/" NAME, self, places[i]);
		if (realpath(tried, path))
			return 0;
	}
	return -ENOENT;
}

/* Does the process see the same file at this path, and may it load code from there? */
static bool sees_same_file(pid_t pid, const char *path, const struct stat *own)
{
	int fd = open_in_root_of(pid, path, 0);
	struct stat theirs;
	bool same;

	if (fd < 0)
		return false;
	same = !fstat(fd, &theirs) && theirs.st_dev == own->st_dev && theirs.st_ino == own->st_ino && allows_code(fd);
	close(fd);
	return same;
}

static int copy_library_to(pid_t pid, const char *folder, int from, struct inject_library *out)
{
	int dir = open_in_root_of(pid, folder, O_DIRECTORY), to, err = 0;
	struct stat stat;
	off_t at = 0;

	if (dir < 0)
		return dir;
	snprintf(out->path, sizeof(out->path), "%s/.stepflame-%d-%d.so", folder, getpid(), pid);
	to = allows_code(dir) ? openat(dir, strrchr(out->path, '/') + 1, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755)
			      : -1;
	err = to < 0 ? -EACCES : fstat(from, &stat) ? -errno : 0;
	while (!err && at < stat.st_size)
		err = sendfile(to, from, &at, stat.st_size - at) <= 0 ? -EIO : 0;
	if (to >= 0) {
		fchmod(to, 0755); /* whatever the umask */
		close(to);
		if (err)
			unlinkat(dir, strrchr(out->path, '/') + 1, 0);
	}
	close(dir);
	return err;
}

static int make_in_deputy(const void *in, struct deputy_out *answer)
{
	static const char *const folders[] = {"/tmp", "/dev/shm", "/var/tmp"};
	struct inject_library *out = (void *)answer->bytes;
	const pid_t *pid = in;
	int err = inject_library__own(out->path), fd;
	struct stat own;

	out->copied = false;
	if (err) {
		snprintf(out->why, sizeof(out->why), "%s is not there (beside stepflame, or in ../lib/stepflame)",
			 NAME);
		return -EOPNOTSUPP;
	}
	fd = open(out->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &own)) {
		err = -errno;
		snprintf(out->why, sizeof(out->why), "%.150s cannot be read: %s", out->path, strerror(-err));
		goto out;
	}
	if (sees_same_file(*pid, out->path, &own))
		goto out;
	err = -EACCES;
	for (size_t i = 0; err && i < sizeof(folders) / sizeof(*folders); i++)
		err = copy_library_to(*pid, folders[i], fd, out);
	out->copied = !err;
	if (err)
		snprintf(out->why, sizeof(out->why),
			 "it does not see " NAME " in a file system from which code may be loaded, and has no /tmp, "
			 "/dev/shm or /var/tmp for a copy");
out:
	if (fd >= 0)
		close(fd);
	return err;
}

int inject_library__make(const struct process *process, struct inject_library *out)
{
	const struct deputy_out *answer = NULL;
	int err = deputy__run(process->pid, make_in_deputy, &process->pid, sizeof(process->pid), &answer);

	if (answer)
		memcpy(out, answer->bytes, sizeof(*out));
	else
		snprintf(out->why, sizeof(out->why), "its file system does not answer");
	return err;
}

static int remove_in_deputy(const void *in, struct deputy_out *out)
{
	const struct path_request *r = in;
	char folder[PATH_MAX], name[PATH_MAX];
	int dir;

	(void)out;
	memcpy(folder, r->path, sizeof(folder));
	memcpy(name, r->path, sizeof(name));
	dir = open_in_root_of(r->pid, dirname(folder), O_DIRECTORY);
	if (dir < 0)
		return dir;
	unlinkat(dir, basename(name), 0);
	close(dir);
	return 0;
}

void inject_library__release(const struct process *process, struct inject_library *library)
{
	if (library->copied)
		ask_deputy(process->pid, remove_in_deputy, library->path);
	library->copied = false;
}

/* ---- libcupti ---- */

/* Returns 1 when the folder holds libcupti. */
static int find_cupti_in_deputy(const void *in, struct deputy_out *out)
{
	const struct path_request *r = in;
	int at = open_in_root_of(r->pid, r->path, O_DIRECTORY),
	    fd = at < 0 ? -1 : openat(at, ".", O_RDONLY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool found = false;

	(void)out;
	if (at >= 0)
		close(at);
	if (fd >= 0 && !dir)
		close(fd);
	while (dir && !found && (entry = readdir(dir)))
		found = !strncmp(entry->d_name, "libcupti.so", 11);
	if (dir)
		closedir(dir);
	return found;
}

static bool has_cupti(const struct process *process, const char *folder)
{
	return ask_deputy(process->pid, find_cupti_in_deputy, folder) == 1;
}

/* Returns 1 when the path leads to a file. */
static int look_in_deputy(const void *in, struct deputy_out *out)
{
	const struct path_request *r = in;
	int fd = open_in_root_of(r->pid, r->path, 0);

	(void)out;
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool has_cupti_beside(const struct process *process, const char *library, const char *const *places, size_t cnt)
{
	const struct mapped_file *file = process__file(process, library);
	char folder[PATH_MAX], path[PATH_MAX + 64];
	bool found = false;

	if (!file)
		return false;
	snprintf(folder, sizeof(folder), "%s", file->path);
	dirname(folder);
	for (size_t i = 0; i < cnt && !found; i++) {
		snprintf(path, sizeof(path), "%s%s", folder, places[i]);
		found = has_cupti(process, path);
	}
	return found;
}

static bool has_cupti_listed(const struct process *process, const char *variable)
{
	char *folders = malloc(65536), *rest = folders, *folder;
	bool found = false;

	if (folders && !process__environ(process->pid, variable, folders, 65536))
		while (!found && (folder = strsep(&rest, ":")))
			found = *folder == '/' && has_cupti(process, folder);
	free(folders);
	return found;
}

/* Looks where user/inject/cupti.c looks; of the loader's own places, only in the usual ones. */
bool inject_library__finds_cupti(const struct process *process)
{
	static const char *const besides[] = {"", "/../../cuda_cupti/lib", "/../extras/CUPTI/lib64",
					      "/../../../extras/CUPTI/lib64"};
	static const char *const of_torch[] = {"/../../nvidia/cu13/lib", "/../../nvidia/cuda_cupti/lib", ""};
	static const char *const usual[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64",
					    "/usr/local/cuda/extras/CUPTI/lib64"};
	char given[PATH_MAX];

	if ((!process__environ(process->pid, "STEPFLAME_CUPTI", given, sizeof(given)) &&
	     ask_deputy(process->pid, look_in_deputy, given) == 1) ||
	    process__file(process, "libcupti.so") ||
	    has_cupti_beside(process, "libcudart.so", besides, sizeof(besides) / sizeof(*besides)) ||
	    has_cupti_beside(process, "libtorch_cuda.so", of_torch, sizeof(of_torch) / sizeof(*of_torch)) ||
	    has_cupti_listed(process, "LD_LIBRARY_PATH"))
		return true;
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
		if (has_cupti(process, usual[i]))
			return true;
	return false;
}
