// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/probe_list.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "include/probes.h"
#include "user/elf/cache.h"
#include "user/lib/compare.h"
#include "user/proc/deputy.h"
#include "user/proc/pagemap.h"
#include "user/proc/process.h"

#define PROBES_MAX (1 << 16) /* torch has 10,000 */

void probe_list__release(struct probe_list *list)
{
	free(list->offsets);
	free(list->cookies);
	if (list->copy)
		close(list->copy);
	*list = (struct probe_list){};
}

void probe_list__set_file(struct probe_list *list, const struct mapped_file *file, int fd)
{
	list->fd = fd;
	list->dev = file->dev;
	list->inode = file->inode;
}

int probe_list__add(struct probe_list *list, uint64_t offset, uint64_t cookie)
{
	if (list->cnt == PROBES_MAX)
		return -E2BIG;
	if (list->cnt == list->room) {
		size_t room = list->room ? 2 * list->room : 16;
		unsigned long *offsets = reallocarray(list->offsets, room, sizeof(*offsets));
		uint64_t *cookies;

		if (!offsets)
			return -ENOMEM;
		list->offsets = offsets;
		cookies = reallocarray(list->cookies, room, sizeof(*cookies));
		if (!cookies)
			return -ENOMEM;
		list->cookies = cookies;
		list->room = room;
	}
	list->offsets[list->cnt] = offset;
	list->cookies[list->cnt++] = cookie;
	return 0;
}

int probe_list__add_site(struct probe_list *list, const struct site *site, uint32_t event, uint32_t flags, uint32_t fn)
{
	uint32_t depth = site->depth < 0 || site->depth >= COOKIE_DEPTH_UNKNOWN ? COOKIE_DEPTH_UNKNOWN : site->depth;

	return probe_list__add(list, site->offset, COOKIE(event, flags, depth, fn));
}

int probe_list__add_sites(struct probe_list *list, const struct sites *sites, uint32_t enter, uint32_t exit,
			  uint32_t flags, uint32_t fn)
{
	int err = 0;

	for (uint32_t i = 0; exit != PROBE_NONE && !err && i < sites->exit_cnt; i++)
		err = probe_list__add_site(list, &sites->exit[i], exit, flags, fn);
	for (uint32_t i = 0; exit != PROBE_NONE && !err && i < sites->unwind_cnt; i++)
		err = probe_list__add_site(list, &sites->unwind[i], exit, flags, fn);
	return err ?: probe_list__add_site(list, &sites->entry, enter, flags, fn);
}

int probe_list__add_function(struct probe_list *list, const struct elf *elf, uint64_t vaddr, uint64_t size,
			     uint32_t enter, uint32_t exit, uint32_t flags, uint32_t fn)
{
	struct sites sites;

	return sites__find(elf, vaddr, size, SITES_STRICT, &sites)
		       ?: probe_list__add_sites(list, &sites, enter, exit, flags, fn);
}

/* ---- on disk, for the next session: user/elf/cache.h ---- */

#define LISTS_MAX 4

/* Parts of a cache file: offsets and cookies of all lists in sequence, and each list's length. */
enum part { OFFSETS, COOKIES, COUNTS, PARTS };

static const struct cache_part units[PARTS] = {
	[OFFSETS].unit = sizeof(uint64_t),
	[COOKIES].unit = sizeof(uint64_t),
	[COUNTS].unit = sizeof(uint64_t),
};

int probe_lists__load(const struct elf *elf, const char *what, struct probe_list *lists, size_t list_cnt)
{
	struct cache_part part[PARTS];
	const uint64_t *offset, *cookie, *cnt;
	char path[PATH_MAX];
	int err;

	memcpy(part, units, sizeof(part));
	err = cache__load(elf, cache__dir(path, sizeof(path)), what, part, PARTS);
	if (err)
		return err;
	offset = part[OFFSETS].data;
	cookie = part[COOKIES].data;
	cnt = part[COUNTS].data;
	if (part[COUNTS].cnt != list_cnt || part[COOKIES].cnt != part[OFFSETS].cnt)
		err = -ENOENT;
	for (size_t i = 0, k = 0; i < list_cnt && !err; i++)
		for (size_t n = 0; n < cnt[i] && !err; n++, k++)
			err = k < part[OFFSETS].cnt ? probe_list__add(&lists[i], offset[k], cookie[k]) : -ENOENT;
	cache__release(part, PARTS);
	for (size_t i = 0; i < list_cnt && err; i++)
		probe_list__release(&lists[i]);
	return err;
}

void probe_lists__save(const struct elf *elf, const char *what, const struct probe_list *lists, size_t list_cnt)
{
	struct probe_list all = {0};
	uint64_t cnt[LISTS_MAX];
	struct cache_part part[PARTS];
	char path[PATH_MAX];
	int err = list_cnt > LISTS_MAX ? -E2BIG : 0;

	for (size_t i = 0; i < list_cnt && !err; i++) {
		cnt[i] = lists[i].cnt;
		for (size_t k = 0; k < cnt[i] && !err; k++)
			err = probe_list__add(&all, lists[i].offsets[k], lists[i].cookies[k]);
	}
	memcpy(part, units, sizeof(part));
	part[OFFSETS].data = all.offsets;
	part[COOKIES].data = all.cookies;
	part[OFFSETS].cnt = part[COOKIES].cnt = all.cnt;
	part[COUNTS].data = cnt;
	part[COUNTS].cnt = list_cnt;
	if (!err)
		cache__save(elf, cache__dir(path, sizeof(path)), what, part, PARTS);
	probe_list__release(&all);
}

/*
 * ---- compared with the code of a process ----
 *
 * What the file says at the sites, which was searched and of which the kernel executes copies, with
 * what the process would execute. A page that the process has not written to is the file's own page,
 * so only sites in pages that /proc/PID/pagemap calls the process's own are read: mostly none. This
 * takes 2 ms for the 12,000 sites of torch, and brings no page into the process, where reading them
 * all would take 50 ms.
 */

#define BATCH      256 /* sites, by one call */
#define SITE_BYTES 16  /* the longest instruction and one more */
#define RANGES_MAX 64
#define BREAKPOINT 0xcc

#define WINDOW     512 /* pages, by one read */

struct code_ranges {
	uint64_t dev, inode;
	size_t cnt;
	struct mapping range[RANGES_MAX];
};

/* The bytes of a process at some sites. */
struct site_batch {
	pid_t pid;
	uint32_t cnt;
	struct iovec remote[BATCH];
};

struct comparison {
	int fd, pagemap;
	const struct code_ranges *ranges;
	uint64_t window_at; /* the first page of `window`; 0: none yet */
	uint64_t window[WINDOW];
	struct site_batch batch;
	uint64_t offset[BATCH]; /* of the batch's sites */
};

static int add_code_range(const struct mapping *map, void *ctx)
{
	struct code_ranges *ranges = ctx;

	if (map->executable && map->dev == ranges->dev && map->inode == ranges->inode && ranges->cnt < RANGES_MAX)
		ranges->range[ranges->cnt++] = *map;
	return 0;
}

/* Where the process has the bytes at the offset, and how many of SITE_BYTES; length 0: not executable. */
static struct iovec locate_site(const struct code_ranges *ranges, uint64_t offset)
{
	for (size_t i = 0; i < ranges->cnt; i++) {
		const struct mapping *map = &ranges->range[i];
		uint64_t skip = offset - map->offset, size = map->end - map->start;

		if (offset >= map->offset && skip < size)
			return (struct iovec){(void *)(map->start + skip),
					      size - skip < SITE_BYTES ? size - skip : SITE_BYTES};
	}
	return (struct iovec){};
}

/* May the page differ from that of the file? */
static bool is_own_page(struct comparison *c, uint64_t page)
{
	uint64_t at = page & -(uint64_t)WINDOW, entry;

	if (at != c->window_at) {
		ssize_t got = pread(c->pagemap, c->window, sizeof(c->window), at * sizeof(entry));

		for (ssize_t i = got > 0 ? got / 8 : 0; i < WINDOW; i++)
			c->window[i] = PAGE_EXISTS; /* what cannot be read may be anything */
		c->window_at = at;
	}
	entry = c->window[page - at];
	return (entry & PAGE_EXISTS) && !(entry & PAGE_OF_FILE);
}

static bool is_same_code(const uint8_t *memory, const uint8_t *file, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (memory[i] != file[i] && memory[i] != BREAKPOINT)
			return false;
	return true;
}

/* By the deputy, since a page of the process may never come. Returns the bytes, one site after the other. */
static int read_batch(const void *in, struct deputy_out *out)
{
	const struct site_batch *batch = in;
	struct iovec local = {out->bytes, 0};
	ssize_t got;

	for (uint32_t i = 0; i < batch->cnt; i++)
		local.iov_len += batch->remote[i].iov_len;
	got = process_vm_readv(batch->pid, &local, 1, batch->remote, batch->cnt, 0);
	out->size = local.iov_len;
	return got < 0 ? -errno : (size_t)got == out->size ? 0 : -EFAULT;
}

static int compare_batch(struct comparison *c)
{
	struct site_batch *batch = &c->batch;
	const struct deputy_out *answer;
	uint8_t file[BATCH][SITE_BYTES];
	const uint8_t *memory;
	int err;

	if (!batch->cnt)
		return 0;
	for (size_t i = 0; i < batch->cnt; i++) {
		ssize_t got = pread(c->fd, file[i], batch->remote[i].iov_len, c->offset[i]);

		if (got <= 0)
			return got ? -errno : -ESTALE;
		batch->remote[i].iov_len = got;
	}
	err = deputy__run(batch->pid, read_batch, batch, sizeof(*batch), &answer);
	if (err)
		return err;
	memory = (const uint8_t *)answer->bytes;
	for (size_t i = 0; i < batch->cnt; memory += batch->remote[i++].iov_len)
		if (!is_same_code(memory, file[i], batch->remote[i].iov_len))
			return -EBADMSG;
	batch->cnt = 0;
	return 0;
}

static int compare_sites(struct comparison *c, const uint64_t *offsets, size_t cnt)
{
	int err = 0;

	c->batch.cnt = 0;
	for (size_t i = 0; i < cnt && !err; i++) {
		struct iovec site = locate_site(c->ranges, offsets[i]);
		uint64_t address = (uint64_t)site.iov_base;

		if (!site.iov_len)
			return -EBADMSG;
		if (!is_own_page(c, address / PAGE) && !is_own_page(c, (address + site.iov_len - 1) / PAGE))
			continue;
		c->offset[c->batch.cnt] = offsets[i];
		c->batch.remote[c->batch.cnt++] = site;
		if (c->batch.cnt == BATCH)
			err = compare_batch(c);
	}
	return err ?: compare_batch(c);
}

int probe_list__compare(const struct probe_list *list, const struct mapped_file *file)
{
	struct code_ranges ranges = {
		.dev = file->dev,
		.inode = file->inode,
		.cnt = 1,
		.range[0] = {.start = file->code.start, .end = file->code.end, .offset = file->code.offset},
	};
	struct comparison c = {.fd = list->fd, .ranges = &ranges, .batch.pid = file->pid};
	uint64_t *offsets = malloc(list->cnt * sizeof(*offsets)); /* ascending, for the window */
	char path[32];
	int err;

	if (!offsets)
		return -ENOMEM;
	memcpy(offsets, list->offsets, list->cnt * sizeof(*offsets));
	qsort(offsets, list->cnt, sizeof(*offsets), compare__u64);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", file->pid);
	c.pagemap = open(path, O_RDONLY | O_CLOEXEC);
	err = compare_sites(&c, offsets, list->cnt);
	if (err == -EBADMSG || err == -EFAULT) {
		/* The file has other executable mappings, or has been mapped elsewhere since. */
		ranges.cnt = 0;
		err = process__each_mapping(file->pid, add_code_range, &ranges)
			      ?: compare_sites(&c, offsets, list->cnt);
	}
	if (c.pagemap >= 0)
		close(c.pagemap);
	free(offsets);
	return err == -EFAULT ? -EBADMSG : err;
}
