/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads and writes the cache files. In and out: arrays, DIR/BUILD-ID.WHAT. No state.
 *
 * A file is {header, arrays}. A wrong probe site could kill the target, so the file must belong to
 * our own user, match its checksum, and the code at every site must be unchanged: a build id may
 * stay the same when tools move code in a file.
 */
#include "user/elf/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "finders.h" /* generated: FINDERS, a checksum of the sources that decide what is found */

#define MAGIC      "sf-kept"
#define FILE_MAX   (64 << 20)
#define CODE_BYTES 16 /* compared at each site: the longest instruction and one more */

struct cache_header {
	char magic[8];
	uint32_t finders;
	uint32_t unit[CACHE_PARTS];
	uint32_t symbol_cnt; /* a stripped copy has the same build id */
	uint32_t cnt[CACHE_PARTS];
	uint32_t code_checksum; /* of the code at all sites */
	uint32_t checksum;      /* of the whole file, with this field as 0 */
};

const char *cache__dir(char *path, size_t size)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (base && *base == '/')
		snprintf(path, size, "%s/stepflame", base);
	else if (home && *home == '/')
		snprintf(path, size, "%s/.cache/stepflame", home);
	else
		return NULL;
	return path;
}

static struct cache_header header_of(const struct elf *elf, const struct cache_part *part, size_t part_cnt)
{
	struct cache_header header = {.magic = MAGIC, .finders = FINDERS, .symbol_cnt = elf__symbol_cnt(elf)};

	for (size_t i = 0; i < part_cnt; i++) {
		header.unit[i] = part[i].unit;
		header.cnt[i] = part[i].cnt;
	}
	return header;
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

static bool path_of(const struct elf *elf, const char *dir, const char *what, const char *suffix, char path[PATH_MAX])
{
	const char *id = elf__build_id(elf);

	return dir && *id && snprintf(path, PATH_MAX, "%s/%s.%s%s", dir, id, what, suffix) < PATH_MAX;
}

/* Returns the whole file, which the caller frees, or NULL. */
static uint8_t *read_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint8_t *file = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) ||
	    st.st_size < (off_t)sizeof(struct cache_header) || st.st_size > FILE_MAX)
		goto out;
	*size = st.st_size;
	file = malloc(*size);
	if (file && read(fd, file, *size) != (ssize_t)*size) {
		free(file);
		file = NULL;
	}
out:
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
	char path[PATH_MAX];
	uint8_t *file = NULL;
	struct cache_header want;
	int err = -ENOENT;
	uint32_t code_checksum;
	size_t size;

	for (size_t i = 0; i < part_cnt; i++)
		part[i] = (struct cache_part){.unit = part[i].unit};
	want = header_of(elf, part, part_cnt);
	if (path_of(elf, dir, what, "", path))
		file = read_file(path, &size);
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
static uint8_t *build_cache_file(const struct elf *elf, const struct cache_part *part, size_t part_cnt, size_t *size)
{
	struct cache_header header = header_of(elf, part, part_cnt);
	uint8_t *file, *at;

	*size = file_size(&header);
	file = *size <= FILE_MAX && checksum_code(elf, &part[0], &header.code_checksum) ? malloc(*size) : NULL;
	if (!file)
		return NULL;
	at = mempcpy(file, &header, sizeof(header));
	for (size_t i = 0; i < part_cnt; i++)
		if (part[i].cnt)
			at = mempcpy(at, part[i].data, part[i].cnt * part[i].unit);
	((struct cache_header *)file)->checksum = file_checksum(file, *size);
	return file;
}

/* Makes the parent too: a new user has no ~/.cache. */
static void make_dir(const char *dir)
{
	const char *slash = strrchr(dir, '/');
	char parent[PATH_MAX];

	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - dir) : 0, dir);
	mkdir(parent, 0700);
	mkdir(dir, 0755);
}

void cache__save(const struct elf *elf, const char *dir, const char *what, const struct cache_part *part,
		 size_t part_cnt)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	uint8_t *file = NULL;
	bool written;
	size_t size;
	int fd;

	if (!path_of(elf, dir, what, "", path) || !path_of(elf, dir, what, ".XXXXXX", temporary))
		return;
	make_dir(dir);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return;
	file = build_cache_file(elf, part, part_cnt, &size);
	written = file && write(fd, file, size) == (ssize_t)size;
	free(file);
	if (close(fd) || !written || rename(temporary, path))
		unlink(temporary);
}
