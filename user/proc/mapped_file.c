// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The files that processes map: finds them in /proc/PID/maps, and opens the very inodes. */
#include "user/proc/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "user/elf/elf.h"
#include "user/lib/map.h"
#include "user/proc/proc.h"
#include "user/proc/target_file.h"

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

int mapped_files__pack(pid_t pid, struct deputy_out *out)
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

int mapped_files__unpack(struct process *p, const struct deputy_out *answer, size_t from)
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
