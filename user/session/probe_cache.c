// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/probe_cache.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "user/elf/cache.h"

#define LISTS_MAX 4

/* Parts of a cache file: offsets and cookies of all lists in sequence, and each list's length. */
enum part { OFFSETS, COOKIES, COUNTS, PARTS };

static const struct cache_part units[PARTS] = {
	[OFFSETS].unit = sizeof(uint64_t),
	[COOKIES].unit = sizeof(uint64_t),
	[COUNTS].unit = sizeof(uint64_t),
};

int probe_cache__load(const struct elf *elf, const char *what, struct probe_list *lists, size_t list_cnt)
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

void probe_cache__save(const struct elf *elf, const char *what, const struct probe_list *lists, size_t list_cnt)
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
