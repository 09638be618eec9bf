/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The probes of one file: offsets with their cookies, in the order in which they are to be armed. */
#ifndef STEPFLAME_USER_SESSION_PROBE_LIST_H
#define STEPFLAME_USER_SESSION_PROBE_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "user/elf/elf.h"
#include "user/x86/sites.h"

struct mapped_file;

struct probe_list {
	char *path;          /* openable from here; owned, NULL: none was set */
	uint64_t dev, inode; /* of the file, as /proc/PID/maps has them */
	uint32_t number;     /* trace_events.c's; 0: none yet */
	size_t cnt, room;
	unsigned long *offsets; /* in the file */
	uint64_t *cookies;
};

void probe_list__release(struct probe_list *list); /* accepts a zeroed struct */
/* The file that it is of, as that process has it mapped. 0 or -ENOMEM. */
int probe_list__set_file(struct probe_list *list, const struct mapped_file *file);
/* One probe. 0 or -ENOMEM. */
int probe_list__add(struct probe_list *list, uint64_t offset, uint64_t cookie);
/* One probe at a site, whose depth goes into the cookie. 0 or -ENOMEM. */
int probe_list__add_site(struct probe_list *list, const struct site *site, uint32_t event, uint32_t flags, uint32_t fn);

/*
 * Probes on a native function: its exit sites and where exceptions leave it with event `exit` (PROBE_NONE:
 * none of these), then its entry site with event `enter`; so exits are armed before entries. flags and fn go into the
 * cookies. 0 or -ENOMEM.
 */
int probe_list__add_sites(struct probe_list *list, const struct sites *sites, uint32_t enter, uint32_t exit,
			  uint32_t flags, uint32_t fn);
/* The same for the function at vaddr, by SITES_STRICT. 0 or -errno of sites__find. */
int probe_list__add_function(struct probe_list *list, const struct elf *elf, uint64_t vaddr, uint64_t size,
			     uint32_t enter, uint32_t exit, uint32_t flags, uint32_t fn);

#endif
