/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A live process by way of /proc: identity, command line, mapped files, memory, children. In: a
 * pid. Out: struct process. Any thread may call it; there is no state. The target chooses its comm
 * (any bytes, ')' too), its command line and the names of the files that it maps, so nothing here
 * trusts those.
 */
#include "user/proc/process.h"

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
#include "user/lib/capabilities.h"
#include "user/lib/map.h"
#include "user/proc/deputy.h"
#include "user/proc/proc.h"
#include "user/proc/target_file.h"
#include "user/proc/task.h"

/* ---- the files that processes map: found in /proc/PID/maps, and opened by their very inodes ---- */

#define FILES_MAX 4096 /* torch jobs map some 300 */

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
	int root; /* or -errno */
	/* What the process has executed; only where its file system denies that, its path. */
	struct stat program;
	char program_path[PATH_MAX];
};

static void file_view__open(struct file_view *view, pid_t pid)
{
	ssize_t length;
	char path[32];

	memset(view, 0, sizeof(*view));
	view->pid = pid;
	view->root = target_file__root(pid);
	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (!stat(path, &view->program))
		return;
	view->program.st_ino = 0;
	length = readlink(path, view->program_path, sizeof(view->program_path) - 1);
	if (length < 0)
		view->program_path[0] = 0;
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
	if (!same)
		return false;
	file->is_program = file_view__runs(view, &st);
	file->content = file_content__of(&st);
	return true;
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
	if (!stat(file->open_path, &st))
		file->content = file_content__of(&st);
	file->is_program = view->program_path[0] ? !strcmp(view->program_path, file->path) : file_view__runs(view, &st);
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
	struct file_content content;
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
	packed.content = file->content;
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

/* In the deputy: appends the files of a process to *out. 0 or -errno; -E2BIG: more than FILES_MAX. */
static int pack_files(pid_t pid, struct deputy_out *out)
{
	struct file_reader reader = {.out = out};
	int err;

	file_view__open(&reader.view, pid);
	err = process__each_mapping(pid, file_reader__read, &reader);
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
		file->content = packed.content;
		file->is_program = packed.is_program;
		memcpy(file->path, path, packed.path_bytes);
		memcpy(file->open_path, path + packed.path_bytes, packed.open_bytes);
	}
	return sizeof(packed) + packed.path_bytes + packed.open_bytes;
}

/* Sets p->files from the answer's bytes behind `from`. 0 or -ENOMEM. */
static int unpack_files(struct process *p, const struct deputy_out *answer, size_t from)
{
	size_t cnt = 0;

	for (size_t at = from; at < answer->size; cnt++)
		at += unpack_file(p->pid, answer->bytes + at, NULL);
	p->files = calloc(cnt ?: 1, sizeof(*p->files));
	if (!p->files)
		return -ENOMEM;
	for (size_t at = from; at < answer->size; p->file_cnt++)
		at += unpack_file(p->pid, answer->bytes + at, &p->files[p->file_cnt]);
	return 0;
}

/* ---- opening ---- */

struct file_content file_content__of(const struct stat *st)
{
	return (struct file_content){st->st_size, st->st_mtim.tv_sec * 1000000000ULL + st->st_mtim.tv_nsec};
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
	/* Where map_files is denied, that the path leads elsewhere says more. */
	return other >= 0 || other == -ESTALE ? other : fd;
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

/* ---- the process ---- */

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
	return pack_files(*pid, out);
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
	err = unpack_files(out, answer, COMMAND_BYTES);
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
	return proc__numbers("/proc", out);
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
static int list_children_once(pid_t pid, struct array *pids)
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
		ended = list_children_once(pid, pids);
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
