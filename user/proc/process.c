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

#include "user/lib/capabilities.h"
#include "user/lib/map.h"
#include "user/proc/deputy.h"
#include "user/proc/proc.h"
#include "user/proc/target_file.h"

#define FILES_MAX     4096 /* torch jobs map some 300 */
#define COMMAND_BYTES sizeof(((struct process *)0)->command)
#define ENVIRON_BYTES (8u << 20) /* Linux allows 6 MiB of arguments and environment */

#define PF_KTHREAD    0x00200000u /* Linux include/linux/sched.h */

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

/* Where the files of a process are looked up, by the deputy. */
struct file_view {
	pid_t pid;
	int root;            /* or -errno */
	struct stat program; /* what the process has executed */
};

static void file_view__open(struct file_view *view, pid_t pid)
{
	char path[32];

	memset(view, 0, sizeof(*view));
	view->pid = pid;
	view->root = target_file__root(pid);
	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (stat(path, &view->program))
		view->program.st_ino = 0;
}

static void file_view__close(struct file_view *view)
{
	if (view->root >= 0)
		close(view->root);
}

static bool file_view__runs(const struct file_view *view, const struct stat *st)
{
	return st->st_ino && st->st_dev == view->program.st_dev && st->st_ino == view->program.st_ino;
}

/* Is /proc/PID/root + file->path the file that is mapped? */
static bool file_view__shows(const struct file_view *view, struct mapped_file *file)
{
	int fd = view->root < 0 ? -1 : target_file__open(view->root, file->path, 0);
	struct stat st;
	bool same;

	if (fd < 0)
		return false;
	same = !fstat(fd, &st) && st.st_ino == file->inode && st.st_dev == file->dev &&
	       snprintf(file->open_path, PATH_MAX, "/proc/%d/root%s", view->pid, file->path) < PATH_MAX;
	close(fd);
	file->is_program = same && file_view__runs(view, &st);
	return same;
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
static void file_view__locate(const struct file_view *view, struct mapped_file *file, const struct mapping *first,
			      const char *name)
{
	static const char deleted[] = " (deleted)";
	struct stat st = {0};
	size_t length;

	memset(file, 0, sizeof(*file));
	file->dev = first->dev;
	file->inode = first->inode;
	file->pid = view->pid;
	file->start = first->start;
	file->end = first->end;
	snprintf(file->path, sizeof(file->path), "%s", name);
	if (file_view__shows(view, file))
		return;
	unescape_path(file->path);
	if (file_view__shows(view, file))
		return;
	length = strlen(file->path);
	if (length >= sizeof(deleted) && !strcmp(file->path + length - strlen(deleted), deleted))
		file->path[length - strlen(deleted)] = 0;
	if (file_view__shows(view, file))
		return;
	snprintf(file->open_path, sizeof(file->open_path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, view->pid,
		 first->start, first->end);
	/*
	 * map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, the root link only ptrace
	 * access.
	 */
	if (access(file->open_path, R_OK) &&
	    snprintf(file->open_path, PATH_MAX, "/proc/%d/root%s", view->pid, file->path) >= PATH_MAX)
		file->open_path[0] = 0;
	file->is_program = !stat(file->open_path, &st) && file_view__runs(view, &st);
}

struct locate_request {
	pid_t pid;
	struct mapping map;
	char name[PATH_MAX];
};

static int locate_in_deputy(const void *in, struct deputy_out *out)
{
	const struct locate_request *r = in;
	struct file_view view;

	file_view__open(&view, r->pid);
	file_view__locate(&view, (struct mapped_file *)out->bytes, &r->map, r->name);
	file_view__close(&view);
	return 0;
}

void mapped_file__locate(struct mapped_file *file, pid_t pid, const struct mapping *first)
{
	struct locate_request request = {.pid = pid, .map = *first};
	const struct deputy_out *answer;

	snprintf(request.name, sizeof(request.name), "%s", first->name);
	memset(file, 0, sizeof(*file));
	if (deputy__run(pid, locate_in_deputy, &request, sizeof(request), &answer))
		memcpy(file->path, request.name, sizeof(file->path));
	else
		memcpy(file, answer->bytes, sizeof(*file));
}

int process__each_mapping(pid_t pid, int (*fn)(const struct mapping *map, void *ctx), void *ctx)
{
	char *maps, *line, *next;
	struct mapping map;
	size_t size;
	int err;

	err = proc__slurp_memory(pid, 0, "maps", DEPUTY_OUT_BYTES, &maps, &size);
	if (err)
		return err;
	if (size == DEPUTY_OUT_BYTES)
		err = -EFBIG;
	if (size == 0)
		err = -ESRCH; /* exiting: its memory is gone already */
	for (line = maps; !err && line < maps + size; line = next) {
		next = memchr(line, '\n', maps + size - line);
		if (next)
			*next++ = 0;
		else
			next = maps + size;
		if (mapping__parse(line, &map))
			err = fn(&map, ctx);
	}
	free(maps);
	return err;
}

struct file_key {
	uint64_t dev, inode;
};

struct seen_file {
	struct file_key key;
	size_t at; /* of its struct packed_file */
};

struct file_reader {
	struct file_view view;
	struct map seen; /* of struct seen_file */
	struct mapping run;
	struct mapped_file file;
	struct deputy_out *out;
};

/* What the deputy says of a file; behind it are the path and the open_path, each with its 0. */
struct packed_file {
	uint64_t dev, inode, base, start, end;
	struct mapped_code code;
	bool is_program;
	uint16_t path_bytes, open_bytes;
};

static void pack(struct deputy_out *out, const void *data, size_t bytes)
{
	memcpy(out->bytes + out->size, data, bytes);
	out->size += bytes;
}

/* Returns where in out->bytes it is. */
static size_t pack_file(struct deputy_out *out, const struct mapped_file *file)
{
	struct packed_file packed;
	size_t at = out->size;

	memset(&packed, 0, sizeof(packed));
	packed.dev = file->dev;
	packed.inode = file->inode;
	packed.base = file->base;
	packed.start = file->start;
	packed.end = file->end;
	packed.code = file->code;
	packed.is_program = file->is_program;
	packed.path_bytes = (uint16_t)(strlen(file->path) + 1);
	packed.open_bytes = (uint16_t)(strlen(file->open_path) + 1);
	pack(out, &packed, sizeof(packed));
	pack(out, file->path, packed.path_bytes);
	pack(out, file->open_path, packed.open_bytes);
	return at;
}

/* Adds an executable mapping that goes on where the file's first run of them ends. */
static void extend_code(char *bytes, const struct mapping *map)
{
	struct packed_file packed;

	memcpy(&packed, bytes, sizeof(packed));
	if (map->start != packed.code.end || map->start - map->offset != packed.code.start - packed.code.offset)
		return;
	packed.code.end = map->end;
	memcpy(bytes, &packed, sizeof(packed));
}

/*
 * One file per inode with an executable mapping. Its base comes from the first mapping of the run
 * that the loader made around the first executable one: a program may also map a library as plain
 * data, at any lower address.
 */
static int file_reader__read(const struct mapping *map, void *ctx)
{
	struct file_reader *reader = ctx;
	struct file_key key = {map->dev, map->inode};
	struct mapping *run = &reader->run;
	struct seen_file *seen;

	if (map->inode == 0)
		return 0;
	if (map->dev != run->dev || map->inode != run->inode || map->offset < run->offset || map->offset == 0)
		*run = *map;
	if (!map->executable || map->name[0] != '/')
		return 0;
	seen = MAP_FIND(&reader->seen, struct seen_file, &key);
	if (seen) {
		extend_code(reader->out->bytes + seen->at, map);
		return 0;
	}
	if (reader->seen.items.cnt == FILES_MAX)
		return -E2BIG;
	seen = MAP_ADD(&reader->seen, struct seen_file, &key);
	if (!seen)
		return -ENOMEM;
	file_view__locate(&reader->view, &reader->file, run, run->name);
	reader->file.base = run->start - run->offset;
	reader->file.code.start = map->start;
	reader->file.code.end = map->end;
	reader->file.code.offset = map->offset;
	seen->at = pack_file(reader->out, &reader->file);
	return 0;
}

/* Returns its command line, COMMAND_BYTES long, and then its files. */
static int read_in_deputy(const void *in, struct deputy_out *out)
{
	struct file_reader reader = {.out = out};
	const pid_t *pid = in;
	char *command;
	size_t size;
	int err = proc__slurp_memory(*pid, 0, "cmdline", COMMAND_BYTES, &command, &size);

	if (err)
		return err;
	memset(out->bytes, 0, COMMAND_BYTES);
	pack(out, command, size);
	out->size = COMMAND_BYTES;
	free(command);
	file_view__open(&reader.view, *pid);
	err = process__each_mapping(*pid, file_reader__read, &reader);
	file_view__close(&reader.view);
	map__free(&reader.seen);
	return err;
}

static size_t unpack_file(pid_t pid, const char *bytes, struct mapped_file *file)
{
	struct packed_file packed;
	const char *path = bytes + sizeof(packed);

	memcpy(&packed, bytes, sizeof(packed));
	if (file) {
		file->dev = packed.dev;
		file->inode = packed.inode;
		file->base = packed.base;
		file->pid = pid;
		file->start = packed.start;
		file->end = packed.end;
		file->code = packed.code;
		file->is_program = packed.is_program;
		memcpy(file->path, path, packed.path_bytes);
		memcpy(file->open_path, path + packed.path_bytes, packed.open_bytes);
	}
	return sizeof(packed) + packed.path_bytes + packed.open_bytes;
}

static int process__unpack_files(struct process *p, const struct deputy_out *answer)
{
	size_t cnt = 0;

	for (size_t at = COMMAND_BYTES; at < answer->size; cnt++)
		at += unpack_file(p->pid, answer->bytes + at, NULL);
	p->files = calloc(cnt ?: 1, sizeof(*p->files));
	if (!p->files)
		return -ENOMEM;
	for (size_t at = COMMAND_BYTES; at < answer->size; p->file_cnt++)
		at += unpack_file(p->pid, answer->bytes + at, &p->files[p->file_cnt]);
	return 0;
}

/* ---- a process ---- */

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
	err = proc__stat(out->pid, 0, &stat);
	if (err)
		return err;
	if (proc_stat__dead(&stat) || (stat.flags & PF_KTHREAD))
		return -ESRCH;
	out->parent = stat.parent;
	out->start_time = stat.start_time;
	memcpy(out->comm, stat.comm, sizeof(out->comm));
	err = deputy__run(out->pid, read_in_deputy, &out->pid, sizeof(out->pid), &answer);
	if (err)
		return err;
	process__set_command(out, answer->bytes);
	err = process__unpack_files(out, answer);
	if (!err && !process__alive(out)) /* the pid may be another process's already */
		err = -ESRCH;
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
		if (err == -EPERM && capabilities__of_program() && geteuid()) {
			snprintf(why, size,
				 "process %d is another user's, and file capabilities serve for your own only", pid);
			return "run stepflame as root (sudo)";
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

int process__environ(pid_t pid, const char *name, char *value, size_t size)
{
	size_t length = strlen(name), total;
	char *data;
	int err;

	err = proc__slurp_memory(pid, 0, "environ", ENVIRON_BYTES, &data, &total);
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
