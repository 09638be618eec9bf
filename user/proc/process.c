/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A live process by way of /proc: identity, command line, mapped files, environment, memory,
 * children. In: a pid. Out: struct process. Any thread may call it; there is no state. The target
 * chooses its comm (any bytes, ')' too), its command line and the names of the files that it maps,
 * so nothing here trusts those.
 */
#include "user/proc/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "user/elf/elf.h"
#include "user/proc/proc.h"

#define PF_KTHREAD 0x00200000u /* Linux include/linux/sched.h */

/* ---- mapped files ---- */

/*
 * "55d0c8a00000-55d0c8a28000 r-xp 00002000 fe:01 1234      /usr/bin/a b" (proc(5)); the name goes
 * to the end of the line.
 */
static bool mapping__parse(char *line, struct mapping *out)
{
	unsigned int major, minor;
	char perms[5];
	int name = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 "%n", &out->start, &out->end, perms,
		   &out->offset, &major, &minor, &out->inode, &name) != 7)
		return false;
	out->dev = makedev(major, minor);
	out->writable = perms[1] == 'w';
	out->executable = perms[2] == 'x';
	out->shared = perms[3] == 's';
	out->name = line + name + strspn(line + name, " ");
	return true;
}

static struct mapped_file *process__find_inode(const struct process *p, uint64_t dev, uint64_t inode)
{
	for (size_t i = 0; i < p->file_cnt; i++) {
		if (p->files[i].dev == dev && p->files[i].inode == inode)
			return &p->files[i];
	}
	return NULL;
}

/* Is the file that is mapped at /proc/PID/root + path? */
static bool mapped_file__is_at(const struct mapped_file *file, pid_t pid, const char *path, char open_path[PATH_MAX])
{
	struct stat st;

	if (snprintf(open_path, PATH_MAX, "/proc/%d/root%s", pid, path) >= PATH_MAX)
		return false;
	return !stat(open_path, &st) && st.st_ino == file->inode && st.st_dev == file->dev;
}

/*
 * The kernel writes a newline in a name as \012 and leaves a backslash alone, so only the file
 * system can say what "\012" was.
 */
static void unescape_path(char *name)
{
	char *out = name;

	for (char *in = name; *in; in++) {
		bool newline = !strncmp(in, "\\012", 4);

		*out++ = newline ? '\n' : *in;
		in += newline ? 3 : 0;
	}
	*out = 0;
}

/*
 * Sets path and open_path. A file can be named "x (deleted)", so each name that such a line of maps
 * may mean is tried until one is the mapped file. map_files opens deleted files, and files whose
 * device differs between stat(2) and maps (btrfs, overlayfs).
 */
void mapped_file__locate(struct mapped_file *file, pid_t pid, const struct mapping *first)
{
	static const char deleted[] = " (deleted)";
	size_t length;

	memset(file, 0, sizeof(*file));
	file->dev = first->dev;
	file->inode = first->inode;
	file->pid = pid;
	file->start = first->start;
	file->end = first->end;
	snprintf(file->path, sizeof(file->path), "%s", first->name);
	if (!strstr(first->name, "\\012") && !strstr(first->name, deleted) &&
	    snprintf(file->open_path, PATH_MAX, "/proc/%d/root%s", pid, file->path) < PATH_MAX)
		return;
	if (mapped_file__is_at(file, pid, file->path, file->open_path))
		return;
	unescape_path(file->path);
	if (mapped_file__is_at(file, pid, file->path, file->open_path))
		return;
	length = strlen(file->path);
	if (length >= sizeof(deleted) && !strcmp(file->path + length - strlen(deleted), deleted))
		file->path[length - strlen(deleted)] = 0;
	if (mapped_file__is_at(file, pid, file->path, file->open_path))
		return;
	snprintf(file->open_path, sizeof(file->open_path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, first->start,
		 first->end);
	/*
	 * map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, the root link only ptrace
	 * access.
	 */
	if (access(file->open_path, R_OK) &&
	    snprintf(file->open_path, PATH_MAX, "/proc/%d/root%s", pid, file->path) >= PATH_MAX)
		file->open_path[0] = 0;
}

/* Finds the mapping at `start`. */
static int mapping__match(const struct mapping *map, void *ctx)
{
	struct mapping *want = ctx;

	if (map->start != want->start)
		return 0;
	*want = *map;
	return 1;
}

/*
 * Is this the file of those numbers? maps(5) and stat(2) disagree on the device of btrfs and
 * overlayfs, so what maps says of the target's mapping is then compared with what it says of ours.
 */
static bool is_inode(int fd, const struct stat *st, uint64_t dev, uint64_t inode)
{
	struct mapping own = {};
	void *map;

	if (st->st_dev == dev && st->st_ino == inode)
		return true;
	map = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	own.start = (uintptr_t)map;
	process__each_mapping(getpid(), mapping__match, &own);
	munmap(map, 1);
	return own.dev == dev && own.inode == inode;
}

/* O_PATH first: to open a device, or a FIFO, would have effects. */
static int open_inode(const char *path, uint64_t dev, uint64_t inode)
{
	int at = open(path, O_PATH | O_CLOEXEC), fd = -1, err;
	char self[32];
	struct stat st;

	if (at < 0 || fstat(at, &st)) {
		err = -errno;
	} else if (!S_ISREG(st.st_mode)) {
		err = -ENOEXEC;
	} else {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
		fd = open(self, O_RDONLY | O_CLOEXEC);
		err = fd < 0 ? -errno : is_inode(fd, &st, dev, inode) ? 0 : -ESTALE;
	}
	if (at >= 0)
		close(at);
	if (err && fd >= 0)
		close(fd);
	return err ?: fd;
}

/*
 * By map_files, which leads to the mapped inode itself, deleted or not; it needs CAP_SYS_ADMIN or
 * CAP_CHECKPOINT_RESTORE, and the mapping as it was. Else by the path, which the target's owner may
 * have changed meanwhile.
 */
int mapped_file__open(const struct mapped_file *file)
{
	char path[64];
	int fd, other;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, file->pid, file->start, file->end);
	fd = open_inode(path, file->dev, file->inode);
	other = fd < 0 ? open_inode(file->open_path, file->dev, file->inode) : -1;
	return other >= 0 ? other : fd;
}

const char *mapped_file__explain(int err, const char **fix)
{
	switch (err) {
	case -ESTALE:
		*fix = "try again once nothing writes to the job's files";
		return "it changed while stepflame read it";
	case -EFBIG:
		*fix = "report this file";
		return "it is sparse, or its tables are larger than those of any known library";
	case -EBADMSG:
		*fix = "detach the debugger or tool that patches it, or restart the job";
		return "its code in memory is not that of the file";
	}
	return NULL;
}

int mapped_file__elf(const struct mapped_file *file, struct elf **out)
{
	int fd = mapped_file__open(file);

	return fd < 0 ? fd : elf__new_fd(fd, out);
}

static int process__add_file(struct process *p, const struct mapping *first, const struct mapping *code)
{
	struct mapped_file *file;

	if ((p->file_cnt & (p->file_cnt - 1)) == 0) { /* full at each power of two */
		file = realloc(p->files, (p->file_cnt ? p->file_cnt * 2 : 1) * sizeof(*file));
		if (!file)
			return -ENOMEM;
		p->files = file;
	}
	file = &p->files[p->file_cnt++];
	mapped_file__locate(file, p->pid, first);
	file->base = first->start - first->offset;
	file->code.start = code->start;
	file->code.end = code->end;
	file->code.offset = code->offset;
	return 0;
}

int process__each_mapping(pid_t pid, int (*fn)(const struct mapping *map, void *ctx), void *ctx)
{
	char *maps, *line, *next;
	struct mapping map;
	size_t size;
	int err;

	err = proc__slurp(pid, 0, "maps", &maps, &size);
	if (err)
		return err;
	if (size == 0)
		err = -ESRCH; /* exiting: its memory is gone already */
	for (line = maps; !err && line < maps + size; line = next) {
		next = strchrnul(line, '\n');
		if (*next)
			*next++ = 0;
		if (mapping__parse(line, &map))
			err = fn(&map, ctx);
	}
	free(maps);
	return err;
}

struct file_reader {
	struct process *process;
	struct mapping run;
};

/*
 * One file per inode with an executable mapping. Its base comes from the first mapping of the run
 * that the loader made around the first executable one: a program may also map a library as plain
 * data, at any lower address.
 */
static int process__read_mapping(const struct mapping *map, void *ctx)
{
	struct file_reader *reader = ctx;
	struct mapping *run = &reader->run;
	struct mapped_file *file;

	if (map->inode == 0)
		return 0;
	if (map->dev != run->dev || map->inode != run->inode || map->offset < run->offset || map->offset == 0)
		*run = *map;
	if (!map->executable || map->name[0] != '/')
		return 0;
	file = process__find_inode(reader->process, map->dev, map->inode);
	if (!file)
		return process__add_file(reader->process, run, map);
	if (map->start == file->code.end && map->start - map->offset == file->code.start - file->code.offset)
		file->code.end = map->end;
	return 0;
}

static int process__read_files(struct process *p)
{
	struct file_reader reader = {.process = p};

	return process__each_mapping(p->pid, process__read_mapping, &reader);
}

/* ---- a process ---- */

static int process__read_command(struct process *p)
{
	size_t size, length;
	char *data;
	int err;

	err = proc__slurp(p->pid, 0, "cmdline", &data, &size);
	if (err)
		return err;
	length = size < sizeof(p->command) ? size : sizeof(p->command) - 1;
	memcpy(p->command, data, length);
	while (length && !p->command[length - 1])
		length--;
	for (size_t i = 0; i < length; i++) {
		if (!p->command[i])
			p->command[i] = ' ';
	}
	p->command[length] = 0;
	free(data);
	return 0;
}

int process__read(pid_t pid, struct process *out)
{
	struct proc_status status;
	struct proc_stat stat;
	int err;

	memset(out, 0, sizeof(*out));
	if (pid <= 0)
		return -ESRCH;
	err = proc__status(pid, 0, &status);
	if (err)
		return err;
	out->pid = status.tgid;
	out->nspid = status.nspid;
	err = proc__stat(out->pid, 0, &stat);
	if (err)
		return err;
	if (proc_stat__dead(&stat) || (stat.flags & PF_KTHREAD))
		return -ESRCH;
	out->parent = stat.parent;
	out->start_time = stat.start_time;
	memcpy(out->comm, stat.comm, sizeof(out->comm));
	err = process__read_command(out);
	if (!err)
		err = process__read_files(out);
	if (err)
		process__release(out);
	return err;
}

const char *process__explain(int err, pid_t pid, char *why, size_t size)
{
	const char *fix = NULL, *text;

	switch (err) {
	case -ESRCH:
		snprintf(why, size, "there is no process %d", pid);
		return "stepflame ps lists the training processes of this host";
	case -EPERM:
	case -EACCES:
		snprintf(why, size, "may not examine process %d: permission denied", pid);
		return "run stepflame as root (sudo), or as the owner of the process with CAP_SYS_PTRACE";
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

int process__environ(pid_t pid, const char *name, char *value, size_t size)
{
	size_t length = strlen(name), total;
	char *data;
	int err;

	err = proc__slurp(pid, 0, "environ", &data, &total);
	if (err)
		return err;
	err = -ENOENT;
	for (char *entry = data; entry < data + total; entry += strlen(entry) + 1) {
		if (!strncmp(entry, name, length) && entry[length] == '=') {
			snprintf(value, size, "%s", entry + length + 1);
			err = 0;
			break;
		}
	}
	free(data);
	return err;
}

int process__read_memory(pid_t pid, uint64_t address, void *buffer, size_t size)
{
	struct iovec local = {.iov_base = buffer, .iov_len = size};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
	ssize_t got;

	got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
	if (got < 0)
		return -errno;
	return (size_t)got == size ? 0 : -EFAULT;
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

int process__children(pid_t pid, bool deep, pid_t **out)
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
