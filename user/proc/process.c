/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A live process by way of /proc: identity, command line, mapped files, memory, children. In: a
 * pid. Out: struct process. Any thread may call it; there is no state. The target chooses its comm
 * (any bytes, ')' too), its command line and the names of the files that it maps, so nothing here
 * trusts those.
 */
#include "user/proc/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/capabilities.h"
#include "user/lib/map.h"
#include "user/lib/restrictions.h"
#include "user/proc/deputy.h"
#include "user/proc/mapped_file.h"
#include "user/proc/proc.h"
#include "user/proc/task.h"

#define COMMAND_BYTES sizeof(((struct process *)0)->command)

static void process__set_command(struct process *p, const char *command)
{
	size_t length = COMMAND_BYTES - 1;

	memcpy(p->command, command, length);
	while (length && !p->command[length - 1])
		length--;
	for (size_t i = 0; i < length; i++) {
		if (!p->command[i])
			p->command[i] = ' ';
	}
	p->command[length] = 0;
}

/*
 * 0, or -EPERM: the rights of stepflame's program file do not serve to look at other users'
 * processes; -EACCES: no ptrace access. With CAP_PERFMON alone, Linux 6.15 shows the maps of a
 * process whose files and memory it does not show.
 */
static int check_access(const struct proc_status *status)
{
	char path[32], root[4];

	for (size_t i = 0; i < sizeof(status->uids) / sizeof(*status->uids); i++)
		if (capabilities__of_program() && geteuid() && status->uids[i] != getuid())
			return -EPERM;
	snprintf(path, sizeof(path), "/proc/%d/root", status->tgid);
	return readlink(path, root, sizeof(root)) < 0 && errno == EACCES ? -EACCES : 0;
}

/* Returns its command line, COMMAND_BYTES long, and then its files. */
static int read_in_deputy(const void *in, struct deputy_out *out)
{
	const pid_t *pid = in;
	char *command;
	size_t size;
	int err = proc__slurp_memory(*pid, 0, "cmdline", COMMAND_BYTES, &command, &size);

	if (err)
		return err;
	memset(out->bytes, 0, COMMAND_BYTES);
	memcpy(out->bytes, command, size);
	out->size = COMMAND_BYTES;
	free(command);
	return mapped_files__pack(*pid, out);
}

int process__read(pid_t pid, struct process *out)
{
	const struct deputy_out *answer;
	struct proc_status status;
	struct proc_stat stat;
	int err;

	memset(out, 0, sizeof(*out));
	if (pid <= 0)
		return -ESRCH;
	err = proc__status(pid, 0, &status) ?: check_access(&status);
	if (err)
		return err;
	out->pid = status.tgid;
	out->nspid = status.nspid;
	out->uid = status.uids[0];
	err = proc__stat(out->pid, 0, &stat);
	if (err)
		return err;
	if (!proc_stat__is_program(&stat))
		return -ESRCH;
	out->parent = stat.parent;
	out->start_time = stat.start_time;
	memcpy(out->comm, stat.comm, sizeof(out->comm));
	err = deputy__run(out->pid, read_in_deputy, &out->pid, sizeof(out->pid), &answer);
	if (err)
		return err;
	process__set_command(out, answer->bytes);
	err = mapped_files__unpack(out, answer, COMMAND_BYTES);
	if (!err && !process__alive(out)) /* the pid may be another process's already */
		err = -ESRCH;
	if (err)
		process__release(out);
	return err;
}

/* Does its main thread no longer run, and others do? */
static bool main_thread_has_ended(pid_t pid)
{
	struct proc_stat stat;
	bool runs = false;
	pid_t *tids;
	int cnt;

	if (proc__stat(pid, 0, &stat) || !proc_stat__dead(&stat))
		return false;
	cnt = task__list(pid, &tids);
	for (int i = 0; i < cnt; i++)
		runs |= !proc__stat(pid, tids[i], &stat) && !proc_stat__dead(&stat);
	if (cnt >= 0)
		free(tids);
	return runs;
}

const char *process__explain(int err, pid_t pid, char *why, size_t size)
{
	const char *fix = NULL, *text;

	switch (err) {
	case -ESRCH:
		if (main_thread_has_ended(pid)) {
			snprintf(why, size,
				 "the main thread of process %d has ended: the kernel shows nothing of its memory",
				 pid);
			return "let the main thread of the job wait for the others (threading.Thread.join)";
		}
		snprintf(why, size, "there is no process %d", pid);
		return "stepflame ps lists the training processes of this host";
	case -EPERM:
	case -EACCES:
		if (err == -EPERM && capabilities__of_program() && geteuid()) {
			snprintf(why, size,
				 "process %d is another user's, and file capabilities serve for your own only", pid);
			return "run stepflame as root (sudo)";
		}
		if (capabilities__held() & CAPABILITY(CAP_SYS_PTRACE) && capabilities__in_user_namespace()) {
			snprintf(why, size,
				 "may not examine process %d: CAP_SYS_PTRACE in this user namespace is not for it",
				 pid);
			return "run stepflame outside of the user namespace: on the host, or where the process runs";
		}
		if (yama__scope() >= YAMA_NOBODY) {
			snprintf(why, size, "may not examine process %d: kernel.yama.ptrace_scope is %d", pid,
				 yama__scope());
			return YAMA_FIX;
		}
		if (capabilities__held() & CAPABILITY(CAP_SYS_PTRACE)) {
			snprintf(why, size, "may not examine process %d: permission denied", pid);
			return "run stepflame where the process was started, not in a container or user namespace "
			       "beside it; "
			       "stepflame doctor says what restricts it";
		}
		snprintf(why, size, "may not examine process %d: CAP_SYS_PTRACE is missing", pid);
		return "run stepflame as root (sudo), or with CAP_SYS_PTRACE";
	case -ETIMEDOUT:
		snprintf(why, size, "process %d is not readable: it does not answer reads of its memory or files", pid);
		return "find out what its memory and files wait for (FUSE, NFS, userfaultfd), then try again";
	case -E2BIG:
		snprintf(why, size, "process %d maps more than %d files as code: it is no training job", pid,
			 FILES_MAX);
		return "stepflame ps lists the training processes of this host";
	}
	text = mapped_file__explain(err, &fix);
	snprintf(why, size, "cannot examine process %d: %s%s", pid, text ? "a file that it maps: " : "",
		 text ?: strerror(-err));
	return fix;
}

void process__release(struct process *p)
{
	free(p->files);
	p->files = NULL;
	p->file_cnt = 0;
}

uint64_t process__age_ns(const struct process *p)
{
	uint64_t start_ns = p->start_time * (1000000000ULL / sysconf(_SC_CLK_TCK)), now_ns;
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	now_ns = now.tv_sec * 1000000000ULL + now.tv_nsec;
	return now_ns > start_ns ? now_ns - start_ns : 0;
}

bool process__alive(const struct process *p)
{
	struct proc_stat stat;

	return !proc__stat(p->pid, 0, &stat) && stat.start_time == p->start_time && !proc_stat__dead(&stat);
}

const struct mapped_file *process__file(const struct process *p, const char *prefix)
{
	size_t length = strlen(prefix);

	for (size_t i = 0; i < p->file_cnt; i++) {
		const char *slash = strrchr(p->files[i].path, '/');

		if (!strncmp(slash ? slash + 1 : p->files[i].path, prefix, length))
			return &p->files[i];
	}
	return NULL;
}

/* "HIERARCHY:CONTROLLERS:PATH" lines; the kernel refuses names with a newline. */
int process__cgroup(pid_t pid, char *path, size_t size)
{
	char *data, *rest, *line;
	size_t bytes;
	int err = proc__slurp(pid, 0, "cgroup", &data, &bytes);

	if (err)
		return err;
	path[0] = 0;
	rest = data;
	while ((line = strsep(&rest, "\n"))) {
		char *of = strchr(line, ':');

		of = of ? strchr(of + 1, ':') : NULL;
		if (of && strlen(of + 1) > strlen(path))
			snprintf(path, size, "%s", of + 1);
	}
	free(data);
	return 0;
}

struct memory_request {
	pid_t pid;
	uint64_t address;
	size_t size;
};

static int read_memory(const struct memory_request *r, void *buffer)
{
	struct iovec local = {.iov_base = buffer, .iov_len = r->size};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)r->address, .iov_len = r->size};
	ssize_t got = process_vm_readv(r->pid, &local, 1, &remote, 1, 0);

	if (got < 0)
		return -errno;
	return (size_t)got == r->size ? 0 : -EFAULT;
}

static int read_memory_in_deputy(const void *in, struct deputy_out *out)
{
	const struct memory_request *r = in;

	out->size = r->size;
	return read_memory(r, out->bytes);
}

int process__read_memory(pid_t pid, uint64_t address, void *buffer, size_t size)
{
	struct memory_request request = {.pid = pid, .address = address, .size = size};
	const struct deputy_out *answer;
	int err;

	if (deputy__is_self())
		return read_memory(&request, buffer);
	if (size > DEPUTY_OUT_BYTES)
		return -EINVAL;
	err = deputy__run(pid, read_memory_in_deputy, &request, sizeof(request), &answer);
	if (!err)
		memcpy(buffer, answer->bytes, size);
	return err;
}

/* ---- other processes ---- */

int process__list(pid_t **out)
{
	pid_t *pids = NULL, *more;
	struct dirent *entry;
	int cnt = 0, capacity = 0;
	DIR *dir;

	*out = NULL;
	dir = opendir("/proc");
	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		if (cnt == capacity) {
			capacity = capacity ? capacity * 2 : 256;
			more = realloc(pids, (size_t)capacity * sizeof(*pids));
			if (!more) {
				free(pids);
				closedir(dir);
				return -ENOMEM;
			}
			pids = more;
		}
		pids[cnt++] = atoi(entry->d_name);
	}
	closedir(dir);
	*out = pids;
	return cnt;
}

int process__scan_children(pid_t pid, bool deep, pid_t **out)
{
	pid_t *all, *parents = NULL, *found = NULL;
	struct proc_stat stat;
	int total, cnt = 0, err = -ENOMEM;

	*out = NULL;
	total = process__list(&all);
	if (total <= 0)
		return total;
	parents = calloc((size_t)total, sizeof(*parents));
	found = calloc((size_t)total, sizeof(*found));
	if (!parents || !found)
		goto out;
	for (int i = 0; i < total; i++)
		parents[i] = proc__stat(all[i], 0, &stat) || proc_stat__dead(&stat) ? 0 : stat.parent;

	/*
	 * Breadth first: `found` is also the queue, and holds each process once, since a process
	 * has one parent.
	 */
	for (int at = -1; at < cnt; at++) {
		pid_t parent = at < 0 ? pid : found[at];

		for (int i = 0; i < total; i++) {
			if (parents[i] == parent && all[i] != pid) {
				found[cnt++] = all[i];
				parents[i] = 0;
			}
		}
		if (!deep)
			break;
	}
	*out = found;
	found = NULL;
	err = cnt;
out:
	free(all);
	free(parents);
	free(found);
	return err;
}

#define LOOKS_MAX  8     /* at a process whose children change */
#define LISTED_MAX 65536 /* a process could fork faster than its children are followed */

/* A file "children" has "PID PID ". */
static int add_pids(struct array *pids, const char *text)
{
	pid_t *item, pid;
	char *end;

	for (;; text = end) {
		pid = (pid_t)strtol(text, &end, 10);
		if (end == text)
			return pids->cnt > LISTED_MAX ? -E2BIG : 0;
		item = array__add(pids, sizeof(*item));
		if (!item)
			return -ENOMEM;
		*item = pid;
	}
}

/*
 * Lists the children of each thread once. 0; 1: a thread ended, and another one has its children;
 * or -errno.
 */
static int look_at_children(pid_t pid, struct array *pids)
{
	pid_t *tids;
	int cnt = task__list(pid, &tids), err = cnt < 0 ? cnt : 0, ended = 0;

	pids->cnt = 0;
	for (int i = 0; i < cnt && !err; i++) {
		char *text;
		size_t size;

		err = proc__slurp(pid, tids[i], "children", &text, &size);
		if (!err) {
			err = add_pids(pids, text);
			free(text);
		} else if (err == -ESRCH) {
			ended = 1;
			err = 0;
		}
	}
	free(tids);
	return err ?: ended;
}

/*
 * When a child ends while the kernel writes the list, the kernel may skip another one. The one that
 * ended is missing from the next list, so when two lists in a row are the same, nothing was
 * skipped. -EAGAIN: no two were.
 */
static int list_children(pid_t pid, struct array *pids)
{
	struct array last = {0}, older;
	bool same = false;
	int err = 0, ended;

	for (int look = 0; look < LOOKS_MAX && !err && !same; look++) {
		older = last;
		last = *pids;
		*pids = older;
		ended = look_at_children(pid, pids);
		err = ended < 0 ? ended : 0;
		same = look && !ended && pids->cnt == last.cnt &&
		       (!pids->cnt || !memcmp(pids->items, last.items, pids->cnt * sizeof(pid_t)));
	}
	free(last.items);
	return err ?: same ? 0 : -EAGAIN;
}

/*
 * Adds those that live and are children of that process still: another process may have the pid by
 * now.
 */
static int add_children(struct map *found, pid_t parent, const struct array *pids)
{
	const pid_t *pid = pids->items;
	struct proc_stat stat;

	for (size_t i = 0; i < pids->cnt; i++)
		if (!proc__stat(pid[i], 0, &stat) && !proc_stat__dead(&stat) && stat.parent == parent &&
		    !MAP_ADD(found, pid_t, &pid[i]))
			return -ENOMEM;
	return found->items.cnt > LISTED_MAX ? -E2BIG : 0;
}

/* Breadth first: `found` is also the queue. */
static int follow_children(pid_t pid, bool deep, struct map *found)
{
	struct array pids = {0};
	int err = 0;

	for (size_t at = 0; !err && at <= (deep ? found->items.cnt : 0); at++) {
		pid_t parent = at ? ((const pid_t *)found->items.items)[at - 1] : pid;

		err = list_children(parent, &pids) ?: add_children(found, parent, &pids);
		if (err == -ESRCH)
			err = 0; /* it has ended, and has no children any more */
	}
	free(pids.items);
	return err;
}

int process__children(pid_t pid, bool deep, pid_t **out)
{
	struct map found = {0};
	int cnt;

	/* Kernels without CONFIG_PROC_CHILDREN do not list them. */
	if (access("/proc/thread-self/children", F_OK) || follow_children(pid, deep, &found)) {
		cnt = process__scan_children(pid, deep, out);
	} else {
		cnt = (int)found.items.cnt;
		*out = found.items.items;
		found.items.items = NULL;
	}
	map__free(&found);
	return cnt;
}
