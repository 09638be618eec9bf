// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/probe_list.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "include/probes.h"
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
