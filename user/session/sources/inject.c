// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/inject.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/lib/log.h"
#include "user/proc/deputy.h"
#include "user/proc/environ.h"
#include "user/proc/proc.h"
#include "user/proc/target_file.h"
#include "user/session/session.h"

/* ---- the library, which the process has to see: its file system is hostile, links must not lead out of it ---- */

#define NAME "libstepflame-inject.so"

struct inject_library {
	char path[PATH_MAX]; /* in the process's file system */
	bool copied;         /* copied to a new folder, since the process cannot see ours */
	char why[256];
};

/* What the deputy does here with a path that the process sees. */
struct path_request {
	pid_t pid;
	char path[PATH_MAX];
};

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

int inject__own_library(char path[PATH_MAX])
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
	int fd = target_file__of(pid, path, 0);
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
	int dir = target_file__of(pid, folder, O_DIRECTORY), to, err = 0;
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
	int err = inject__own_library(out->path), fd;
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

/*
 * Finds the library, and copies it if the process cannot see it. 0, or -errno with `why`. The caller
 * releases *out once the process has loaded the library, or will not.
 */
static int make_library(const struct process *process, struct inject_library *out)
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
	dir = target_file__of(r->pid, dirname(folder), O_DIRECTORY);
	if (dir < 0)
		return dir;
	unlinkat(dir, basename(name), 0);
	close(dir);
	return 0;
}

static void release_library(const struct process *process, struct inject_library *library)
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
	int at = target_file__of(r->pid, r->path, O_DIRECTORY),
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
	int fd = target_file__of(r->pid, r->path, 0);

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

/* Would the injection library find a libcupti? Looks where user/inject/cupti.c looks; of the loader's own places, only in the usual ones. */
static bool finds_cupti(const struct process *process)
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

/* ---- the child that injects ---- */

/* CUDA's driver calls this function of the library that CUDA_INJECTION64_PATH names. */
#define ENTRY       "InitializeInjection"
#define PATIENCE_MS 45000
#define STOP_MS     1 /* about how long a thread of the target is stopped */
#define AT_START    "start the job with CUDA_INJECTION64_PATH=/path/to/libstepflame-inject.so instead"
#define SOCKET      3

struct load_answer {
	int err;
	struct remote_load load;
};

/*
 * Makes the child finish its work even if signals end stepflame, and closes all files of stepflame
 * in it.
 */
static void become_injector(int socket)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
	int kept = fcntl(socket, F_DUPFD, SOCKET + 1);

	setsid();
	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "stepflame-inject");
	setpriority(PRIO_PROCESS, 0, -20); /* a thread of the target waits for the child */
	dup2(kept, SOCKET);
	close_range(0, SOCKET - 1, 0);
	close_range(SOCKET + 1, ~0U, 0);
}

int inject__load(const struct process *process, const char *library, const char *entry, struct remote_load *out)
{
	struct load_answer answer = {.err = -EPIPE, .load.why = "the process stepflame-inject was killed"};
	int sockets[2], got;
	struct pollfd ready;
	pid_t pid;

	memset(out, 0, sizeof(*out));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		return -errno;
	pid = fork();
	if (!pid) {
		become_injector(sockets[1]);
		answer.err = remote__load(process, library, entry, &answer.load);
		if (send(SOCKET, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			_exit(1);
		_exit(0);
	}
	close(sockets[1]);
	ready = (struct pollfd){.fd = sockets[0], .events = POLLIN};
	do
		got = pid < 0 ? 0 : poll(&ready, 1, PATIENCE_MS);
	while (got < 0 && errno == EINTR);
	if (got > 0)
		recv(sockets[0], &answer, sizeof(answer), 0);
	close(sockets[0]);
	if (got <= 0 && pid > 0)
		kill(pid, SIGKILL); /* this releases a thread that the child holds */
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	*out = answer.load;
	return answer.err;
}

/* ---- may the library be injected? ---- */

static int check_injectable(const struct process *process)
{
	struct proc_status status = {0};
	int pid = process->pid;

	proc__status(pid, 0, &status);
	if (status.tracer) {
		log__error("end the tracer, and try again",
			   "--inject: process %d is being traced by process %d (a debugger, strace)", pid,
			   status.tracer);
		return -EBUSY;
	}
	if (status.seccomp) {
		log__error(AT_START ", or run its container without a seccomp profile",
			   "--inject: process %d has a seccomp filter, which may kill it for a system call that it "
			   "never made before",
			   pid);
		return -EOPNOTSUPP;
	}
	if (!process__file(process, "libcuda.so")) {
		log__error("wait until it uses the GPU, or " AT_START, "--inject: process %d does not use CUDA (yet)",
			   pid);
		return -EOPNOTSUPP;
	}
	if (!finds_cupti(process)) {
		log__error("install the CUPTI of the job's CUDA (pip: nvidia-cuda-cupti) where the job sees it",
			   "--inject: process %d sees no libcupti", pid);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int explain_load(const struct process *process, const struct remote_load *load, int err)
{
	const char *why = *load->why ? load->why : strerror(-err);

	if (err == -EPERM || err == -EACCES)
		log__error("run stepflame as root (sudo), or with CAP_SYS_PTRACE, and with kernel.yama.ptrace_scope "
			   "below 3",
			   "--inject: stepflame may not stop process %d: permission denied", process->pid);
	else if (err == -EAGAIN || err == -EBUSY)
		log__error("try again", "--inject: nothing was loaded into process %d: %s", process->pid, why);
	else
		log__error(AT_START ", or record without --inject", "--inject: process %d: %s", process->pid, why);
	return err;
}

int inject__into(struct session *s, const struct process *process)
{
	struct inject_library library = {0};
	struct remote_load load;
	int err;

	if (process__file(process, "libstepflame-inject.so")) {
		log__info("--inject: process %d already has the library", process->pid);
		return 0;
	}
	err = check_injectable(process);
	if (err)
		return err;
	err = make_library(process, &library);
	if (err) {
		log__error(AT_START, "--inject: process %d: %s", process->pid, library.why);
		return err;
	}
	log__info("--inject: stops one thread of %d for about %d ms and loads %s%s into it, which stays there, asleep",
		  process->pid, STOP_MS, library.path, library.copied ? " (a copy, which is deleted then)" : "");
	err = inject__load(process, library.path, ENTRY, &load);
	release_library(process, &library);
	if (err)
		return explain_load(process, &load, err);
	log__info("--inject: thread %d of %d was stopped for %.2f ms; the library was there %.0f ms later", load.tid,
		  process->pid, load.stopped_ns / 1e6, load.loaded_ns / 1e6);
	session__note(s, "injected into process %d: kernels of CUDA graphs that it made earlier may be missing",
		      process->pid);
	return 0;
}
