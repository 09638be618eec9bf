/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads and writes the cache files. In and out: arrays, DIR/found-ID.FINDERS.WHAT. No state.
 *
 * A file is {header, arrays}. A wrong probe site could kill the target, so what is cached belongs to
 * one inode with one content, not to what a file says of itself: a build id, which a copy shares.
 */
#include "user/elf/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "finders.h" /* generated: FINDERS, a checksum of the sources that decide what is found */

#ifndef STATX_MNT_ID_UNIQUE /* Linux 6.8 */
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif

#define MAGIC      "sf-kept"
#define PREFIX     "found-"
#define FILE_MAX   (64 << 20)
#define DIR_FILES  256 /* the newest stay */
#define DIR_BYTES  (256LL << 20)
#define UNUSED_S   (30LL * 24 * 60 * 60) /* a file that nobody has used for so long goes */
#define USED_S     (24LL * 60 * 60)
#define CODE_BYTES 16 /* compared at each site: the longest instruction and one more */

/* By which the file's inode can be found while it exists: of name_to_handle_at; bytes 0: it cannot. */
struct inode_handle {
	uint32_t bytes;
	int32_t type;
	uint8_t handle[MAX_HANDLE_SZ];
};

struct cache_header {
	char magic[8];
	uint32_t finders;
	uint32_t unit[CACHE_PARTS];
	struct file_key key;
	uint32_t cnt[CACHE_PARTS];
	uint32_t code_checksum; /* of the code at all sites */
	uint32_t checksum;      /* of the whole file, with this field as 0 */
	struct inode_handle handle;
};

const char *cache__dir(char *path, size_t size)
{
	const char *base = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");

	if (base && *base == '/')
		snprintf(path, size, "%s/stepflame", base);
	else if (home && *home == '/')
		snprintf(path, size, "%s/.cache/stepflame", home);
	else
		return NULL;
	return path;
}

/* ---- the folder ---- */

static bool is_own(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* Opens a folder that only we can write to, or returns -1. */
static int open_own_dir(int at, const char *name, int flags)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);

	if (fd >= 0 && !is_own(fd)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Makes a folder, unless the one that it goes into belongs to another user than root. */
static void make_dir(const char *dir)
{
	const char *slash = strrchr(dir, '/');
	char parent[PATH_MAX];
	struct stat st;

	snprintf(parent, sizeof(parent), "%.*s/", slash ? (int)(slash - dir) : 0, dir);
	if (!stat(parent, &st) && (!st.st_uid || st.st_uid == geteuid()))
		mkdir(dir, 0700);
}

/* Opens the cache's folder, which is not a link, and whose parent is ours too. Returns -1 if it cannot. */
static int open_dir(const char *dir, bool make)
{
	const char *slash = dir ? strrchr(dir, '/') : NULL;
	char parent[PATH_MAX];
	int at, fd;

	if (!slash || snprintf(parent, sizeof(parent), "%.*s", (int)(slash - dir), dir) >= (int)sizeof(parent))
		return -1;
	if (make)
		make_dir(parent); /* a new user has no ~/.cache */
	at = open_own_dir(AT_FDCWD, parent, 0);
	if (at < 0)
		return -1;
	if (make)
		mkdirat(at, slash + 1, 0700);
	fd = open_own_dir(at, slash + 1, O_NOFOLLOW);
	close(at);
	return fd;
}

/*
 * Only of file systems on a device: a server in a process of somebody else's may be behind the others,
 * and not answer.
 */
static void handle_of(const struct elf *elf, struct inode_handle *handle)
{
	union {
		struct file_handle head;
		uint8_t bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} own = {.head.handle_bytes = MAX_HANDLE_SZ};
	int mount;

	if (!major(elf__stat(elf)->st_dev) || name_to_handle_at(elf__fd(elf), "", &own.head, &mount, AT_EMPTY_PATH))
		return;
	handle->bytes = own.head.handle_bytes;
	handle->type = own.head.handle_type;
	memcpy(handle->handle, own.head.f_handle, handle->bytes);
}

/* false also where nobody can say. fs: a file of the same file system. */
static bool is_inode_gone(int fs, const struct inode_handle *handle)
{
	union {
		struct file_handle head;
		uint8_t bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} own = {.head = {.handle_bytes = handle->bytes, .handle_type = handle->type}};
	int fd;

	if (!handle->bytes || handle->bytes > MAX_HANDLE_SZ)
		return false;
	memcpy(own.head.f_handle, handle->handle, handle->bytes);
	fd = open_by_handle_at(fs, &own.head, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return errno == ESTALE;
	close(fd);
	return false;
}

/* Is what was found in another file of no use any more? new: of what was just written, by this stepflame. */
static bool is_over(int dir_fd, const char *name, const struct elf *elf, const struct cache_header *new)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct cache_header old;
	bool known = fd >= 0 && is_own(fd) && read(fd, &old, sizeof(old)) == sizeof(old) &&
		     !memcmp(old.magic, new->magic, sizeof(old.magic)) && old.finders == new->finders;

	if (fd >= 0)
		close(fd);
	if (!known)
		return false;
	if (old.key.mount) /* from an earlier boot? */
		return memcmp(old.key.boot, new->key.boot, sizeof(old.key.boot)) && new->key.mount;
	if (old.key.dev != new->key.dev)
		return false;
	return is_inode_gone(elf__fd(elf), &old.handle);
}

struct cached_file {
	char name[NAME_MAX + 1];
	off_t size;
	time_t time;
};

static int compare_newest_first(const void *a, const void *b)
{
	const struct cached_file *x = a, *y = b;

	return (x->time < y->time) - (x->time > y->time);
}

/* Deletes files that are of no use any more, and the oldest ones beyond the bounds of the folder. */
static void prune_dir(int dir_fd, const struct elf *elf, const struct cache_header *new)
{
	struct cached_file *files = calloc(2 * DIR_FILES, sizeof(*files));
	int list_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	struct dirent *entry;
	off_t bytes = 0;
	size_t cnt = 0;

	while (files && dir && cnt < 2 * DIR_FILES && (entry = readdir(dir))) {
		struct stat st;

		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) ||
		    fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		snprintf(files[cnt].name, sizeof(files[cnt].name), "%s", entry->d_name);
		files[cnt].size = st.st_size;
		files[cnt++].time = st.st_mtime;
	}
	if (cnt)
		qsort(files, cnt, sizeof(*files), compare_newest_first);
	for (size_t i = 0; i < cnt; i++) {
		bytes += files[i].size;
		if (i >= DIR_FILES || bytes > DIR_BYTES || files[i].time < time(NULL) - UNUSED_S ||
		    is_over(dir_fd, files[i].name, elf, new))
			unlinkat(dir_fd, files[i].name, 0);
	}
	if (dir)
		closedir(dir);
	else if (list_fd >= 0)
		close(list_fd);
	free(files);
}

/* ---- a file ---- */

static bool identify_mount(int fd, struct file_key *key)
{
	int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	struct statx st = {};
	bool known = boot >= 0 && read(boot, key->boot, sizeof(key->boot) - 1) > 0 &&
		     !statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID_UNIQUE, &st) && (st.stx_mask & STATX_MNT_ID_UNIQUE);

	if (boot >= 0)
		close(boot);
	key->mount = st.stx_mnt_id;
	return known;
}

bool file_key__of(const struct elf *elf, struct file_key *key)
{
	const struct stat *st = elf__stat(elf);

	*key = (struct file_key){
		.dev = st->st_dev,
		.inode = st->st_ino,
		.size = st->st_size,
		.owner = st->st_uid,
		.mtime_s = st->st_mtim.tv_sec,
		.mtime_ns = st->st_mtim.tv_nsec,
		.ctime_s = st->st_ctim.tv_sec,
		.ctime_ns = st->st_ctim.tv_nsec,
	};
	return major(st->st_dev) || identify_mount(elf__fd(elf), key);
}

/* Fills the header but for what a search found. */
static bool header_of(const struct elf *elf, const struct cache_part *part, size_t part_cnt,
		      struct cache_header *header)
{
	memset(header, 0, sizeof(*header));
	memcpy(header->magic, MAGIC, sizeof(MAGIC));
	header->finders = FINDERS;
	for (size_t i = 0; i < part_cnt; i++) {
		header->unit[i] = part[i].unit;
		header->cnt[i] = part[i].cnt;
	}
	return file_key__of(elf, &header->key);
}

static void name_of(const struct cache_header *header, const char *what, char name[NAME_MAX])
{
	const struct file_key *key = &header->key;

	snprintf(name, NAME_MAX, PREFIX "%llx-%llx-%llx.%08x.%s", (unsigned long long)key->dev,
		 (unsigned long long)key->mount, (unsigned long long)key->inode, FINDERS, what);
}

static size_t file_size(const struct cache_header *header)
{
	size_t size = sizeof(*header);

	for (size_t i = 0; i < CACHE_PARTS; i++)
		size += (size_t)header->cnt[i] * header->unit[i];
	return size;
}

static uint32_t file_checksum(uint8_t *file, size_t size)
{
	struct cache_header *header = (struct cache_header *)file;
	uint32_t saved = header->checksum, checksum;

	header->checksum = 0;
	checksum = crc32(0, file, size);
	header->checksum = saved;
	return checksum;
}

/* Returns false when some site has no code. */
static bool checksum_code(const struct elf *elf, const struct cache_part *sites, uint32_t *checksum)
{
	const uint64_t *site = sites->data;

	*checksum = 0;
	for (size_t i = 0; i < sites->cnt; i++) {
		const uint8_t *bytes;
		uint64_t vaddr;
		size_t have;

		if (elf__vaddr(elf, site[i], &vaddr) || !elf__is_code(elf, vaddr))
			return false;
		bytes = elf__bytes(elf, vaddr, CODE_BYTES, &have);
		*checksum = crc32(*checksum, bytes, have);
	}
	return true;
}

/* Returns the whole file, which the caller frees, or NULL. */
static uint8_t *read_file(int dir, const char *name, size_t *size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint8_t *file = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (is_own(fd) && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof(struct cache_header) &&
	    st.st_size <= FILE_MAX) {
		*size = st.st_size;
		if (st.st_mtime < time(NULL) - USED_S)
			futimens(fd, NULL); /* it is used: the oldest ones go */
		file = malloc(*size);
		if (file && read(fd, file, *size) != (ssize_t)*size) {
			free(file);
			file = NULL;
		}
	}
	close(fd);
	return file;
}

void cache__release(struct cache_part *part, size_t part_cnt)
{
	for (size_t i = 0; i < part_cnt; i++) {
		free(part[i].data);
		part[i].data = NULL;
		part[i].cnt = 0;
	}
}

/* Returns false when there is no memory. */
static bool take_parts(const uint8_t *file, struct cache_part *part, size_t part_cnt)
{
	const struct cache_header *header = (const struct cache_header *)file;
	const uint8_t *at = file + sizeof(*header);

	for (size_t i = 0; i < part_cnt; i++) {
		size_t bytes = header->cnt[i] * part[i].unit;

		part[i].data = malloc(bytes + 1);
		if (!part[i].data)
			return false;
		part[i].cnt = header->cnt[i];
		memcpy(part[i].data, at, bytes);
		at += bytes;
	}
	return true;
}

int cache__load(const struct elf *elf, const char *dir, const char *what, struct cache_part *part, size_t part_cnt)
{
	const struct cache_header *header;
	char name[NAME_MAX];
	uint8_t *file = NULL;
	struct cache_header want;
	int err = -ENOENT, dir_fd;
	uint32_t code_checksum;
	size_t size;

	for (size_t i = 0; i < part_cnt; i++)
		part[i] = (struct cache_part){.unit = part[i].unit};
	dir_fd = header_of(elf, part, part_cnt, &want) ? open_dir(dir, false) : -1;
	if (dir_fd < 0)
		return -ENOENT;
	name_of(&want, what, name);
	file = read_file(dir_fd, name, &size);
	close(dir_fd);
	header = (const struct cache_header *)file;
	if (file && !memcmp(header, &want, offsetof(struct cache_header, cnt)) && file_size(header) == size &&
	    file_checksum(file, size) == header->checksum && take_parts(file, part, part_cnt) &&
	    checksum_code(elf, &part[0], &code_checksum) && code_checksum == header->code_checksum)
		err = 0;
	free(file);
	if (err)
		cache__release(part, part_cnt);
	return err;
}

/* Returns the bytes of a cache file, which the caller frees, or NULL. */
static uint8_t *build_cache_file(const struct elf *elf, const struct cache_part *part, struct cache_header *header,
				 size_t *size)
{
	uint8_t *file, *at;

	*size = file_size(header);
	file = *size <= FILE_MAX && checksum_code(elf, &part[0], &header->code_checksum) ? malloc(*size) : NULL;
	if (!file)
		return NULL;
	at = mempcpy(file, header, sizeof(*header));
	for (size_t i = 0; i < CACHE_PARTS && header->unit[i]; i++)
		if (part[i].cnt)
			at = mempcpy(at, part[i].data, part[i].cnt * part[i].unit);
	((struct cache_header *)file)->checksum = file_checksum(file, *size);
	return file;
}

/* Has nothing happened to the file since it was opened, not even a change of its owner? */
static bool is_as_opened(const struct elf *elf)
{
	const struct stat *was = elf__stat(elf);
	struct stat now;

	return !elf__error(elf) && !fstat(elf__fd(elf), &now) && now.st_ctim.tv_sec == was->st_ctim.tv_sec &&
	       now.st_ctim.tv_nsec == was->st_ctim.tv_nsec;
}

void cache__save(const struct elf *elf, const char *dir, const char *what, const struct cache_part *part,
		 size_t part_cnt)
{
	char name[NAME_MAX], temporary[NAME_MAX + 32];
	struct cache_header header;
	uint8_t *file = NULL;
	uint64_t number = 0;
	bool written;
	size_t size;
	int dir_fd, fd;

	dir_fd = header_of(elf, part, part_cnt, &header) && is_as_opened(elf) ? open_dir(dir, true) : -1;
	if (dir_fd < 0)
		return;
	handle_of(elf, &header.handle);
	name_of(&header, what, name);
	getrandom(&number, sizeof(number), 0);
	snprintf(temporary, sizeof(temporary), "%s.%016llx", name, (unsigned long long)number);
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0) {
		file = build_cache_file(elf, part, &header, &size);
		written = file && write(fd, file, size) == (ssize_t)size;
		free(file);
		if (close(fd) || !written || renameat(dir_fd, temporary, dir_fd, name))
			unlinkat(dir_fd, temporary, 0);
		prune_dir(dir_fd, elf, &header);
	}
	close(dir_fd);
}
