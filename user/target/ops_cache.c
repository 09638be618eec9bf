/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keeps what was found in a file, so that the next attach need not look again. In and out: struct torch_ops,
 * DIR/BUILD-ID.ops. No state.
 *
 * The file is {header, functions, nodes, sites, names}, as the structs lie in memory, names as offsets; it serves this
 * machine and this version alone. A wrong probe site could kill the target. So the file must be our own user's, whole
 * by its checksum, and the code at every site must be what it was: a build id may stay when tools move code in a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "target/ops_private.h"

#define MAGIC      "sf-ops5" /* to be raised when anything is found otherwise, or elsewhere, in the same file */
#define FILE_MAX   (64 << 20)
#define CODE_BYTES 16 /* compared at each site: the longest instruction and one more */

struct header {
	char magic[8];
	char version[16];                          /* of stepflame */
	uint32_t fn_bytes, node_bytes, site_bytes; /* of the structs */
	uint32_t fn_cnt, node_cnt, site_cnt, names_size;
	uint32_t unnamed_cnt, unplaced_cnt;
	uint32_t string_bytes, sequence_nr;
	uint32_t code_sum; /* of the code at all sites */
	uint32_t sum;      /* of the whole file, this as 0 */
};

static struct header header_of(const struct torch_ops *ops)
{
	return (struct header){
		.magic = MAGIC,
		.version = STEPFLAME_VERSION,
		.fn_bytes = sizeof(*ops->fn),
		.node_bytes = sizeof(*ops->node),
		.site_bytes = sizeof(*ops->site),
		.fn_cnt = ops->fn_cnt,
		.node_cnt = ops->node_cnt,
		.site_cnt = ops->site_cnt,
		.names_size = ops->names_size,
		.unnamed_cnt = ops->unnamed_cnt,
		.unplaced_cnt = ops->unplaced_cnt,
		.string_bytes = ops->string_bytes,
		.sequence_nr = ops->sequence_nr,
	};
}

static size_t file_size(const struct header *header)
{
	return sizeof(*header) + (size_t)header->fn_cnt * header->fn_bytes +
	       (size_t)header->node_cnt * header->node_bytes + (size_t)header->site_cnt * header->site_bytes +
	       header->names_size;
}

static uint32_t file_sum(uint8_t *file, size_t size)
{
	struct header *header = (struct header *)file;
	uint32_t kept = header->sum, sum;

	header->sum = 0;
	sum = crc32(0, file, size);
	header->sum = kept;
	return sum;
}

/* Adds the code at a site to a sum. false: no code is there. */
static bool add_code(const struct elf *elf, const struct site *site, uint32_t *sum)
{
	const uint8_t *bytes;
	uint64_t vaddr;
	size_t have;

	if (elf__vaddr(elf, site->offset, &vaddr) || !elf__is_code(elf, vaddr))
		return false;
	bytes = elf__bytes(elf, vaddr, CODE_BYTES, &have);
	*sum = crc32(*sum, bytes, have);
	return true;
}

static bool sum_code(const struct elf *elf, const struct torch_ops *ops, uint32_t *sum)
{
	*sum = 0;
	for (size_t i = 0; i < ops->fn_cnt; i++)
		if (!add_code(elf, &ops->fn[i].entry, sum))
			return false;
	for (size_t i = 0; i < ops->site_cnt; i++)
		if (!add_code(elf, &ops->site[i], sum))
			return false;
	return true;
}

static bool path_of(const struct elf *elf, const char *dir, const char *suffix, char path[PATH_MAX])
{
	const char *id = elf__build_id(elf);

	return *id && snprintf(path, PATH_MAX, "%s/%s.ops%s", dir, id, suffix) < PATH_MAX;
}

/* The whole file, to be freed, or NULL. */
static uint8_t *read_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint8_t *file = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) ||
	    st.st_size < (off_t)sizeof(struct header) || st.st_size > FILE_MAX)
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

static bool is_function(const struct torch_fn *fn, const struct torch_ops *ops)
{
	uint64_t end = (uint64_t)fn->first_site + fn->exit_cnt + fn->unwind_cnt;

	if (fn->event > OP_TEXT || fn->subject >= OP_ARG_STACK || fn->policy > SITES_AFTER_WORK ||
	    fn->arg_cnt > OP_ARGS_MAX || end > ops->site_cnt || (uintptr_t)fn->name >= ops->names_size)
		return false;
	for (uint32_t i = 0; i < fn->arg_cnt; i++)
		if (fn->arg[i].kind >= OP_ARG__COUNT)
			return false;
	return true;
}

/* Offsets become pointers, where they are good. */
static bool resolve(struct torch_ops *ops)
{
	if (!ops->names_size || ops->names[ops->names_size - 1])
		return false;
	for (size_t i = 0; i < ops->fn_cnt; i++) {
		if (!is_function(&ops->fn[i], ops))
			return false;
		ops->fn[i].name = ops->names + (uintptr_t)ops->fn[i].name;
	}
	for (size_t i = 0; i < ops->node_cnt; i++) {
		if ((uintptr_t)ops->node[i].name >= ops->names_size)
			return false;
		ops->node[i].name = ops->names + (uintptr_t)ops->node[i].name;
	}
	return true;
}

static void *take(const uint8_t **at, size_t bytes)
{
	void *copy = malloc(bytes + 1);

	if (copy)
		memcpy(copy, *at, bytes);
	*at += bytes;
	return copy;
}

static bool parse(const struct elf *elf, const uint8_t *file, struct torch_ops *ops)
{
	const struct header *header = (const struct header *)file;
	const uint8_t *at = file + sizeof(*header);
	uint32_t code_sum;

	ops->unnamed_cnt = header->unnamed_cnt;
	ops->unplaced_cnt = header->unplaced_cnt;
	ops->string_bytes = header->string_bytes;
	ops->sequence_nr = header->sequence_nr;
	ops->fn = take(&at, header->fn_cnt * sizeof(*ops->fn));
	ops->node = take(&at, header->node_cnt * sizeof(*ops->node));
	ops->site = take(&at, header->site_cnt * sizeof(*ops->site));
	ops->names = take(&at, header->names_size);
	if (!ops->fn || !ops->node || !ops->site || !ops->names)
		return false;
	ops->fn_cnt = header->fn_cnt;
	ops->node_cnt = header->node_cnt;
	ops->site_cnt = header->site_cnt;
	ops->names_size = header->names_size;
	return resolve(ops) && sum_code(elf, ops, &code_sum) && code_sum == header->code_sum;
}

int ops_cache__load(const struct elf *elf, const char *dir, struct torch_ops **out)
{
	struct torch_ops *ops = calloc(1, sizeof(*ops));
	const struct header *header;
	char path[PATH_MAX];
	uint8_t *file = NULL;
	int err = -ENOENT;
	struct header want;
	size_t size;

	if (!ops)
		return -ENOENT;
	want = header_of(ops);
	if (path_of(elf, dir, "", path))
		file = read_file(path, &size);
	header = (const struct header *)file;
	if (file && !memcmp(header, &want, offsetof(struct header, fn_cnt)) && file_size(header) == size &&
	    file_sum(file, size) == header->sum && parse(elf, file, ops))
		err = 0;
	free(file);
	if (err)
		torch_ops__free(ops);
	else
		*out = ops;
	return err;
}

static void put(uint8_t **at, const void *from, size_t bytes)
{
	if (bytes)
		memcpy(*at, from, bytes);
	*at += bytes;
}

/* The bytes of a cache file, to be freed, or NULL. */
static uint8_t *build(const struct elf *elf, const struct torch_ops *ops, size_t *size)
{
	struct header header = header_of(ops);
	uint8_t *file, *at;

	*size = file_size(&header);
	file = at = *size <= FILE_MAX && sum_code(elf, ops, &header.code_sum) ? malloc(*size) : NULL;
	if (!file)
		return NULL;
	put(&at, &header, sizeof(header));
	for (size_t i = 0; i < ops->fn_cnt; i++) {
		struct torch_fn fn = ops->fn[i];

		fn.name = (const char *)(fn.name - ops->names);
		put(&at, &fn, sizeof(fn));
	}
	for (size_t i = 0; i < ops->node_cnt; i++) {
		struct torch_node node = ops->node[i];

		node.name = (const char *)(node.name - ops->names);
		put(&at, &node, sizeof(node));
	}
	put(&at, ops->site, ops->site_cnt * sizeof(*ops->site));
	put(&at, ops->names, ops->names_size);
	((struct header *)file)->sum = file_sum(file, *size);
	return file;
}

void ops_cache__save(const struct elf *elf, const char *dir, const struct torch_ops *ops)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	uint8_t *file = NULL;
	bool written;
	size_t size;
	int fd;

	if (!path_of(elf, dir, "", path) || !path_of(elf, dir, ".XXXXXX", temporary))
		return;
	mkdir(dir, 0755);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return;
	file = build(elf, ops, &size);
	written = file && write(fd, file, size) == (ssize_t)size;
	free(file);
	if (close(fd) || !written || rename(temporary, path))
		unlink(temporary);
}
